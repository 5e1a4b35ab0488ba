"""A device's line to the server: whether it is there, and what an operator wants of it.

One table says all that can happen. What the device learns of it is up to its session
(sessions/session.py), which the roster knows as a `Line` only.
"""

import asyncio
import hmac
import secrets
import time
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Protocol

from edgeflock.server.roster.traffic import Meter
from edgeflock.shared.errors import SessionRefused

SECRET_BYTES = 16


class Line(Protocol):
    """An open session."""

    meter: Meter
    credential: bytes
    """Digest of what the device showed; empty if nothing was asked for."""

    async def is_alive(self) -> bool:
        """Whether anything comes of the device, asked if need be."""

    async def supersede(self) -> None:
        """End for a newer session; return when nothing is in flight."""

    async def drop(self, because: SessionRefused) -> None:
        """End because an operator wants it."""

    async def leave(self) -> None:
        """End because the server stops."""

    def heed(self) -> None:
        """An operator has paused its device, or lets it go on: `Connection.order` says which."""


class ConnectionState(Enum):
    AWAY = auto()
    HERE = auto()
    PAUSED = auto()
    """It is there, and its answers are held back until it is resumed."""
    PAUSED_AWAY = auto()
    """It will be paused when it comes."""
    DROPPING = auto()
    """Its session is being ended,"""
    DROPPED = auto()
    """and it may not come back until it is resumed."""


class ConnectionEvent(Enum):
    JOIN = auto()
    LEAVE = auto()
    PAUSE = auto()
    DROP = auto()
    RESUME = auto()


_S, _E = ConnectionState, ConnectionEvent

TRANSITIONS: dict[ConnectionState, dict[ConnectionEvent, ConnectionState]] = {
    _S.AWAY: {_E.JOIN: _S.HERE, _E.PAUSE: _S.PAUSED_AWAY, _E.DROP: _S.DROPPED, _E.RESUME: _S.AWAY},
    _S.HERE: {_E.LEAVE: _S.AWAY, _E.PAUSE: _S.PAUSED, _E.DROP: _S.DROPPING, _E.RESUME: _S.HERE},
    _S.PAUSED: {_E.LEAVE: _S.PAUSED_AWAY, _E.PAUSE: _S.PAUSED, _E.DROP: _S.DROPPING, _E.RESUME: _S.HERE},
    _S.PAUSED_AWAY: {
        _E.JOIN: _S.PAUSED,
        _E.PAUSE: _S.PAUSED_AWAY,
        _E.DROP: _S.DROPPED,
        _E.RESUME: _S.AWAY,
    },
    _S.DROPPING: {_E.LEAVE: _S.DROPPED, _E.PAUSE: _S.PAUSED, _E.DROP: _S.DROPPING, _E.RESUME: _S.HERE},
    _S.DROPPED: {_E.PAUSE: _S.PAUSED_AWAY, _E.DROP: _S.DROPPED, _E.RESUME: _S.AWAY},
}
"""Nothing else can happen: a session joins once the one before it has left, and never when dropped."""

_HELD = (_S.PAUSED, _S.PAUSED_AWAY, _S.DROPPING, _S.DROPPED)


@dataclass(frozen=True, slots=True)
class Order:
    """An operator wants a device to wait. The register remembers it for the next server."""

    because: str
    over: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(slots=True)
class Connection:
    """A device's line, if it has one, and the traffic of all that it had."""

    state: ConnectionState = ConnectionState.AWAY
    line: Line | None = None
    order: Order | None = None
    """An operator's, while the state says so."""
    arriving: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while a session takes the place of another."""
    last_seen: float = 0.0
    """Unix time of its last record, to be shown. The system's clock may jump; by
    """
    last_heard: float = 0.0
    """the monotonic one it is told for how long it has been silent."""
    past: Meter = field(default_factory=Meter)
    """Traffic of its earlier lines."""
    why_left: str | None = None
    """Why its last session ended (frames.LEFT); None while it has one, or if there was none."""
    ended: int = 0
    """Sessions that ended before the device had done its part, and not because the server stopped."""
    given: bool = True
    """Whether an update of it was taken since it last asked for the model."""
    waits: bool = False
    """Whether it asked for the model, and gets it when its turn has come."""
    secret: bytes = b""
    """What the device was told last: whoever knows it may take the line's place."""

    def hear(self) -> None:
        """Something came from it."""
        self.last_seen, self.last_heard = time.time(), time.monotonic()

    def be_seen(self) -> None:
        """It is there, whether it does something or not."""
        self.last_seen = time.time()

    @property
    def here(self) -> bool:
        """Whether it has a line."""
        return self.line is not None

    @property
    def present(self) -> bool:
        """Whether it takes part: others may wait for it."""
        return self.state is ConnectionState.HERE

    @property
    def dropped(self) -> bool:
        return self.state in (ConnectionState.DROPPING, ConnectionState.DROPPED)

    @property
    def traffic(self) -> tuple[int, int]:
        """(ingress, egress) of all its lines."""
        now = self.line.meter if self.line is not None else Meter()
        return self.past.ingress + now.ingress, self.past.egress + now.egress

    def join(self, line: Line, shown: bytes = b"") -> None:
        """A session begins that has `shown` the last secret, or some other: then it is told a new one."""
        self._happen(ConnectionEvent.JOIN)
        self.line, self.why_left = line, None
        if not self.knows(shown):
            self.secret = secrets.token_bytes(SECRET_BYTES)

    def knows(self, shown: bytes) -> bool:
        """Whether a device that has `shown` this is the one that was here last.

        Welcomes may be lost on the way: a device that comes back keeps the secret that it has.
        """
        return bool(self.secret) and hmac.compare_digest(shown, self.secret)

    def leave(self, why: str | None = None) -> None:
        """Its session has ended, and why."""
        self._happen(ConnectionEvent.LEAVE)
        self.why_left = why
        self.ended += why is not None and not why.startswith(("finished", "stopped"))
        self.past, self.line = Meter(*self.traffic), None

    def pause(self, because: str) -> None:
        """Hold back its answers until it is resumed. An earlier order gives way."""
        self._happen(ConnectionEvent.PAUSE, Order(because))

    def drop(self, because: str) -> None:
        """Keep it out until it is resumed; ending its line is the caller's. An earlier order gives way."""
        self._happen(ConnectionEvent.DROP, Order(because))

    def resume(self) -> None:
        self._happen(ConnectionEvent.RESUME)

    def _happen(self, event: ConnectionEvent, order: Order | None = None) -> None:
        self.state = TRANSITIONS[self.state][event]
        earlier = self.order
        if event in (ConnectionEvent.PAUSE, ConnectionEvent.DROP, ConnectionEvent.RESUME):
            self.order = order
            if earlier is not None:
                earlier.over.set()  # whoever waits for it looks again
            if self.line is not None:
                self.line.heed()
        assert (self.order is not None) == (self.state in _HELD), "the table says both"

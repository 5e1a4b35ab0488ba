"""A device's connection to the server, and an operator's order to the device.

A table lists all transitions. The session tells the device of them (sessions/session.py). The roster
sees a session as a `Line` only.
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
    """Digest of the device's credential; empty if none was required."""

    async def is_alive(self) -> bool:
        """Whether the device still sends, after a ping if necessary."""

    async def supersede(self) -> None:
        """End for a newer session. It returns when nothing is in flight."""

    async def drop(self, because: SessionRefused) -> None:
        """End because an operator wants it."""

    async def leave(self) -> None:
        """End because the server stops."""

    def heed(self) -> None:
        """React to an operator's pause or resume. `Connection.order` says which."""


class ConnectionState(Enum):
    AWAY = auto()
    HERE = auto()
    PAUSED = auto()
    """The device is connected, and its answers are held back until it is resumed."""
    PAUSED_AWAY = auto()
    """It is away, and will be paused when it connects."""
    DROPPING = auto()
    """Its session is being ended."""
    DROPPED = auto()
    """It may not come back until it is resumed."""


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
"""All possible transitions. A session joins only after the one before it has left, and never when dropped."""

_HELD = (_S.PAUSED, _S.PAUSED_AWAY, _S.DROPPING, _S.DROPPED)


@dataclass(frozen=True, slots=True)
class Order:
    """An operator's order to wait. The register stores it for the next server."""

    because: str
    over: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(slots=True)
class Connection:
    """A device's line, if it has one, and the traffic of all its lines."""

    state: ConnectionState = ConnectionState.AWAY
    line: Line | None = None
    order: Order | None = None
    """An operator's order, in the states that have one."""
    arriving: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while a session replaces another."""
    last_seen: float = 0.0
    """Unix time of its last record, for display. The system's clock may jump."""
    last_heard: float = 0.0
    """Monotonic time of its last record, from which its silence is measured."""
    past: Meter = field(default_factory=Meter)
    """Traffic of its earlier lines."""
    why_left: str | None = None
    """Why its last session ended (frames.LEFT). None while it has one, or if there was none."""
    ended: int = 0
    """Sessions that ended early, for another reason than the server's stop."""
    given: bool = True
    """Whether an update of it was accepted since it last asked for the model."""
    waits: bool = False
    """Whether it asked for the model, and waits for its turn."""
    secret: bytes = b""
    """The secret that the device was last given. A session that shows it may replace the line."""

    def hear(self) -> None:
        """Note that a record came from the device."""
        self.last_seen, self.last_heard = time.time(), time.monotonic()

    def be_seen(self) -> None:
        """Note that the device is connected, active or not."""
        self.last_seen = time.time()

    @property
    def here(self) -> bool:
        """Whether it has a line."""
        return self.line is not None

    @property
    def present(self) -> bool:
        """Whether it takes part, so that others may wait for it."""
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
        """Begin a session. If `shown` is not the last secret, the device gets a new one."""
        self._happen(ConnectionEvent.JOIN)
        self.line, self.why_left = line, None
        if not self.knows(shown):
            self.secret = secrets.token_bytes(SECRET_BYTES)

    def knows(self, shown: bytes) -> bool:
        """Whether a device that has `shown` this secret is the one that was connected last.

        A Welcome may be lost. So a device that comes back keeps the secret that it has.
        """
        return bool(self.secret) and hmac.compare_digest(shown, self.secret)

    def leave(self, why: str | None = None) -> None:
        """End its session for the reason `why`."""
        self._happen(ConnectionEvent.LEAVE)
        self.why_left = why
        self.ended += why is not None and not why.startswith(("finished", "stopped"))
        self.past, self.line = Meter(*self.traffic), None

    def pause(self, because: str) -> None:
        """Hold back its answers until it is resumed. This replaces an earlier order."""
        self._happen(ConnectionEvent.PAUSE, Order(because))

    def drop(self, because: str) -> None:
        """Keep it out until it is resumed, in place of an earlier order. The caller ends its line."""
        self._happen(ConnectionEvent.DROP, Order(because))

    def resume(self) -> None:
        self._happen(ConnectionEvent.RESUME)

    def _happen(self, event: ConnectionEvent, order: Order | None = None) -> None:
        self.state = TRANSITIONS[self.state][event]
        earlier = self.order
        if event in (ConnectionEvent.PAUSE, ConnectionEvent.DROP, ConnectionEvent.RESUME):
            self.order = order
            if earlier is not None:
                earlier.over.set()  # tasks that wait for it check again
            if self.line is not None:
                self.line.heed()
        assert (self.order is not None) == (self.state in _HELD), "the table says both"

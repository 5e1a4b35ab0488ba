"""A device's connection to the server, and an operator's order to the device.

The session tells the device of both (sessions/session.py). The roster sees a session as an `OpenSession`
only.
"""

import asyncio
import hmac
import secrets
import time
from dataclasses import dataclass, field
from typing import Protocol

from edgeflock.server.connections import Meter
from edgeflock.shared.errors import SessionRefused
from edgeflock.shared.protocol.frames import GATEWAY_LOST, SESSION_CLOSED

_NOT_ITS_OWN = "finished", "stopped", "retired: stopped by its owner", GATEWAY_LOST
"""What the reason of an end that says nothing about the device's network or power begins with."""

_SOON = 1.0
"""A device that closes its session and returns within so many seconds was not away."""

SECRET_BYTES = 16


class OpenSession(Protocol):
    meter: Meter
    credential: bytes
    """Digest of the device's credential; empty if none was required."""

    async def is_alive(self) -> bool:
        """Whether the device still sends, after a ping if necessary."""

    async def supersede(self) -> None:
        """End for a newer session. It returns when nothing is in flight."""

    async def drop(self, reason: SessionRefused) -> None:
        """End because an operator wants it."""

    async def leave(self) -> None:
        """End because the server stops."""

    def apply_order(self) -> None:
        """React to an operator's pause or resume. `Connection.order` says which."""


@dataclass(frozen=True, slots=True)
class Order:
    """An operator's order, which holds until the device is resumed. The register stores it, too."""

    reason: str
    drops: bool = False
    """Whether the device may not come back. Otherwise its answers are held back."""
    ended: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(slots=True)
class Connection:
    """A device's line, if it has one, and the traffic of all its lines."""

    session: OpenSession | None = None
    order: Order | None = None
    """An operator's order, if there is one, whether the device is here or away."""
    replacement_lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while a session replaces another."""
    last_seen: float = 0.0
    """Unix time of its last record, for display. The system's clock may jump."""
    last_heard: float = 0.0
    """Monotonic time of its last record, from which its silence is measured."""
    earlier_traffic: Meter = field(default_factory=Meter)
    """Traffic of its earlier lines."""
    base_egress: int = 0
    """Bytes of the frozen base that it was sent since the server started. They are in no other count."""
    leave_reason: str | None = None
    """Why its last session ended (frames.LEFT). None while it has one, or if there was none."""
    left: float = 0.0
    """Monotonic time when its last session ended."""
    early_ends: int = 0
    """Sessions that ended early, but not by its owner, the server's stop or the loss of a gateway."""
    has_updated: bool = True
    """Whether an update of it was accepted since it last asked for the model."""
    awaits_turn: bool = False
    """Whether it asked for the model or for a secure sum, and waits for its turn or for other devices."""
    secret: bytes = b""
    """The secret that the device was last given. A session that shows it may replace the line."""

    def mark_active(self) -> None:
        """Note that a record came from the device."""
        self.last_seen, self.last_heard = time.time(), time.monotonic()

    def mark_seen(self) -> None:
        """Note that the device is connected, active or not."""
        self.last_seen = time.time()

    @property
    def is_connected(self) -> bool:
        """Whether it has a line."""
        return self.session is not None

    @property
    def present(self) -> bool:
        """Whether it takes part, so that others may wait for it."""
        return self.session is not None and self.order is None

    @property
    def dropped(self) -> bool:
        return self.order is not None and self.order.drops

    @property
    def traffic(self) -> tuple[int, int]:
        """(ingress, egress) of all its lines."""
        now = self.session.meter if self.session is not None else Meter()
        return self.earlier_traffic.ingress + now.ingress, self.earlier_traffic.egress + now.egress

    def join(self, session: OpenSession, secret: bytes = b"") -> None:
        """Begin a session. If `secret` is not the last secret, the device gets a new one."""
        assert self.session is None, "its earlier session has left"
        assert not self.dropped, "nobody admits it"
        if self.leave_reason == SESSION_CLOSED:
            self.early_ends += time.monotonic() - self.left >= _SOON
        self.session, self.leave_reason = session, None
        if not self.has_secret(secret):
            self.secret = secrets.token_bytes(SECRET_BYTES)

    def has_secret(self, secret: bytes) -> bool:
        """Whether a device that has `secret` this secret is the one that was connected last.

        A Welcome may be lost. So a device that comes back keeps the secret that it has.
        """
        return bool(self.secret) and hmac.compare_digest(secret, self.secret)

    def leave(self, reason: str | None = None) -> None:
        """End its session for `reason`."""
        assert self.session is not None, "it has joined"
        self.leave_reason = reason
        if reason != SESSION_CLOSED:  # `join` decides
            self.early_ends += reason is not None and not reason.startswith(_NOT_ITS_OWN)
        self.earlier_traffic, self.session, self.left = Meter(*self.traffic), None, time.monotonic()

    def pause(self, reason: str) -> None:
        """Hold back its answers until it is resumed. This replaces an earlier order."""
        self._set_order(Order(reason))

    def drop(self, reason: str) -> None:
        """Keep it out until it is resumed, in place of an earlier order. The caller ends its line."""
        self._set_order(Order(reason, drops=True))

    def resume(self) -> None:
        self._set_order(None)

    def _set_order(self, order: Order | None) -> None:
        earlier, self.order = self.order, order
        if earlier is not None:
            earlier.ended.set()  # tasks that wait for it check again
        if self.session is not None:
            self.session.apply_order()

"""The devices of a run, as the server knows them."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from edgeflock.server.history import History
from edgeflock.server.journal import Account
from edgeflock.server.traffic import Meter
from edgeflock.shared import sparse
from edgeflock.shared.errors import Dropped, TooManyDevices
from edgeflock.shared.messages import Facts, Update

if TYPE_CHECKING:
    from edgeflock.server.session import Session


@dataclass(frozen=True, slots=True)
class Pause:
    """An operator wants a device to wait. Forgotten when the server stops."""

    because: str
    dropped: bool = False
    """Whether it may not even be connected."""
    over: asyncio.Event = field(default_factory=asyncio.Event)


_FOLLOW = 0.2
"""How fast the usual interval between updates follows the last one."""

_SILENT = 3.0
"""A device is idle after so many times its usual interval,"""

_LEAST_SILENCE, _UNKNOWN_INTERVAL = 3.0, 10.0
"""but not before so many seconds; and what counts as its interval before it has one."""


@dataclass(slots=True)
class Device:
    """One device: who it is, what it did, how much it cost."""

    id: int
    """Its number in the journal; 0 until it has one."""
    name: str
    facts: Facts = field(default_factory=dict)
    """What it told with its Hello."""
    telemetry: Facts = field(default_factory=dict)
    """What its updates told last."""
    session: "Session | None" = None
    arriving: asyncio.Lock = field(default_factory=asyncio.Lock)
    sequence: int | None = None
    """The last update that is counted here, a resent one is not counted again; None: not greeted yet."""
    updates: int = 0
    compressed: int = 0
    """Updates that held a selection of the gradient, since the server started; and"""
    uncompressed: int = 0
    """those that held all of it."""
    refused: int = 0
    staleness: int = 0
    loss: float = 0.0
    samples: int = 0
    batch: int = 0
    """Samples of the last update."""
    interval: float = 0.0
    """Seconds between its updates, of late; 0 until there were two."""
    last_update: float = 0.0
    """Unix time."""
    shares: bool = False
    """Whether it said that its owner lets samples of it go to others. Since the server started:"""
    shared: int = 0
    """Samples that it shared, and"""
    received: int = 0
    """samples of others that were sent to it."""
    last_seen: float = 0.0
    past: Meter = field(default_factory=Meter)
    """Traffic of its earlier connections."""
    pause: Pause | None = None
    history: History | None = None
    idle: bool = False
    """What `is_idle` was when a watcher was last told."""
    changed: int = 0
    """When it last changed, by the hub's count (hub.py)."""

    @property
    def traffic(self) -> tuple[int, int]:
        """(ingress, egress) of all its connections."""
        now = self.session.meter if self.session else Meter()
        return self.past.ingress + now.ingress, self.past.egress + now.egress

    def is_idle(self, now: float) -> bool:
        """Whether it is connected, but silent for much longer than usual."""
        usual = self.interval or _UNKNOWN_INTERVAL
        return self.session is not None and now - self.last_seen > max(_LEAST_SILENCE, _SILENT * usual)

    def count(self, update: Update, staleness: int) -> bool:
        """Take note of an accepted update, seen at `last_seen`; False if it is counted already."""
        if update.sequence <= (self.sequence or 0):
            return False
        self.sequence = update.sequence
        self.updates += 1
        self.samples += update.samples
        self.batch = update.samples
        self.loss = update.loss
        self.staleness = max(0, staleness)
        if update.index_mode == sparse.DENSE:
            self.uncompressed += 1
        else:
            self.compressed += 1
        if update.facts is not None:
            self.telemetry = update.facts
        if self.last_update:
            interval = self.last_seen - self.last_update
            self.interval += (_FOLLOW if self.interval else 1.0) * (interval - self.interval)
        self.last_update = self.last_seen
        if self.history is not None:
            self.history.add(self.last_seen, update.loss, self.staleness, self.traffic[0])
        return True


class Registry:
    """Devices by name."""

    def __init__(self, limit: int, known: Iterable[Account] = ()) -> None:
        """`known` are the devices of the run's past."""
        self._limit = limit
        self.devices: dict[str, Device] = {
            account.name: Device(
                account.device,
                account.name,
                updates=account.updates,
                past=Meter(account.ingress, account.egress),
            )
            for account in known
        }

    def traffic(self) -> list[tuple[int, int, int]]:
        """(device, ingress, egress) for each."""
        return [(device.id, *device.traffic) for device in self.devices.values()]

    def present(self) -> set[int]:
        """The devices that are connected and not paused."""
        return {d.id for d in self.devices.values() if d.session is not None and d.pause is None}

    def admit(self, name: str) -> Device:
        """The device of this name. Raises TooManyDevices if it is new and there is no room for it, Dropped if
        an operator does not want it.
        """
        device = self.devices.get(name)
        if device is None:
            if len(self.devices) >= self._limit:
                raise TooManyDevices(f"the server takes {self._limit} devices (limits.devices)")
            device = self.devices[name] = Device(0, name)
        if device.pause is not None and device.pause.dropped:
            raise Dropped(f"an operator has dropped {name!r}: {device.pause.because}")
        if device.history is None:
            device.history = History.among(len(self.devices))
        return device

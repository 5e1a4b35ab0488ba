"""The server's records of the devices of a run."""

import time
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from edgeflock.server.connections import Meter
from edgeflock.server.journal import DeviceTotals
from edgeflock.server.roster.connection import Connection
from edgeflock.server.roster.statistics import History, Statistics
from edgeflock.shared import errors
from edgeflock.shared.errors import Dropped, NameInUse, Refused, TooManyDevices
from edgeflock.shared.identity import names
from edgeflock.shared.protocol.messages import Facts

WINDOW = 60.0
"""Seconds."""

_FAULTS = (
    errors.WrongDtype, errors.NonFinite, errors.BadStatistics, errors.IndexMalformed,
    errors.IndexOutOfRange, errors.IndexRepeated, errors.IndexUnsorted, errors.ExpansionTooLarge,
    errors.StepTooLarge, errors.BadSamples, errors.SequenceAhead, errors.NoSuchTask, errors.Malformed,
    errors.UnknownRecord, errors.UnexpectedRecord, errors.FrameTooLarge,
)  # fmt: skip
"""Honest devices may get any other refusal: after a restart, on a slow line, by an operator's order."""


@dataclass(slots=True)
class Conduct:
    """The conduct of one device, over all its sessions."""

    quarantined_until: float = 0.0
    """Unix time."""
    _times: deque[float] = field(default_factory=deque)

    def count_refusal(self, refusal: Refused, limit: int, now: float) -> bool:
        """Whether this is one more than `limit` in the window, by any clock. Then the count restarts.

        If `limit` is 0 there is no limit.
        """
        if not limit or not isinstance(refusal, _FAULTS):
            return False
        times = self._times
        times.append(now)
        while times[0] <= now - WINDOW:
            times.popleft()
        if len(times) <= limit:
            return False
        times.clear()
        return True


_MAX_OUTDATED, _OUTDATED_SECONDS = 50, 600.0
"""Devices that were refused for their protocol: how many are remembered, and for how long."""


@dataclass(slots=True)
class Device:
    """One device: who it is, its connection, statistics and conduct."""

    name: str
    id: int = 0
    """Its number in the journal; 0 until it has one."""
    facts: Facts = field(default_factory=dict)
    """The facts of its Hello."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Its owner's labels, and those of operators, which come first."""
    shares: bool = False
    """Whether its owner allows other devices to get its samples."""
    shards: int = 0
    """How many data shards it holds, in a run of tasks."""
    connection: Connection = field(default_factory=Connection)
    statistics: Statistics = field(default_factory=Statistics)
    conduct: Conduct = field(default_factory=Conduct)
    last_change: int = 0
    """The hub's count at its last change (hub.py)."""

    @property
    def owner_pause(self) -> str | None:
        """Why its owner pauses it now, from its telemetry. None: it is not paused, or away."""
        reason = self.statistics.telemetry.get("paused")
        return reason if isinstance(reason, str) and self.connection.is_connected else None

    @property
    def present(self) -> bool:
        """Whether it takes part, so that others may wait for it."""
        return self.connection.present and self.owner_pause is None

    @property
    def dropped(self) -> Dropped | None:
        """The refusal if an operator has dropped it. None: none has."""
        order = self.connection.order
        if order is None or not order.drops:
            return None
        reason = f": {order.reason}" if order.reason else ""
        return Dropped(f"an operator has dropped {self.name!r}{reason}; it may come back once one resumes it")

    def is_idle(self, now: float) -> bool:
        """Whether it is connected, but silent for much longer than usual, at monotonic time `now`."""
        connection = self.connection
        silent = connection.is_connected and not connection.awaits_turn
        return silent and self.statistics.is_unusual(now - connection.last_heard)


class Registry:
    """Devices by name."""

    def __init__(self, limit: int, totals: Iterable[DeviceTotals] = ()) -> None:
        """`totals` are the devices in the journal."""
        self._limit = limit
        self._outdated: dict[str, tuple[float, str]] = {}
        """Device -> when and why it was refused for its protocol, the latest last."""
        self.devices: dict[str, Device] = {
            account.name: Device(
                account.name,
                account.device,
                connection=Connection(earlier_traffic=Meter(account.ingress, account.egress)),
                statistics=Statistics(updates=account.updates),
            )
            for account in totals
        }

    def note_outdated(self, name: str, reason: str) -> None:
        """Note that a device was refused because it speaks another protocol."""
        self._outdated.pop(name, None)
        self._outdated[name] = time.monotonic(), reason
        if len(self._outdated) > _MAX_OUTDATED:
            del self._outdated[next(iter(self._outdated))]

    @property
    def outdated(self) -> tuple[tuple[str, str], ...]:
        """(device, reason) of those that were refused so within ten minutes, and not admitted since."""
        since = time.monotonic() - _OUTDATED_SECONDS
        return tuple((name, reason) for name, (noted, reason) in self._outdated.items() if noted >= since)

    def traffic(self) -> list[tuple[int, int, int]]:
        """(device, ingress, egress) for each."""
        return [(device.id, *device.connection.traffic) for device in self.devices.values()]

    def restore_order(self, name: str, reason: str, *, dropped: bool) -> None:
        """Restore an operator's order from before the server started."""
        connection = self.devices.setdefault(name, Device(name)).connection
        if dropped:
            connection.drop(reason)
        else:
            connection.pause(reason)

    def admit(self, name: str) -> Device:
        """The device of this name. Raises TooManyDevices if it is new and the limit is reached.

        Raises NameInUse if it is new and reads like another name, Dropped if an operator has dropped it.
        """
        device = self.devices.get(name)
        if device is None:
            if (other := names.find_lookalike(name, self.devices)) is not None:
                raise NameInUse(f"the name {ascii(name)} reads like {other!r}, which another device has")
            if len(self.devices) >= self._limit:
                raise TooManyDevices(f"the server takes no more devices: limits.devices = {self._limit}")
            device = self.devices[name] = Device(name)
        self._outdated.pop(name, None)
        if (refusal := device.dropped) is not None:
            raise refusal
        if device.statistics.history is None:
            device.statistics.history = History.from_fleet_size(len(self.devices))
        return device

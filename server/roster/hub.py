"""The changes of a run, for monitors: changed devices, events, and the run's counts.

Each push marks its device with a number and moves it to the end of one list. That cost does not depend on
the number of watchers. A watcher keeps only the numbers that it has seen (monitoring/feed.py), so a slow
watcher costs nothing.
"""

import asyncio
import logging
import math
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from edgeflock.server.connections import Meter
from edgeflock.server.roster.events import Events
from edgeflock.server.roster.rates import RecentRates
from edgeflock.server.roster.registry import Device
from edgeflock.server.roster.trail import Trail
from edgeflock.shared.codecs import sparse
from edgeflock.shared.errors import Refused
from edgeflock.shared.protocol.frames import BINS, EventKind, Mark, RunState, staleness_bin
from edgeflock.shared.protocol.messages import Update

log = logging.getLogger(__name__)

_LEVELS: dict[EventKind, int] = {
    "round": logging.DEBUG,
    "joined": logging.INFO,
    "left": logging.INFO,
    "refused": logging.INFO,
    "finished": logging.INFO,
    "diverged": logging.ERROR,
    "over": logging.INFO,
}
"""The log level of an event's kind. Warnings and operators' actions have the level WARNING."""

_WEIGHT = 0.02
"""The weight of the last update's loss in the average."""


@dataclass(slots=True)
class Counters:
    """Counts since the server started."""

    updates: int = 0
    samples: int = 0
    compressed: int = 0
    staleness: list[int] = field(default_factory=lambda: [0] * BINS)
    """Updates in each bin of tau."""
    staleness_sum: int = 0
    duplicates: int = 0
    """Updates of tasks that another device had computed before."""
    refusals: Counter[str] = field(default_factory=Counter)
    """Refusals by code."""
    loss: float | None = None
    """Training loss, averaged over the recent updates."""

    def count(self, update: Update, staleness: int) -> None:
        """Count an accepted update."""
        self.updates += 1
        self.samples += update.samples
        self.compressed += update.index_mode != sparse.DENSE
        self.staleness[staleness_bin(staleness)] += 1
        self.staleness_sum += staleness
        if math.isfinite(update.loss):
            self.loss = update.loss if self.loss is None else self.loss + _WEIGHT * (update.loss - self.loss)


class Hub:
    """Devices in the order of their last change; events; counts."""

    def __init__(self, version: Callable[[], int], total: Meter) -> None:
        """`version` returns the model's version; `total` is the server's traffic."""
        self.changes = 0
        """How often any device changed."""
        self.watchers = 0
        """The number of monitors."""
        self.events = Events()
        self.tally = Counters()
        self.trail = Trail()
        """The run's history, with a mark per second."""
        self._devices: OrderedDict[int, Device] = OrderedDict()
        self._idle: set[int] = set()
        """The devices that watchers see as idle."""
        self._version = version
        self._total = total
        self._rates = RecentRates()
        self.rates()

    def mark_changed(self, device: Device) -> None:
        """Note a change of a device, for watchers."""
        self.changes += 1
        device.last_change = self.changes
        number = device.id
        self._devices[number] = device
        self._devices.move_to_end(number)

    def devices_changed_since(self, change: int) -> Iterator[Device]:
        """The devices that changed after that change, the latest first."""
        for device in reversed(self._devices.values()):
            if device.last_change <= change:
                return
            yield device

    def count_update(self, device: Device, update: Update, staleness: int) -> None:
        """Count an accepted update, unless it was counted before."""
        self._idle.discard(device.id)
        connection = device.connection
        times = connection.last_seen, connection.last_heard
        if device.statistics.count(update, staleness, *times, connection.traffic[0]):
            self.tally.count(update, device.statistics.staleness)
        self.mark_changed(device)

    def count_refusal(self, device: Device | None, refusal: Refused, gateway_name: str = "") -> None:
        """Count and note a refusal. `gateway_name` names the gateway, if there is one."""
        self.tally.refusals[refusal.code] += 1
        by = f", through gateway {gateway_name}" if gateway_name else ""
        self.note("refused", device, f"{refusal.code}{by}: {refusal}")

    def count_duplicate(self, device: Device) -> None:
        """Count an update of a task that another device had computed before."""
        self.tally.duplicates += 1
        device.statistics.duplicates += 1
        self.mark_changed(device)

    def note_round(self, updates: int) -> None:
        duplicates = f", {self.tally.duplicates:,} duplicates so far" if self.tally.duplicates else ""
        self.note("round", None, f"{updates:,} updates made version {self._version():,}{duplicates}")

    def note(self, kind: EventKind, device: Device | None, text: str) -> None:
        """Add an event, of `device` if it is not None, and log it."""
        event = self.events.add(time.time(), kind, None if device is None else device.name, text)
        if event is not None:
            of = "" if event.device is None else f" {event.device}"
            log.log(_LEVELS.get(kind, logging.WARNING), "%s%s: %s", kind, of, event.text)
        if device is not None:
            self.mark_changed(device)

    async def run(self, state: Callable[[], RunState], reason: Callable[[], str | None]) -> None:
        """Sample the counts and the run's state each second, until cancelled. `reason` says why it ended."""
        before = state()
        while True:
            await asyncio.sleep(1)
            self.rates()
            self.trail.add(self.mark(time.time()))
            if self.watchers:
                self._look_for_idle(time.monotonic())
            if (now := state()) != before:
                before = now
                if now != "training":
                    self.note(now, None, reason() or "the run is complete")

    def rates(self) -> tuple[float, float, float]:
        """Updates, bytes received and bytes sent per second, over the last seconds."""
        now, total = asyncio.get_running_loop().time(), self._total
        rates = self._rates.per_second(now, self._version(), total.ingress, total.egress)
        return (0.0, 0.0, 0.0) if rates is None else (rates[0], rates[1], rates[2])

    def mark(self, now: float) -> Mark:
        """The counts at a Unix time."""
        up = sum(device.present for device in self._devices.values())
        return Mark(now, self._version(), self._total.ingress, self._total.egress, self.tally.loss, up)

    def _look_for_idle(self, now: float) -> None:
        """Mark devices that have become idle or active. A silent device causes no other event."""
        for device in list(self._devices.values()):
            if device.is_idle(now) != (device.id in self._idle):
                self._idle ^= {device.id}
                self.mark_changed(device)

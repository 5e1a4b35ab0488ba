"""The changes of a run, for monitors: changed devices, events, and the run's counts.

Each push marks its device with a number and moves it to the end of one list. That cost does not depend on
the number of watchers. A watcher keeps only the numbers that it has seen (monitoring/feed.py), so a slow
watcher costs nothing.
"""

import asyncio
import logging
import math
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice

from edgeflock.server.connections import Meter
from edgeflock.server.roster.registry import Device
from edgeflock.shared.codecs import sparse
from edgeflock.shared.errors import Refused
from edgeflock.shared.protocol.frames import BINS, Event, EventKind, Mark, RunState, staleness_bin
from edgeflock.shared.protocol.messages import Update

TIERS = ((1.0, 60), (10.0, 360), (300.0, 288))
"""(seconds between two marks, how many are kept): a minute, an hour, a day."""


class Trail:
    """The marks, in tiers. Each tier takes a mark when its interval has passed."""

    def __init__(self) -> None:
        self._tiers = [deque[Mark](maxlen=limit) for _, limit in TIERS]

    def add(self, mark: Mark) -> None:
        """Add the next mark. If the clock was set back, start again."""
        if self._tiers[0] and mark.time < self._tiers[0][-1].time:
            for tier in self._tiers:
                tier.clear()
        for tier, (every, _) in zip(self._tiers, TIERS, strict=True):
            # The caller adds marks a little late and never early, so allow half a second.
            if not tier or mark.time - tier[-1].time >= every - 0.5:
                tier.append(mark)

    def rows(self) -> list[Mark]:
        """All marks, oldest first. Each time has the marks of the finest tier that reaches back to it."""
        rows = list(self._tiers[0])
        for coarse in self._tiers[1:]:
            rows = [mark for mark in coarse if not rows or mark.time < rows[0].time] + rows
        return rows


WINDOW = 10.0
"""Seconds that rates are averaged over, by readings that are"""
INTERVAL = 1.0
"""at least this many seconds apart."""


class RecentRates:
    """Remembers recent counts, for their rates."""

    def __init__(self) -> None:
        self._readings: deque[tuple[float, tuple[int, ...]]] = deque()

    def per_second(self, now: float, *counts: int) -> list[float] | None:
        """Add the counts at the monotonic time `now`. Return their rates; None if it is too soon to say."""
        readings = self._readings
        if not readings or now - readings[-1][0] >= INTERVAL:
            readings.append((now, counts))
        while len(readings) > 2 and now - readings[1][0] >= WINDOW:
            readings.popleft()
        start, first = readings[0]
        if now - start < INTERVAL:
            return None
        return [(after - before) / (now - start) for after, before in zip(counts, first, strict=True)]


LIMIT = 1000
"""The most events that are kept."""

_LONGEST = 300
"""The most characters of a text. Devices choose some of the texts."""

_PER_SECOND = 5
"""Events per second of each kind that devices may cause, so that they do not displace the others."""

_DEVICE_KINDS: frozenset[EventKind] = frozenset(("joined", "left", "refused", "paused", "resumed", "round"))


class Events:
    """Events, numbered from 0. The newest are kept."""

    def __init__(self) -> None:
        self.count = 0
        """How many there have been."""
        self._events: deque[Event] = deque(maxlen=LIMIT)
        self._second: dict[EventKind, tuple[int, int, int]] = {}
        """kind -> (second, events in it, events left out since then)."""

    def add(self, time: float, kind: EventKind, device: str | None, text: str) -> Event | None:
        """Add an event and return it; None if it is left out."""
        dropped = 0
        if kind in _DEVICE_KINDS:
            second, events, dropped = self._second.get(kind, (0, 0, 0))
            if second != int(time):
                events = 0
            if events >= _PER_SECOND:
                self._second[kind] = second, events, dropped + 1
                return None
            self._second[kind] = int(time), events + 1, 0
        text = "".join(c if c.isprintable() else "?" for c in text[:_LONGEST])
        event = Event(time, kind, device, f"{text} (and {dropped:,} more)" if dropped else text)
        self._events.append(event)
        self.count += 1
        return event

    def list_from(self, number: int) -> tuple[tuple[Event, ...], int]:
        """(the events from `number` on that are kept, how many of them are not)."""
        oldest = self.count - len(self._events)
        return tuple(islice(self._events, max(0, number - oldest), None)), max(0, oldest - number)


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
        duplicates = f", duplicates so far: {self.tally.duplicates:,}" if self.tally.duplicates else ""
        made = f"{updates:,} update{'s' * (updates != 1)} made version {self._version():,}"
        self.note("round", None, f"{made}{duplicates}")

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

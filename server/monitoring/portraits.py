"""What the server knows of its devices, as far as it may be a sign of something wrong.

It keeps no more than a portrait needs and nobody else has: of each device what it told a while ago.
"""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from statistics import median

from edgeflock.server.findings import AgreementAverages, Portrait
from edgeflock.server.monitoring.federated import own_accuracy, own_evaluation
from edgeflock.server.roster import Device
from edgeflock.shared.protocol.messages import Facts

_MINUTES = 120.0
"""Seconds that samples are counted over, and"""
_TEN_MINUTES = 600.0
"""those that sessions are."""


class RecentGrowth:
    """How much a count has grown of late."""

    def __init__(self, seconds: float, known: Iterable[int] = ()) -> None:
        """`known` is what it was long ago, if anybody knows."""
        self._seconds = seconds
        self._counts = deque((0.0, count) for count in known)
        """(time, count)."""

    def add(self, now: float, count: int) -> None:
        """As it is now. One that is lower than before is another count, of a process that has begun anew."""
        if self._counts and count < self._counts[-1][1]:
            self._counts.clear()
        if not self._counts or count > self._counts[-1][1]:
            self._counts.append((now, count))

    def grown(self, now: float) -> int:
        """By so much within the last seconds; what there was at first may be of long ago."""
        counts = self._counts
        while len(counts) > 1 and counts[1][0] < now - self._seconds:
            counts.popleft()
        return counts[-1][1] - counts[0][1] if counts else 0

    @property
    def count(self) -> int:
        return self._counts[-1][1] if self._counts else 0


@dataclass(slots=True)
class _Memory:
    """Of a device."""

    facts: Facts | None = None
    """What it said last."""
    clock: float | None = None
    """Seconds that its clock was ahead then."""
    accuracy: float | None = None
    """Of its own evaluation, which were so many by now:"""
    evaluations: int = 0
    samples: dict[str, RecentGrowth] = field(default_factory=dict)
    """What became of the samples of its stream, by the facts' names."""
    ended: RecentGrowth = field(default_factory=lambda: RecentGrowth(_TEN_MINUTES, [0]))
    """Sessions."""


class Portraits:
    """Of the devices of a run."""

    def __init__(self, seen: Callable[[int], AgreementAverages | None]) -> None:
        """`seen` is what the updates of a device are like, by its number."""
        self._seen = seen
        self._memories: dict[str, _Memory] = {}

    def of(
        self,
        device: Device,
        now: float,
        clock: float,
        waits_until: float = 0.0,
        listens_since: float = 0.0,
    ) -> Portrait:
        """At the Unix time `now`, and `clock` by the monotonic one. By the latter a device that has sent no
        update may have had to wait for the server until `waits_until`, and the server has read what arrives
        since `listens_since`: its own pauses are no silence of a device.
        """
        connection, done = device.connection, device.statistics
        memory, heard = self._remember(device, now), connection.last_heard
        if heard:
            heard = max(heard, listens_since, 0.0 if done.last_update else waits_until)
        facts = done.telemetry
        waiting, temperature, step = (facts.get(name) for name in ("waiting", "temperature", "step"))
        recent = {name: one.grown(now) for name, one in memory.samples.items()}
        unwritten, drops = recent.get("unwritten", 0), memory.samples.get("drops")
        return Portrait(
            name=device.name,
            here=device.present,
            silent=clock - heard if heard else 0.0,
            idle=device.is_idle(clock),
            starved=isinstance(waiting, int | float) and waiting > 0,
            why_left=connection.why_left,
            seen=self._seen(device.id),
            lag=done.lag,
            step=step if isinstance(step, int | float) and step > 0 else None,
            interval=done.interval,
            left=memory.ended.grown(now),
            refused=done.refused,
            refusing=done.refusing,
            dropped=max(0, recent.get("drops", 0) - unwritten),
            drops=drops.count if drops is not None else 0,
            unwritten=unwritten,
            spool_fails=bool(facts.get("spool_fails")),
            unfit=recent.get("quarantined", 0),
            came=recent.get("came", 0),
            temperature=temperature if isinstance(temperature, int | float) else None,
            throttled=bool(facts.get("throttled")),
            undervoltage=bool(facts.get("undervoltage")),
            held_out=_whole(facts.get("held_out")) or 0,
            clock=memory.clock,
            accuracy=memory.accuracy,
            evaluations=memory.evaluations,
        )

    def _remember(self, device: Device, now: float) -> _Memory:
        memory = self._memories.setdefault(device.name, _Memory())
        memory.ended.add(now, device.connection.ended)
        facts = device.statistics.telemetry
        if facts is not memory.facts:
            if (own := own_evaluation(facts)) != own_evaluation(memory.facts or {}):
                memory.accuracy, memory.evaluations = own_accuracy(own), memory.evaluations + 1
            memory.facts = facts
            clock = _whole(facts.get("clock"))
            memory.clock = None if clock is None else clock - device.connection.last_seen
            for name in ("came", "drops", "unwritten", "quarantined"):
                least = (
                    0 if name == "unwritten" and "drops" in facts else None
                )  # left out while there are none
                if (count := _whole(facts.get(name, least))) is not None:
                    memory.samples.setdefault(name, RecentGrowth(_MINUTES)).add(now, count)
        return memory


def usual_loss(devices: Iterable[Device]) -> float | None:
    """The median training loss of those that are there: one with wrong labels does not move it."""
    losses = [one.statistics.smoothed_loss for one in devices if one.present]
    known = [loss for loss in losses if loss is not None]
    return median(known) if known else None


def _whole(fact: object) -> int | None:
    return fact if type(fact) is int else None

"""Portraits of devices: the facts that may be a sign of something wrong.

The only state of its own is what each device reported some time ago.
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
"""Seconds over which samples are counted, and"""
_TEN_MINUTES = 600.0
"""over which sessions are."""


class RecentGrowth:
    """The recent growth of a count."""

    def __init__(self, seconds: float, known: Iterable[int] = ()) -> None:
        """`known` has the old value of the count, if it is known."""
        self._seconds = seconds
        self._counts = deque((0.0, count) for count in known)
        """(time, count)."""

    def add(self, now: float, count: int) -> None:
        """Add the present count. A lower one than before is a new count, of a process that has restarted."""
        if self._counts and count < self._counts[-1][1]:
            self._counts.clear()
        if not self._counts or count > self._counts[-1][1]:
            self._counts.append((now, count))

    def grown(self, now: float) -> int:
        """Return the growth within the window. The first value may be older."""
        counts = self._counts
        while len(counts) > 1 and counts[1][0] < now - self._seconds:
            counts.popleft()
        return counts[-1][1] - counts[0][1] if counts else 0

    @property
    def count(self) -> int:
        return self._counts[-1][1] if self._counts else 0


@dataclass(slots=True)
class _Memory:
    """The memory of one device."""

    facts: Facts | None = None
    """Its last telemetry."""
    clock: float | None = None
    """Seconds that its clock was ahead at that time."""
    accuracy: float | None = None
    """The accuracy of its last own evaluation, and their number:"""
    evaluations: int = 0
    samples: dict[str, RecentGrowth] = field(default_factory=dict)
    """Counts of its stream's samples, by the facts' names."""
    ended: RecentGrowth = field(default_factory=lambda: RecentGrowth(_TEN_MINUTES, [0]))
    """Its ended sessions."""


class Portraits:
    """The portraits of a run's devices."""

    def __init__(self, seen: Callable[[int], AgreementAverages | None]) -> None:
        """`seen` returns the averages over a device's updates, by its number."""
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
        """Return the portrait at the Unix time `now`, and the monotonic time `clock`. The other times are
        monotonic too. A device without an update may have had to wait until `waits_until`. The server has
        read messages since `listens_since`: its own pauses do not count as silence of a device.
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
    """Return the median training loss of the connected devices: one with wrong labels does not move it."""
    losses = [one.statistics.smoothed_loss for one in devices if one.present]
    known = [loss for loss in losses if loss is not None]
    return median(known) if known else None


def _whole(fact: object) -> int | None:
    return fact if type(fact) is int else None

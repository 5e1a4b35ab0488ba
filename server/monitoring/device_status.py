"""The status of each device: the facts that may be a sign of something wrong.

The only state of its own is what each device reported some time ago.
"""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from statistics import median

from edgeflock.server.evaluation.federated import own_accuracy, own_evaluation
from edgeflock.server.findings import AgreementAverages, DeviceStatus
from edgeflock.server.roster import Device
from edgeflock.shared.protocol.messages import Facts

_SAMPLE_SECONDS = 120.0
"""Seconds over which samples are counted, and"""
_SESSION_SECONDS = 600.0
"""over which sessions are."""


class RecentGrowth:
    def __init__(self, seconds: float, initial: Iterable[int] = ()) -> None:
        """`initial` has the old value of the count, if it is known."""
        self._seconds = seconds
        self._counts = deque((0.0, count) for count in initial)
        """(time, count)."""

    def add(self, now: float, count: int) -> None:
        """Add the present count. A lower one than before is a new count, of a process that has restarted."""
        if self._counts and count < self._counts[-1][1]:
            self._counts.clear()
        if not self._counts or count > self._counts[-1][1]:
            self._counts.append((now, count))

    def growth(self, now: float) -> int:
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
    facts: Facts | None = None
    """Its last telemetry."""
    clock: float | None = None
    """Seconds that its clock was ahead at that time."""
    accuracy: float | None = None
    """The accuracy of its last own evaluation, and their number:"""
    evaluations: int = 0
    samples: dict[str, RecentGrowth] = field(default_factory=dict)
    """Counts of its stream's samples, by the facts' names."""
    ended: RecentGrowth = field(default_factory=lambda: RecentGrowth(_SESSION_SECONDS, [0]))
    """Its ended sessions."""


class DeviceStatuses:
    """Returns the status of a run's devices."""

    def __init__(self, averages: Callable[[int], AgreementAverages | None]) -> None:
        """`averages` returns the averages over a device's updates, by its number."""
        self._averages = averages
        self._memories: dict[str, _Memory] = {}

    def status(
        self,
        device: Device,
        now: float,
        clock: float,
        waiting_until: float = 0.0,
        listening_since: float = 0.0,
    ) -> DeviceStatus:
        """Return the status at the Unix time `now`, and the monotonic time `clock`.

        The other times are monotonic too. A device without an update may have had to wait until
        `waiting_until`. The server has read messages since `listening_since`: its own pauses do not count as
        silence of a device.
        """
        connection, done = device.connection, device.statistics
        memory, last_heard = self._remember(device, now), connection.last_heard
        if last_heard:
            last_heard = max(last_heard, listening_since, 0.0 if done.last_update else waiting_until)
        facts = done.telemetry
        waiting, temperature, step = (facts.get(name) for name in ("waiting", "temperature", "step"))
        recent = {name: one.growth(now) for name, one in memory.samples.items()}
        unwritten, drops = recent.get("unwritten", 0), memory.samples.get("drops")
        return DeviceStatus(
            name=device.name,
            present=device.present,
            silent_seconds=clock - last_heard if last_heard else 0.0,
            browser=device.facts.get("class") == "browser",
            idle=device.is_idle(clock),
            starved=isinstance(waiting, int | float) and waiting > 0,
            leave_reason=connection.leave_reason,
            averages=self._averages(device.id),
            lag=done.lag,
            step=step if isinstance(step, int | float) and step > 0 else None,
            interval=done.interval,
            departures=memory.ended.growth(now),
            refused_updates=done.refused,
            refused_share=done.refusal_rate,
            recent_drops=max(0, recent.get("drops", 0) - unwritten),
            total_drops=drops.count if drops is not None else 0,
            unwritten_samples=unwritten,
            spool_fails=bool(facts.get("spool_fails")),
            unfit_samples=recent.get("quarantined", 0),
            samples=recent.get("came", 0),
            temperature=temperature if isinstance(temperature, int | float) else None,
            throttled=bool(facts.get("throttled")),
            undervoltage=bool(facts.get("undervoltage")),
            held_out_rows=_integer(facts.get("held_out")) or 0,
            clock_error=memory.clock,
            accuracy=memory.accuracy,
            evaluations=memory.evaluations,
        )

    def _remember(self, device: Device, now: float) -> _Memory:
        memory = self._memories.setdefault(device.name, _Memory())
        memory.ended.add(now, device.connection.early_ends)
        facts = device.statistics.telemetry
        if facts is not memory.facts:
            if (own := own_evaluation(facts)) != own_evaluation(memory.facts or {}):
                memory.accuracy, memory.evaluations = own_accuracy(own), memory.evaluations + 1
            memory.facts = facts
            clock = _integer(facts.get("clock"))
            memory.clock = None if clock is None else clock - device.connection.last_seen
            for name in ("came", "drops", "unwritten", "quarantined"):
                # A device leaves the count out while it is 0.
                default = 0 if name == "unwritten" and "drops" in facts else None
                if (count := _integer(facts.get(name, default))) is not None:
                    memory.samples.setdefault(name, RecentGrowth(_SAMPLE_SECONDS)).add(now, count)
        return memory


def usual_loss(devices: Iterable[Device]) -> float | None:
    """Return the median training loss of the connected devices: one with wrong labels does not move it."""
    losses = [one.statistics.smoothed_loss for one in devices if one.present]
    known = [loss for loss in losses if loss is not None]
    return median(known) if known else None


def _integer(fact: object) -> int | None:
    return fact if type(fact) is int else None

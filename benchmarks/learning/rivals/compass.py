"""FedCompass: clients get as many steps as let them arrive in groups."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import ClassVar

import numpy as np

from benchmarks.learning.rivals.channel import Vector
from benchmarks.learning.rivals.federation import Federation


@dataclass(frozen=True, slots=True)
class Change:
    """What a client has come to, from which version."""

    number: int
    version: int
    values: Vector


@dataclass(eq=False, slots=True)
class Group:
    """Clients that are to arrive together."""

    due: float
    """When its members are expected, in seconds."""
    latest: float
    """When it is closed."""
    members: set[int] = field(default_factory=set)
    """Those that still train."""
    arrived: list[Change] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Training:
    """What a client does now. The first time it has no group."""

    steps: int
    began: float
    version: int
    start: Vector
    group: Group | None


class Scheduler:
    """Gives each client a group and a number of steps, by its pace: seconds a step."""

    def __init__(self, least: int, most: int, late: float) -> None:
        self._least, self._most, self._late = least, most, late
        self.groups: list[Group] = []
        self.pace: dict[int, float] = {}

    def measure(self, number: int, seconds: float, steps: int) -> None:
        """Take a client's last time as its pace."""
        self.pace[number] = seconds / steps

    def assign(self, number: int, now: float) -> tuple[Group, int]:
        """Return a client's next group and its steps: of the groups that fit, the one with most steps.

        If none fits, a new one.
        """
        pace = self.pace[number]
        fitting = [(self._steps(one.due - now, pace), one) for one in self.groups]
        fitting = [(steps, one) for steps, one in fitting if self._least <= steps <= self._most]
        if fitting:
            steps, group = max(fitting, key=lambda each: each[0])
        else:
            steps = self._first_steps(pace, now)
            group = Group(now + steps * pace, now + self._late * steps * pace)
            self.groups.append(group)
        group.members.add(number)
        return group, steps

    def _first_steps(self, pace: float, now: float) -> int:
        """Steps of who begins a group: so many that the fastest of another group can join after its own."""
        counts = [
            self._steps(
                one.latest + self._most * min(self.pace[each] for each in _clients(one)) - now,
                pace,
            )
            for one in self.groups
            if now < one.latest and _clients(one)
        ]
        return max(
            (max(count, self._least) for count in counts if 0 <= count <= self._most), default=self._most
        )

    @staticmethod
    def _steps(seconds: float, pace: float) -> int:
        return math.floor(seconds / pace + 1e-9)


def _clients(group: Group) -> list[int]:
    return [*group.members, *(change.number for change in group.arrived)]


@dataclass(frozen=True, slots=True)
class FedCompass:
    """theta <- theta + sum_k p_k a / sqrt(1 + staleness_k) change_k, over a group that arrives together.

    p_k is n_k / n. Who comes after its group has closed goes with the next group. Z. Li et al., "FedCompass:
    efficient cross-silo federated learning on heterogeneous client devices using a computing power-aware
    scheduler", ICLR 2024. The rule is that of its authors' scheduler in APPFL, whose default is a = 0.9. Ours
    are lambda, the staleness of FedAsync, and that a client's last time alone is its pace.
    """

    rate: float
    least: int = 20
    """Q_min, steps."""
    most: int = 100
    """Q_max, steps; all begin with as many."""
    late: float = 1.2
    """lambda: a group is closed when so many times its own time has passed."""
    mixing: float = 0.9
    values: str = "f32"
    central: ClassVar[bool] = False

    def models(self, federation: Federation) -> Iterator[Vector]:
        """Yield theta after each group, and after each of the first changes."""
        return _Run(self, federation).models()


class _Run:
    """A run of FedCompass: a queue of clients that end, and of groups that close, by virtual time."""

    def __init__(self, how: FedCompass, federation: Federation) -> None:
        self._how, self._federation = how, federation
        self._scheduler = Scheduler(how.least, how.most, how.late)
        self._theta, self._version = federation.theta, 0
        self._rate = np.float32(how.rate)
        self._samples = sum(client.share for client in federation.clients)
        self._training: dict[int, Training] = {}
        self._missed: list[Change] = []
        self._events: list[tuple[float, int, int | Group]] = []
        self._count = 0

    def models(self) -> Iterator[Vector]:
        for number in range(len(self._federation.clients)):
            self._begin(number, self._how.most, None)
        while True:
            self._federation.seconds, _, event = heappop(self._events)
            if isinstance(event, Group):
                group = event
            else:
                done, change = self._end(event)
                if done.group is None:
                    self._apply([change])
                    yield self._theta
                    self._follow(event)
                    continue
                group = done.group
                group.members.discard(event)
                if group not in self._scheduler.groups:
                    self._missed.append(change)
                    self._follow(event)
                    continue
                group.arrived.append(change)
                if group.members:
                    continue
            if group in self._scheduler.groups:
                self._scheduler.groups.remove(group)
                if group.arrived:
                    self._apply([*self._missed, *group.arrived])
                    self._missed = []
                    yield self._theta
                    following = [change.number for change in group.arrived]
                    for number in sorted(following, key=self._scheduler.pace.__getitem__):
                        self._follow(number)

    def _begin(self, number: int, steps: int, group: Group | None) -> None:
        now, start = (
            self._federation.seconds,
            self._federation.channel.down(number, self._version, self._theta),
        )
        self._training[number] = Training(steps, now, self._version, start, group)
        self._push(now + self._federation.clients[number].seconds(steps), number)

    def _end(self, number: int) -> tuple[Training, Change]:
        done, client = self._training.pop(number), self._federation.clients[number]
        self._scheduler.measure(number, self._federation.seconds - done.began, done.steps)
        end = client.descend(done.start, done.steps, self._move)
        self._federation.draw_crash(number, done.steps)
        arrived = self._federation.channel.up(done.version, end - done.start, *client.reported(done.steps))
        return done, Change(number, done.version, arrived)

    def _follow(self, number: int) -> None:
        if number in self._federation.crashed:
            return
        known = len(self._scheduler.groups)
        group, steps = self._scheduler.assign(number, self._federation.seconds)
        if len(self._scheduler.groups) > known:
            self._push(group.latest, group)
        self._begin(number, steps, group)

    def _apply(self, changes: list[Change]) -> None:
        theta = self._theta.copy()
        for change in changes:
            share = self._federation.clients[change.number].share / self._samples
            weight = self._how.mixing * share / math.sqrt(1 + self._version - change.version)
            theta += np.float32(weight) * change.values
        self._theta = theta
        self._version += 1

    def _move(self, theta: Vector, gradient: Vector) -> None:
        theta -= self._rate * gradient

    def _push(self, second: float, event: int | Group) -> None:
        heappush(self._events, (second, self._count, event))
        self._count += 1

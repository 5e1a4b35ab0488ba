"""The coordinator interface: it decides when admitted updates apply.

A coordinator receives events in order and with the time, and returns the updates that apply now. Admission,
journal, receipts and sockets are the same for all coordinators. They do not depend on the mode:

    offer          an update was admitted         -> the update applies now, or is held
    add_device     a device takes part from now on
    remove_device  a device no longer takes part
    tick           a batch of updates was offered, or `due` has passed
                                                  -> held updates apply, or stay held

Held updates are in memory only. A device whose update is held has no receipt, and sends it again if needed.

    async      each update applies at once and makes its own version (asynchronous.py)
    buffer     as async; each is journaled and answered at once, and several make a step (descent)
    elastic    as async; updates are differences to the model, not gradients
    rounds     all updates that were computed from the same version apply together (rounds.py)
    cohort     as rounds, of a few devices at a time (cohort.py)
    private    as cohort; the one update of a round is the sum of the devices' gradients (sessions/sums.py)
    tasks      as rounds, with the first update of each data shard (tasks.py)
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, Protocol, TypeVar

from edgeflock.server.coordination.cohort import Cohort
from edgeflock.server.descent import Gathered, Index, Step
from edgeflock.shared.protocol.frames import TaskRoundStatus
from edgeflock.shared.protocol.messages import Update

Key = TypeVar("Key")


@dataclass(frozen=True, slots=True, eq=False)
class Push:
    """One update as it arrived: its device, its time (Unix seconds), the record and its bytes.

    An update that is sent twice makes two pushes.
    """

    device: int
    time: float
    update: Update
    frame: bytes
    summed: tuple[int, ...] = ()
    """The devices whose sum it is, if it is a secure sum; empty: it is the device's own."""


class Apply(NamedTuple):
    """Updates that apply now. Each makes a version, in this order."""

    updates: tuple[tuple[Push, Index], ...]
    """Each update with the parameters that it touches."""
    change: Step | Gathered
    """The combined change of the updates."""


@dataclass(slots=True)
class OpenRound(Generic[Key]):
    """A round that gathers updates, which apply together."""

    due: float
    """When the round ends in any case."""
    gathered: Gathered
    pushes: dict[Key, Push] = field(default_factory=dict)
    """The updates, in order of arrival."""
    touched: list[Index] = field(default_factory=list)
    """The parameters that each update touches, in the same order."""

    def add(self, key: Key, push: Push, step: Step) -> None:
        self.gathered.add(step)
        self.pushes[key] = push
        self.touched.append(step.indices)

    def end(self) -> Apply:
        """Return the updates, which apply now."""
        return Apply(tuple(zip(self.pushes.values(), self.touched, strict=True)), self.gathered)


class Tasks(Protocol):
    """Additional methods of a coordinator that assigns tasks to devices."""

    def set_shards(self, device: int, shards: Sequence[str]) -> None:
        """Set the data shards that the device holds from now on."""

    def assign(self, device: int, now: float) -> int | None:
        """Return the data shard that the device computes next, as a position in the shards that it holds.

        None: no task now.
        """

    def status(self) -> TaskRoundStatus:
        """Return the status of the open round. May be called at any time, also during other calls."""


class Coordinator(Protocol):
    """Decides when updates apply. Times are seconds of any one clock. No I/O, no clock, no randomness."""

    @property
    def held_updates(self) -> Mapping[int, Push]:
        """Device -> its update that is held."""

    @property
    def tasks(self) -> Tasks | None:
        """The task methods; None if this coordinator assigns no tasks."""

    @property
    def turns(self) -> Cohort | None:
        """The devices of the open round: only they are sent the model. None: all devices take part.

        May be read at any time.
        """

    def find_held(self, push: Push) -> Push | None:
        """Return the held update that `push` repeats, if any. Raises BadSequence if the device must wait."""

    @property
    def round_sum(self) -> Gathered | None:
        """The sum that the next step would be added to, if any."""

    @property
    def due(self) -> float | None:
        """When `tick` must be called even if no update arrives; None: never."""

    def offer(self, push: Push, step: Step, now: float) -> Apply | None:
        """Take an admitted update that is not held yet.

        Return None if it is held now. Raises Refused if it cannot count.
        """

    def add_device(self, device: int) -> None:
        """A device takes part from now on. Idempotent."""

    def remove_device(self, device: int) -> None:
        """A device no longer takes part. Its contributions count. Idempotent."""

    def discard(self) -> list[Push]:
        """Discard the held updates and return them. They do not apply."""

    def tick(self, now: float) -> Apply | None:
        """Return the held updates that apply at `now`; None if none do."""

"""Rounds (synchronous SGD): all updates that were computed from the same version apply together.

A round opens with its first update. It ends when all participants have contributed, at a quorum, or at a
deadline. The participants are all present devices, or a cohort of them (cohort.py). A late device starts
again from the version that the round made.
"""

from collections.abc import Mapping, Set
from dataclasses import dataclass

from edgeflock.server.coordination.cohort import Cohort
from edgeflock.server.coordination.coordinator import Apply, OpenRound, Push
from edgeflock.server.descent import MEAN, Gathered, Step
from edgeflock.shared.errors import BadSequence, BaseExpired
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.settings.coordination import CoordinationSettings

_PATIENCE = 10
"""How many deadlines the server waits for a cohort that sends nothing. Many, as devices may be slow."""


@dataclass(frozen=True, slots=True)
class RoundEnd:
    """When a round ends."""

    quorum: int
    """How many updates are enough; 0: one from each participant."""
    deadline: float
    """Seconds from a round's first update to its end in any case."""

    def is_enough(self, contributed: Set[int], expected: Set[int]) -> bool:
        """Whether a round with updates from `contributed` may end."""
        return len(contributed) >= self.quorum if self.quorum else expected <= contributed


class Rounds:
    """The coordinator of rounds mode."""

    tasks = None

    def __init__(
        self,
        ending: RoundEnd,
        layout: Layout,
        aggregate: str = MEAN,
        cohort: Cohort | None = None,
        *,
        is_summed: bool = False,
    ) -> None:
        """`aggregate` names the function that combines updates (descent/aggregates.py).

        `cohort` selects the participants; None: all devices take part. `is_summed`: their sum comes as one
        update, which is of none of them.
        """
        self._ending = ending
        self._layout = layout
        self._aggregate = aggregate
        self._present: set[int] = set()
        self._open: OpenRound[int] | None = None
        self._cohort = cohort
        self._is_summed = is_summed
        self._wait_start: float | None = None
        """When the wait for the cohort's first update began; None: there is no such wait."""

    @classmethod
    def from_settings(cls, settings: CoordinationSettings, layout: Layout) -> "Rounds":
        traits = settings.traits
        ending = RoundEnd(1 if traits.private else settings.quorum, settings.deadline)
        return cls(
            ending, layout, settings.aggregate, Cohort.from_settings(settings), is_summed=traits.private
        )

    @property
    def turns(self) -> Cohort | None:
        return self._cohort

    @property
    def held_updates(self) -> Mapping[int, Push]:
        return self._open.pushes if self._open is not None else {}

    @property
    def round_sum(self) -> Gathered | None:
        return None if self._open is None else self._open.gathered

    @property
    def due(self) -> float | None:
        if self._open is not None:
            return self._open.due
        return None if self._wait_start is None else self._wait_start + _PATIENCE * self._ending.deadline

    def offer(self, push: Push, step: Step, now: float) -> Apply | None:
        """Gather an update. Only `tick` ends the round, so that all updates of a batch are in it.

        Raises BaseExpired if the device is not in the cohort. Otherwise a few devices that contribute to
        every round could outvote the cohort.
        """
        if self._cohort is not None and not self._is_summed and not self._cohort.may_contribute(push.device):
            raise BaseExpired("other devices take part in this round; pull again and wait for the answer")
        if self._open is None:
            self._wait_start = None
            self._open = OpenRound(now + self._ending.deadline, Gathered(self._layout, self._aggregate))
        self._open.add(push.device, push, step)
        return None

    def find_held(self, push: Push) -> Push | None:
        held = self.held_updates.get(push.device)
        if held is not None and push.update.sequence != held.update.sequence:
            raise BadSequence(
                f"sequence {held.update.sequence} waits for the end of its round; wait for its receipt"
            )
        return held

    def add_device(self, device: int) -> None:
        self._present.add(device)
        if self._cohort is not None:
            self._cohort.add_device(device)

    def remove_device(self, device: int) -> None:
        """A device that has contributed keeps its seat until the round ends.

        A replacement would make the round longer and add one more update.
        """
        self._present.discard(device)
        if self._cohort is not None and device not in self.held_updates:
            self._cohort.remove_device(device)

    def discard(self) -> list[Push]:
        pushes = self.held_updates
        self._open = None
        self._remove_absent(pushes)
        return list(pushes.values())

    def tick(self, now: float) -> Apply | None:
        ended, cohort = self._open, self._cohort
        if ended is None:
            self._check_silence(now)
            return None
        expected = self._present if cohort is None else cohort.members
        if now < ended.due and not self._ending.is_enough(ended.pushes.keys(), expected):
            return None
        self._open = None
        if cohort is not None:
            cohort.end_round(cohort.members - ended.pushes.keys() if now >= ended.due else ())
            self._remove_absent(ended.pushes)
            self._check_silence(now)  # no other event may ever follow
        return ended.end()

    def _remove_absent(self, pushes: Mapping[int, Push]) -> None:
        """Remove from the cohort the contributors that left during the round."""
        if self._cohort is not None:
            for device in pushes.keys() - self._present:
                self._cohort.remove_device(device)

    def _check_silence(self, now: float) -> None:
        """Shorten all turns, as at the end of a round, if the cohort sends nothing for too long."""
        if (cohort := self._cohort) is None or not cohort.members:
            self._wait_start = None
        elif self._wait_start is None:
            self._wait_start = now
        elif now >= self._wait_start + _PATIENCE * self._ending.deadline:
            self._wait_start = now
            cohort.shorten_turns()

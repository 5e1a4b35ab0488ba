"""Asynchronous mode: each update applies at once and makes its own version.

With a cohort, only a few devices train at any time, so that an update is less stale. Each gives its seat to
the next after some updates. All updates count, also those of devices without a seat.
"""

from collections.abc import Mapping
from types import MappingProxyType

from edgeflock.server.coordination.cohort import Cohort
from edgeflock.server.coordination.coordinator import Apply, Push
from edgeflock.server.descent import Step
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.settings.coordination import CoordinationSettings

_NONE: Mapping[int, Push] = MappingProxyType({})


class Asynchronous:
    """The coordinator of asynchronous mode. It holds no updates."""

    held_updates = _NONE
    round_sum = None
    tasks = None

    def __init__(self, cohort: Cohort | None = None, deadline: float = 0.0) -> None:
        """`cohort` are the devices that train at a time; None: all.

        One that sends nothing for `deadline` seconds loses its seat, if others wait.
        """
        self.turns = cohort
        self._deadline = deadline
        self._last_updates: dict[int, float] = {}
        """Device with a seat -> the time of its last update, or when it was first seen with the seat."""

    @classmethod
    def from_settings(cls, settings: CoordinationSettings, layout: Layout) -> "Asynchronous":
        return cls(Cohort.from_settings(settings), settings.deadline)

    @property
    def due(self) -> float | None:
        if self.turns is None or not self.turns.waiting or not self._last_updates:
            return None
        return min(self._last_updates.values()) + self._deadline

    def offer(self, push: Push, step: Step, now: float) -> Apply | None:
        if self.turns is not None:
            self._last_updates[push.device] = now
            self.turns.shorten_turns((push.device,))
        return Apply(((push, step.indices),), step)

    def find_held(self, push: Push) -> Push | None:
        return None

    def add_device(self, device: int) -> None:
        if self.turns is not None:
            self.turns.add_device(device)

    def remove_device(self, device: int) -> None:
        if self.turns is not None:
            self.turns.remove_device(device)
            self._last_updates.pop(device, None)

    def discard(self) -> list[Push]:
        return []

    def tick(self, now: float) -> Apply | None:
        """Let devices that send nothing lose their seats. There is never anything to apply."""
        if self.turns is None:
            return None
        self._follow(self.turns, now)
        if self.turns.waiting:
            late = [one for one, last in self._last_updates.items() if now >= last + self._deadline]
            self.turns.miss_turns(late)
            for device in late:  # some may have a seat again at once
                del self._last_updates[device]
            self._follow(self.turns, now)
        return None

    def _follow(self, cohort: Cohort, now: float) -> None:
        """Keep the times of the devices with a seat. For a new one the time begins now."""
        self._last_updates = {one: self._last_updates.get(one, now) for one in cohort.members}

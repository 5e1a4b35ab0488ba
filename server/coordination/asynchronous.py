"""Asynchronous mode: each update applies at once and makes its own version. No device waits for another."""

from collections.abc import Mapping
from types import MappingProxyType

from edgeflock.server.coordination.coordinator import Apply, Push
from edgeflock.server.descent import Step
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.settings.coordination import CoordinationSettings

_NONE: Mapping[int, Push] = MappingProxyType({})


class Asynchronous:
    """The coordinator of asynchronous mode. It holds no updates."""

    held_updates = _NONE
    round_sum = None
    due = None
    tasks = None
    turns = None

    @classmethod
    def from_settings(cls, settings: CoordinationSettings, layout: Layout) -> "Asynchronous":
        return cls()

    def offer(self, push: Push, step: Step, now: float) -> Apply | None:
        return Apply(((push, step.indices),), step)

    def find_held(self, push: Push) -> Push | None:
        return None

    def add_device(self, device: int) -> None:
        pass

    def remove_device(self, device: int) -> None:
        pass

    def discard(self) -> list[Push]:
        return []

    def tick(self, now: float) -> Apply | None:
        return None

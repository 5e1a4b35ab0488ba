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

    held = _NONE
    gathered = None
    due = None
    tasks = None
    turns = None

    @classmethod
    def of(cls, settings: CoordinationSettings, layout: Layout) -> "Asynchronous":
        return cls()

    def offer(self, push: Push, step: Step, now: float) -> Apply | None:
        return Apply(((push, step.indices),), step)

    def waiting(self, push: Push) -> Push | None:
        return None

    def arrived(self, device: int) -> None:
        pass

    def left(self, device: int) -> None:
        pass

    def give_up(self) -> list[Push]:
        return []

    def tick(self, now: float) -> Apply | None:
        return None

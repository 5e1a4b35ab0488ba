"""Whether a run takes updates, or why not, and its public state."""

from edgeflock.server.descent import Parameters
from edgeflock.server.engine.outcomes import Published
from edgeflock.shared.errors import RunComplete, RunDiverged


class RunLifecycle:
    """The lifecycle of one run. It takes updates until it has enough of them, is ended, or diverges."""

    def __init__(self, parameters: Parameters, updates: int, end_reason: str | None) -> None:
        """`updates` is the number that completes the run; 0: none. `end_reason`: why it has ended."""
        self._parameters = parameters
        self._updates = updates
        self._end_reason = end_reason
        self._diverged: str | None = None
        self.publish()

    def publish(self) -> None:
        """Publish the state in memory, which is durable now."""
        self.published = Published(
            self._parameters.version, self._parameters.regime.learning_rate, self.end_reason, self._diverged
        )

    @property
    def end_reason(self) -> str | None:
        """Why the run is complete, if it is."""
        if 0 < self._updates <= self._parameters.version:
            return f"it has its {self._updates} updates"
        return self._end_reason

    def is_open(self) -> bool:
        """Whether updates are taken."""
        return self.end_reason is None and self._diverged is None

    def check_open(self) -> None:
        """Raise RunComplete or RunDiverged if no updates are taken."""
        if (reason := self.end_reason) is not None:
            raise RunComplete(f"the run is over: {reason}")
        if self._diverged is not None:
            raise RunDiverged(self._diverged)

    def end(self, reason: str) -> None:
        self._end_reason = reason

    def mark_diverged(self, reason: str) -> None:
        """Take no more updates until `resume`; `reason` is for devices and people."""
        self._diverged = reason

    def resume(self) -> None:
        self._diverged = None

"""Whether a run takes updates, or why not, and its public state."""

from edgeflock.server.descent import Parameters
from edgeflock.server.engine.outcomes import Published
from edgeflock.shared.errors import RunComplete, RunDiverged


class RunLifecycle:
    """The lifecycle of one run. It goes on until it has its updates, is ended, or diverges."""

    def __init__(self, parameters: Parameters, updates: int, over: str | None) -> None:
        """`updates` complete the run; 0: never. `over` is the reason if it has already ended."""
        self._parameters = parameters
        self._updates = updates
        self._over = over
        self._diverged: str | None = None
        self.publish()

    def publish(self) -> None:
        """Publish the state in memory, which is durable now."""
        self.published = Published(
            self._parameters.version, self._parameters.regime.learning_rate, self.over, self._diverged
        )

    @property
    def over(self) -> str | None:
        """Why the run is complete, if it is."""
        if 0 < self._updates <= self._parameters.version:
            return f"it has its {self._updates} updates"
        return self._over

    def is_open(self) -> bool:
        """Whether updates are taken."""
        return self.over is None and self._diverged is None

    def check_open(self) -> None:
        """Raise RunComplete or RunDiverged if no updates are taken."""
        if (why := self.over) is not None:
            raise RunComplete(f"the run is over: {why}")
        if self._diverged is not None:
            raise RunDiverged(self._diverged)

    def end(self, why: str) -> None:
        self._over = why

    def diverge(self, why: str) -> None:
        """Take no more updates until `go_on`; `why` is for devices and people."""
        self._diverged = why

    def go_on(self) -> None:
        self._diverged = None

"""When the journal gets a version whole, so that a restart replays nothing before it."""

from edgeflock.server.descent import Parameters
from edgeflock.server.engine.log import Log


class Snapshots:
    """Of one run."""

    def __init__(self, log: Log, parameters: Parameters, every: int, *, keep_updates: bool) -> None:
        """One at least `every` so many versions; unless `keep_updates`, each lets go of what it makes
        superfluous.
        """
        self._log, self._parameters = log, parameters
        self._every, self._keep_updates = every, keep_updates
        self.begin_again()

    def begin_again(self) -> None:
        """The present version is in the journal whole."""
        self._next = self._parameters.version + self._every

    def take_if_due(self) -> None:
        if self._parameters.version >= self._next:
            self.take()

    def take(self) -> None:
        """Of the present version; durable with the log's next commit."""
        parameters, version = self._parameters, self._parameters.version
        self.begin_again()
        self._log.add_snapshot(version, parameters.theta, parameters.average, parameters.packed_memory())
        if not self._keep_updates:
            self._log.forget_frames(version - parameters.regime.window)

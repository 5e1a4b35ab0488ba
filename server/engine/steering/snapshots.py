"""Snapshots in the journal. A restart replays only the updates after the last one."""

from edgeflock.server.descent import Parameters
from edgeflock.server.engine.log import Log


class Snapshots:
    """The snapshots of one run."""

    def __init__(self, log: Log, parameters: Parameters, every: int, *, keep_updates: bool) -> None:
        """A snapshot is due each `every` versions.

        Unless `keep_updates`, it drops the records, but not the facts, of updates before the window.
        """
        self._log, self._parameters = log, parameters
        self._every, self._keep_updates = every, keep_updates
        self.restart_interval()

    def restart_interval(self) -> None:
        """Start a new interval: the journal has a snapshot of the present version."""
        self._next = self._parameters.version + self._every

    def take_if_due(self) -> None:
        if self._parameters.version >= self._next:
            self.take()

    def take(self) -> None:
        """Write a snapshot of the present version. It is durable with the log's next commit."""
        parameters, version = self._parameters, self._parameters.version
        self.restart_interval()
        self._log.add_snapshot(version, parameters.theta, parameters.average, parameters.packed_memory())
        if not self._keep_updates:
            self._log.drop_frames(version - parameters.regime.window)

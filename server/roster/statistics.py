"""What a device has done, as its updates tell."""

from dataclasses import dataclass, field

from edgeflock.server.roster.history import History
from edgeflock.shared.codecs import sparse
from edgeflock.shared.protocol.messages import Facts, Update

_FOLLOW = 0.2
"""How fast the usual interval between updates follows the last one."""

_SILENT = 3.0
"""A device is idle after so many times its usual interval,"""

_LEAST_SILENCE, _UNKNOWN_INTERVAL = 3.0, 10.0
"""but not before so many seconds; and what counts as its interval before it has one."""


@dataclass(slots=True)
class Statistics:
    """Of one device."""

    updates: int = 0
    """Accepted since the run began. All that follows: since the server started."""
    sequence: int | None = None
    """The last update that is counted here, a resent one is not counted again; None: not greeted yet."""
    compressed: int = 0
    """Updates that held a selection of the gradient, and"""
    uncompressed: int = 0
    """those that held all of it."""
    refused: int = 0
    duplicates: int = 0
    """Updates of tasks that another device had computed before."""
    staleness: int = 0
    """tau of the last one."""
    loss: float = 0.0
    samples: int = 0
    batch: int = 0
    """Samples of the last update."""
    interval: float = 0.0
    """Seconds between its updates, of late; 0 until there were two."""
    last_update: float = 0.0
    """Unix time."""
    _last_heard: float = 0.0
    """The same by the monotonic clock."""
    shared: int = 0
    """Samples that it shared, and"""
    received: int = 0
    """samples of others that were sent to it."""
    telemetry: Facts = field(default_factory=dict)
    """What its updates told last."""
    history: History | None = None

    def count(self, update: Update, staleness: int, now: float, heard: float, ingress: int) -> bool:
        """Take note of an update accepted at the Unix time `now`; False if it is counted already.

        `heard` is the same by the monotonic clock, `ingress` are the bytes that came from the device.
        """
        if update.sequence <= (self.sequence or 0):
            return False
        self.sequence = update.sequence
        self.updates += 1
        self.samples += update.samples
        self.batch = update.samples or self.batch
        self.loss = update.loss
        self.staleness = max(0, staleness)
        if update.index_mode == sparse.DENSE:
            self.uncompressed += 1
        else:
            self.compressed += 1
        if update.facts is not None:
            self.telemetry = update.facts
        if self.last_update:
            interval = heard - self._last_heard
            self.interval += (_FOLLOW if self.interval else 1.0) * (interval - self.interval)
        self.last_update, self._last_heard = now, heard
        if self.history is not None:
            self.history.add(now, update.loss, self.staleness, ingress)
        return True

    def is_long(self, silence: float) -> bool:
        """Whether a device that has been silent for so many seconds is so for much longer than usual."""
        return silence > max(_LEAST_SILENCE, _SILENT * (self.interval or _UNKNOWN_INTERVAL))

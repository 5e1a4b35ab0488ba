"""What a device has done, as its updates tell."""

import math
from dataclasses import dataclass, field
from statistics import median

from edgeflock.server.roster.history import History
from edgeflock.shared.codecs import sparse
from edgeflock.shared.protocol.messages import Facts, Update

_FOLLOW = 0.2
"""How fast the usual interval between updates follows the last one."""

_SILENT = 3.0
"""A device is idle after so many times its usual interval,"""

_RECENTLY = 0.1
"""How fast the averages of loss, staleness and refusals follow the last update."""

_FEW = 3
"""Updates whose staleness is remembered: their median knows nothing of one that waited while its device was
away."""

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
    refusing: float = 0.0
    """Part of the updates of late that were refused."""
    staleness: int = 0
    """tau of the last one, and"""
    lags: tuple[int, ...] = ()
    """of the last few."""
    loss: float = 0.0
    smoothed_loss: float | None = None
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
        self.refusing -= _RECENTLY * self.refusing
        self.lags = (*self.lags, self.staleness)[-_FEW:]
        if math.isfinite(update.loss):
            self.smoothed_loss = _followed(self.smoothed_loss, update.loss)
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

    @property
    def lag(self) -> float | None:
        """tau of the updates of late; None before there are some."""
        return median(self.lags) if len(self.lags) == _FEW else None

    def refuse(self) -> None:
        """One of its updates was refused."""
        self.refused += 1
        self.refusing += _RECENTLY * (1.0 - self.refusing)

    def is_long(self, silence: float) -> bool:
        """Whether a device that has been silent for so many seconds is so for much longer than usual."""
        return silence > max(_LEAST_SILENCE, _SILENT * (self.interval or _UNKNOWN_INTERVAL))


def _followed(before: float | None, now: float) -> float:
    return now if before is None else before + _RECENTLY * (now - before)

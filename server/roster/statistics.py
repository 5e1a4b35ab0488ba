"""Statistics of a device, from its updates."""

import math
from dataclasses import dataclass, field
from statistics import median

from edgeflock.server.roster.history import History
from edgeflock.shared.codecs import sparse
from edgeflock.shared.protocol.messages import Facts, Update

_FOLLOW = 0.2
"""The weight of the last interval in the usual interval between updates."""

_SILENT = 3.0
"""A device is idle after this many of its usual intervals."""

_RECENTLY = 0.1
"""The weight of the last update in the averages of loss and refusals."""

_FEW = 3
"""Updates whose staleness is kept. Their median ignores one that waited while its device was away.
"""

_LEAST_SILENCE, _UNKNOWN_INTERVAL = 3.0, 10.0
"""The least seconds of silence for idle, and the interval of a device that has none yet."""


@dataclass(slots=True)
class Statistics:
    """The statistics of one device."""

    updates: int = 0
    """Updates accepted since the run began. All other counts begin when the server starts."""
    sequence: int | None = None
    """The last update that is counted. A resent one is not counted again. None: no session yet."""
    compressed: int = 0
    """Updates with a selection of the gradient."""
    uncompressed: int = 0
    """Updates with the whole gradient."""
    refused: int = 0
    duplicates: int = 0
    """Updates of tasks that another device had computed before."""
    refusing: float = 0.0
    """The recent share of updates that were refused."""
    staleness: int = 0
    """tau of the last update."""
    lags: tuple[int, ...] = ()
    """tau of the last few updates."""
    loss: float = 0.0
    smoothed_loss: float | None = None
    samples: int = 0
    batch: int = 0
    """Samples of the last update."""
    interval: float = 0.0
    """Recent seconds between its updates; 0 until there are two."""
    last_update: float = 0.0
    """Unix time."""
    _last_heard: float = 0.0
    """Monotonic time of the last update."""
    shared: int = 0
    """Samples that it shared."""
    received: int = 0
    """Samples of others that were sent to it."""
    telemetry: Facts = field(default_factory=dict)
    """The facts of its last update or telemetry that had any."""
    history: History | None = None

    def count(self, update: Update, staleness: int, now: float, heard: float, ingress: int) -> bool:
        """Count an update accepted at the Unix time `now`. False if it is counted already.

        `heard` is the same moment by the monotonic clock; `ingress` is the bytes received from the device.
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
        """The median tau of the last updates. None before there are enough."""
        return median(self.lags) if len(self.lags) == _FEW else None

    def refuse(self) -> None:
        """Count a refused update."""
        self.refused += 1
        self.refusing += _RECENTLY * (1.0 - self.refusing)

    def is_long(self, silence: float) -> bool:
        """Whether this many seconds of silence are much longer than usual for the device."""
        return silence > max(_LEAST_SILENCE, _SILENT * (self.interval or _UNKNOWN_INTERVAL))


def _followed(before: float | None, now: float) -> float:
    return now if before is None else before + _RECENTLY * (now - before)

"""Statistics of a device, from its updates."""

import math
import struct
from dataclasses import dataclass, field
from statistics import median

from edgeflock.shared.codecs import sparse
from edgeflock.shared.protocol.frames import Point, finite_or_none
from edgeflock.shared.protocol.messages import Facts, Update

_POINT = struct.Struct("<dfIQ")
"""The fields: time, loss, staleness, bytes."""

LONG, SHORT = 200, 64
"""Points that are kept of each device, in a small fleet and in a large one."""

SMALL_FLEET, LARGE_FLEET = 1_000, 10_000
"""Numbers of devices. Larger fleets have no histories: 64 points of 10,000 devices take 15 MB."""


class History:
    """The newest points. `add` allocates no memory."""

    __slots__ = ("_added", "_points")

    def __init__(self, size: int) -> None:
        self._points = bytearray(size * _POINT.size)
        self._added = 0

    @classmethod
    def from_fleet_size(cls, devices: int) -> "History | None":
        """The history of one device in a fleet of that size. None: the fleet is too large."""
        if devices > LARGE_FLEET:
            return None
        return cls(LONG if devices <= SMALL_FLEET else SHORT)

    def add(self, time: float, loss: float, staleness: int, octets: int) -> None:
        """Add an update: Unix time, loss of the batch, tau, bytes received from the device until then."""
        offset = self._added * _POINT.size % len(self._points)
        try:
            _POINT.pack_into(self._points, offset, time, loss, min(staleness, 0xFFFFFFFF), octets)
        except OverflowError:  # a loss that no float32 holds
            _POINT.pack_into(self._points, offset, time, float("inf"), min(staleness, 0xFFFFFFFF), octets)
        self._added += 1

    def points(self) -> list[Point]:
        """The points, oldest first."""
        size = len(self._points) // _POINT.size
        points = []
        for number in range(max(0, self._added - size), self._added):
            time, loss, tau, octets = _POINT.unpack_from(self._points, number % size * _POINT.size)
            points.append(Point(time, finite_or_none(loss), tau, octets))
        return points


_INTERVAL_WEIGHT = 0.2
"""The weight of the last interval in the usual interval between updates."""

_IDLE_INTERVALS = 3.0
"""A device is idle after this many of its usual intervals."""

_RECENT_WEIGHT = 0.1
"""The weight of the last update in the averages of loss and refusals."""

_LAG_COUNT = 3
"""Updates whose staleness is kept. Their median ignores one that waited while its device was away.
"""

_MIN_SILENCE, _UNKNOWN_INTERVAL = 3.0, 10.0
"""The least seconds of silence for idle, and the interval of a device that has none yet."""


@dataclass(slots=True)
class Statistics:
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
    refusal_rate: float = 0.0
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

    def count(self, update: Update, staleness: int, now: float, monotonic: float, ingress: int) -> bool:
        """Count an update accepted at the Unix time `now`. False if it is counted already.

        `monotonic` is the same moment by the monotonic clock; `ingress` counts bytes from the device.
        """
        if update.sequence <= (self.sequence or 0):
            return False
        self.sequence = update.sequence
        self.updates += 1
        self.samples += update.samples
        self.batch = update.samples or self.batch
        self.loss = update.loss
        self.staleness = max(0, staleness)
        self.refusal_rate -= _RECENT_WEIGHT * self.refusal_rate
        self.lags = (*self.lags, self.staleness)[-_LAG_COUNT:]
        if math.isfinite(update.loss):
            self.smoothed_loss = _average(self.smoothed_loss, update.loss)
        if update.index_mode == sparse.DENSE:
            self.uncompressed += 1
        else:
            self.compressed += 1
        if update.facts is not None:
            self.telemetry = update.facts
        if self.last_update:
            interval = monotonic - self._last_heard
            self.interval += (_INTERVAL_WEIGHT if self.interval else 1.0) * (interval - self.interval)
        self.last_update, self._last_heard = now, monotonic
        if self.history is not None:
            self.history.add(now, update.loss, self.staleness, ingress)
        return True

    @property
    def lag(self) -> float | None:
        """The median tau of the last updates. None before there are enough."""
        return median(self.lags) if len(self.lags) == _LAG_COUNT else None

    def count_refusal(self) -> None:
        """Count a refused update."""
        self.refused += 1
        self.refusal_rate += _RECENT_WEIGHT * (1.0 - self.refusal_rate)

    def is_unusual(self, wait_for_silence: float) -> bool:
        """Whether this many seconds of silence are much longer than usual for the device."""
        return wait_for_silence > max(_MIN_SILENCE, _IDLE_INTERVALS * (self.interval or _UNKNOWN_INTERVAL))


def _average(average: float | None, now: float) -> float:
    return now if average is None else average + _RECENT_WEIGHT * (now - average)

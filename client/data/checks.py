"""Checks of samples, made when samples arrive and again when they are read back.

An unfit sample is set aside and counted by its fault (Skipped). The others pass.
"""

import math
from collections import deque
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgeflock.client.backends import Backend
from edgeflock.client.data.records import Skipped, StreamChunk, sample_entry
from edgeflock.shared.data.samples import IGNORED
from edgeflock.shared.data.texts import are_codes
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.model.fields import Inputs, rows
from edgeflock.shared.protocol.messages import Welcome

OUTLIER_FACTOR = 100.0
"""A sample is broken if its largest |number| is above this, and above this many times the usual one: its
gradient would dominate all others."""

_WINDOW = 256
"""Number of latest samples that define the usual range, and"""
_MIN_SEEN = 8
"""the number that must have been seen."""


class UsualRange:
    """The usual range of samples: the median of the latest samples' largest |number|.

    Broken samples count as well. So a sensor that changes its units is set aside only until the new units are
    the usual ones.
    """

    def __init__(self) -> None:
        self._magnitudes: deque[float] = deque(maxlen=_WINDOW)

    def bound(self, magnitudes: NDArray[np.float64]) -> float:
        """Add `magnitudes` and return the bound of valid samples; infinity if too few have been seen."""
        self._magnitudes.extend(magnitudes[-_WINDOW:].tolist())
        median = self.median
        return float("inf") if median is None else OUTLIER_FACTOR * max(1.0, median)

    @property
    def median(self) -> float | None:
        """The median magnitude; None if too few samples have been seen."""
        return float(np.median(self._magnitudes)) if len(self._magnitudes) >= _MIN_SEEN else None


@dataclass(slots=True)
class SampleSchema:
    """The server's description of samples, for all checks of a device's source."""

    shape: tuple[int, ...] | None = None
    """Shape of a sample's x as the source yields it. None: the server does not define it."""
    numbers: bool = False
    """Whether targets are numbers."""

    def take(self, welcome: Welcome) -> None:
        """Take the description from `welcome`."""
        data = welcome.data
        categories = data is not None and bool(data.categories)
        self.shape = (len(data.columns),) if data is not None and categories else welcome.input
        self.numbers = data is not None and data.numbers


class Checks:
    """Checks that samples are finite, within range, and all of one shape and kind of target.

    The first good samples define what neither the arguments nor the server define.
    """

    def __init__(
        self,
        shape: tuple[int, ...] | None = None,
        classes: int = 0,
        targets: str | None = None,
        limit: float = 0.0,
        schema: SampleSchema | None = None,
    ) -> None:
        """`classes`: targets are 0 .. classes - 1; 0: any. `targets`: "classes" or "numbers".

        `limit`: the largest |number| of x or y; 0: OUTLIER_FACTOR times the usual one.
        """
        if targets not in (None, "classes", "numbers"):
            raise ConfigError(f"targets={targets} must be classes or numbers")
        self.schema = schema or SampleSchema()
        self._declared = shape
        self._observed: tuple[int, ...] | None = None
        self._target_shape: tuple[int, ...] | None = None
        self._classes = classes
        self._targets = targets or ("classes" if classes else None)
        self._limit = limit
        self._usual = {"x": UsualRange(), "y": UsualRange()}

    @property
    def usual_magnitude(self) -> float | None:
        """The median of the inputs' largest |number|. None: too few have been seen."""
        return self._usual["x"].median

    @property
    def _shape(self) -> tuple[int, ...] | None:
        """The shape of x. The server's has priority over that of the first samples, which may be broken."""
        shapes = (self._declared, self.schema.shape, self._observed)
        return next((shape for shape in shapes if shape is not None), None)

    def admit(self, chunk: StreamChunk, tally: Skipped) -> StreamChunk:
        """Return the good samples of `chunk` and set the others aside."""
        if len(chunk) == 0:
            return chunk
        shapes = chunk.x.shape[1:], chunk.y.shape[1:]
        expected = self._shape, self._target_shape
        if any(want is not None and want != got for want, got in zip(expected, shapes, strict=True)):
            must = f"x {list(expected[0] or ())}, y {list(expected[1] or ())}"
            detail = f"x {list(shapes[0])}, y {list(shapes[1])}; it must be {must}"
            set_aside(chunk, np.ones(len(chunk), np.bool_), "of another shape", detail, tally)
            return chunk.select(np.zeros(len(chunk), np.bool_))
        good = all_per_sample(np.isfinite(chunk.x)) & all_per_sample(np.isfinite(chunk.y))
        set_aside(chunk, ~good, "not finite", "NaN or infinity, or beyond float32", tally)
        agreed = "numbers" if self.schema.numbers else None
        wanted = agreed or self._targets or ("numbers" if chunk.y.dtype == np.float32 else "classes")
        good &= self._find_in_range(chunk, "x", chunk.x, good, tally)
        if wanted == "numbers":
            good &= self._find_in_range(chunk, "y", chunk.y, good, tally)
        else:
            y = chunk.y
            known = (y >= 0) & (y < (self._classes or 1 << 31))
            whole = all_per_sample((y == np.floor(y)) & (known | (y == IGNORED)))
            detail = f"y must be a class, 0 or above{f' and below {self._classes}' if self._classes else ''}"
            set_aside(chunk, good & ~whole, "of another target", detail, tally)
            good &= whole
        if good.any():
            self._observed, self._target_shape, self._targets = *shapes, wanted
        admitted = chunk.select(good)
        targets = admitted.y.astype(np.int64) if wanted == "classes" else admitted.y.astype(np.float32)
        return StreamChunk(admitted.x, targets, admitted.keys)

    def _find_in_range(
        self,
        chunk: StreamChunk,
        name: str,
        numbers: NDArray[np.generic],
        good: NDArray[np.bool_],
        tally: Skipped,
    ) -> NDArray[np.bool_]:
        """Return whether each sample's numbers are within range. Set aside the `good` ones that are not."""
        if name == "x" and numbers.ndim == 2 and numbers.dtype == np.float32:
            numbers = np.where(are_codes(numbers), np.float32(0), numbers)
        magnitudes = np.abs(numbers.reshape(len(numbers), -1)).max(axis=1, initial=0.0).astype(np.float64)
        usual = self._usual[name].bound(magnitudes[good])
        limit = self._limit or usual
        within: NDArray[np.bool_] = magnitudes <= limit
        remedy = "client.range" if self._limit else f"{OUTLIER_FACTOR:g} times the usual; set client.range"
        set_aside(chunk, good & ~within, "out of range", f"{name} goes beyond {limit:g} ({remedy})", tally)
        return within


def set_aside(chunk: StreamChunk, flags: NDArray[np.bool_], kind: str, detail: str, tally: Skipped) -> None:
    """Count the samples of `chunk` that `flags` marks, and write the first few to the quarantine."""
    indices = np.flatnonzero(flags)
    if indices.size:
        keys = chunk.keys or (None,) * len(chunk)
        shown = (sample_entry(chunk.x[i], chunk.y[i], keys[i]) for i in indices)
        tally.add(kind, detail, int(indices.size), shown)


def all_per_sample(flags: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return, for each sample, whether all its flags are set."""
    return np.asarray(flags.reshape(len(flags), -1).all(axis=1))


class Classes:
    """The range of classes that `backend` accepts. Classes start at 0, so one number defines it."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._highest = -1
        """The highest class that the backend accepted, and"""
        self._refused = math.inf
        """the lowest that it refused."""

    def record_accepted(self, y: NDArray[np.integer]) -> None:
        """Record that the backend trains on classes y."""
        self._highest = max(self._highest, int(y.max(initial=-1)))

    def find_refused(self, x: Inputs, y: NDArray[np.integer]) -> NDArray[np.bool_]:
        """Return which samples of x [n, ...] and y [n, ...] have a class that the model lacks.

        Raises the backend's ConfigError if it has accepted no class yet and refuses x with class 0 too. Every
        model has class 0, so model and data do not fit.
        """
        highest = y.reshape(len(y), -1).max(axis=1)
        failed: ConfigError | None = None
        while (unsure := np.flatnonzero((highest > self._highest) & (highest < self._refused))).size:
            # Usually all are valid, so the highest is tried first. After a failure, bisect to limit the
            # trials.
            ranked = unsure[np.argsort(highest[unsure])]
            tried = ranked[-1 if failed is None else ranked.size // 2]
            try:
                self._try(rows(x, [tried, tried]), y[[tried, tried]])
                self._highest = int(highest[tried])
            except ConfigError as error:
                failed, self._refused = error, int(highest[tried])
        if failed is not None and self._highest < 0:
            lowest, self._refused = self._refused, math.inf
            self._try(rows(x, [tried, tried]), np.zeros_like(y[[tried, tried]]))
            self._highest, self._refused = 0, lowest
        return np.asarray(highest >= self._refused)

    def _try(self, x: Inputs, y: NDArray[np.integer]) -> None:
        """Compute one gradient. Callers pass two equal samples, since BatchNorm accepts no single sample."""
        self._backend.gradient(np.zeros(self._backend.layout.size, np.float32), x, y)

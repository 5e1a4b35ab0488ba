"""What is handed on of a stream: chunks of samples, which of them are fit for training, what was skipped."""

import logging
from dataclasses import dataclass
from itertools import compress

import numpy as np
from numpy.typing import NDArray

from edgeflock.shared.data.datasets import Dataset
from edgeflock.shared.errors import ConfigError

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Chunk(Dataset):
    """Samples that arrived together, oldest first: x float32 [n, ...], y [n] int64 or float32."""

    keys: tuple[str | None, ...] = ()
    """What names each of them: whoever sees a key again sees the same sample. (): nothing does."""


RECORD_BYTES = 1 << 20
"""A longer record is broken."""


class Broken(Exception):
    """A record that holds no sample."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(f"{kind}: {detail}")
        self.kind = kind
        self.detail = detail


class Skipped:
    """Counts what was skipped, and logs the first of each kind."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    def add(self, kind: str, detail: str, count: int = 1) -> None:
        if kind not in self.counts:
            log.warning("skipped a record that is %s: %s (more of these are counted only)", kind, detail)
        self.counts[kind] = self.counts.get(kind, 0) + count


class Checks:
    """What samples must be to be trained on: finite, and all of one shape and kind of target.

    What is not said beforehand, the first good samples settle.
    """

    def __init__(
        self, shape: tuple[int, ...] | None = None, classes: int = 0, targets: str | None = None
    ) -> None:
        """`classes`: targets are 0 .. classes - 1; 0: any. `targets`: "classes" or "numbers"."""
        if targets not in (None, "classes", "numbers"):
            raise ConfigError(f"targets={targets} must be classes or numbers")
        self._shape = shape
        self._target_shape: tuple[int, ...] | None = None
        self._classes = classes
        self._targets = targets or ("classes" if classes else None)

    def admit(self, chunk: Chunk, tally: Skipped) -> Chunk:
        """The good samples of `chunk`; the others are counted."""
        if len(chunk) == 0:
            return chunk
        shapes = chunk.x.shape[1:], chunk.y.shape[1:]
        expected = self._shape, self._target_shape
        if any(want is not None and want != got for want, got in zip(expected, shapes, strict=True)):
            detail = (
                f"x {list(shapes[0])}, y {list(shapes[1])}; it must be {expected[0]}, {expected[1] or ()}"
            )
            tally.add("of another shape", detail, len(chunk))
            return Chunk(chunk.x[:0], chunk.y[:0])
        y = chunk.y
        good = _all_of_each(np.isfinite(chunk.x)) & _all_of_each(np.isfinite(y))
        if not good.all():
            tally.add("not finite", "NaN or infinity, or beyond float32", int((~good).sum()))
        wanted = self._targets or ("numbers" if y.dtype == np.float32 else "classes")
        if wanted == "classes":
            whole = _all_of_each((y == np.floor(y)) & (np.abs(y) < 1 << 53))
            if self._classes:
                whole &= _all_of_each((y >= 0) & (y < self._classes))
            if not (whole | ~good).all():
                detail = f"y must be a class{f' below {self._classes}' if self._classes else ''}"
                tally.add("of another target", detail, int((good & ~whole).sum()))
            good &= whole
        if good.any():
            self._shape, self._target_shape, self._targets = *shapes, wanted
        kind = np.int64 if wanted == "classes" else np.float32
        return Chunk(chunk.x[good], y[good].astype(kind), tuple(compress(chunk.keys, good)))


def _all_of_each(flags: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Whether all flags of a sample are set, for each sample."""
    return np.asarray(flags.reshape(len(flags), -1).all(axis=1))

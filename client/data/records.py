"""What is handed on of a stream: chunks of samples, and what was skipped."""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import compress, islice

import numpy as np
from numpy.typing import NDArray

from edgeflock.client.data.quarantine import LINES, QuarantineFile
from edgeflock.shared.data.datasets import Dataset

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StreamChunk(Dataset):
    """Samples that arrived together, oldest first: x float32 [n, ...], y [n] int64 or float32."""

    keys: tuple[str | None, ...] = ()
    """What names each of them: whoever sees a key again sees the same sample. (): nothing does."""

    def where(self, flags: NDArray[np.bool_]) -> "StreamChunk":
        """The samples whose flag is set."""
        return StreamChunk(self.x[flags], self.y[flags], tuple(compress(self.keys, flags)))


OVERRUN = "overrun"
"""The kind of what was dropped before anybody could look at it."""

RECORD_BYTES = 1 << 20
"""A longer record is broken."""


class Broken(Exception):
    """A record that holds no sample."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(f"{kind}: {detail}")
        self.kind = kind
        self.detail = detail


@dataclass(frozen=True, slots=True)
class SourceProgress:
    """Of the samples of a source, in their order."""

    came: int = 0
    """Those that whoever trains on them has by now, and"""
    done: int = 0
    """how many of these, the first ones, need not come again if the process ends now: trained, dropped, or
    kept on disk.
    """


class Skipped:
    """Counts what was skipped, logs the first of each kind, and shows the quarantine some of it."""

    def __init__(self, quarantine: QuarantineFile | None = None) -> None:
        self.counts: dict[str, int] = {}
        self.quarantine = quarantine
        self.progress: Callable[[], SourceProgress] = SourceProgress
        """How far the samples are that the source has handed on, for sources that can ask for them again."""

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    def add(self, kind: str, detail: str, count: int = 1, records: Iterable[object] = ()) -> None:
        """`count` samples are of this kind; `records` are what is to be seen of them, as JSON has it."""
        if kind not in self.counts:
            log.warning("skipped a record that is %s: %s (more of these are counted only)", kind, detail)
        self.counts[kind] = self.counts.get(kind, 0) + count
        if self.quarantine is not None:
            for record in islice(records, LINES):
                self.quarantine.put(kind, detail, record)

"""Chunks of a stream's samples, and the count of skipped records."""

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
    """The key of each sample: an equal key means the same sample. (): no sample has a key."""

    def select(self, flags: NDArray[np.bool_]) -> "StreamChunk":
        """Return the samples whose flag is set."""
        return StreamChunk(self.x[flags], self.y[flags], tuple(compress(self.keys, flags)))


OVERRUN = "overrun"
"""The kind of records that are dropped before they are read."""

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
    """The progress of a source's samples, in their order."""

    received: int = 0
    """Samples that training's buffer has received, and"""
    done: int = 0
    """how many of the first of these need not come again after a restart: trained, dropped, or on disk."""


class Skipped:
    """Counts skipped records, logs the first of each kind, and writes some of them to the quarantine."""

    def __init__(self, quarantine: QuarantineFile | None = None) -> None:
        self.counts: dict[str, int] = {}
        self.quarantine = quarantine
        self.progress: Callable[[], SourceProgress] = SourceProgress
        """Returns the progress of the yielded samples, for sources that can request them again."""

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    def add(self, kind: str, detail: str, count: int = 1, records: Iterable[object] = ()) -> None:
        """Count `count` samples of this kind. `records` are JSON values of them for the quarantine."""
        if kind not in self.counts:
            log.warning("skipped a record that is %s: %s (more of these are counted only)", kind, detail)
        self.counts[kind] = self.counts.get(kind, 0) + count
        if self.quarantine is not None:
            for record in islice(records, LINES):
                self.quarantine.put(kind, detail, record)

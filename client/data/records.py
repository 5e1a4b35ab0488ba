"""Records of a stream: what a broker's message holds, and which samples are fit for training.

A message is one sample, as a msgpack map or a JSON object (UTF-8), of RECORD_BYTES at most:

    key       msgpack                                        JSON
    x         bin: float32, little-endian, in C order        a number or nested lists of numbers
              or as in JSON
    shape     list of integers, optional                     the same
    y         integer: a class; float: a target;             the same
              or a list of either, one for each position

`shape` is that of the one sample; without it bytes are a flat list, nested lists have the shape they show.
A first byte of "{" or white space means JSON; msgpack maps begin with 0x80..0x8F, 0xDE or 0xDF. Other keys
are ignored. For example {"x": [0.5, 1], "y": 0} in JSON, or in msgpack, with x as bytes:

    82 a1 78 c4 08 00 00 00 3f 00 00 80 3f a1 79 00
"""

import json
import logging
import math
from collections.abc import Iterable
from itertools import groupby
from typing import Any

import msgpack
import numpy as np
from numpy.typing import NDArray

from edgeflock.shared.data.datasets import Dataset
from edgeflock.shared.errors import ConfigError

log = logging.getLogger(__name__)

Chunk = Dataset
"""Samples that arrived together, oldest first: x float32 [n, ...], y [n] int64 or float32."""

RECORD_BYTES = 1 << 20
"""A longer record is broken."""

Sample = tuple[NDArray[np.float32], NDArray[np.int64] | NDArray[np.float32]]
"""(x, y) of one sample, without the axis of samples."""


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


def decode(record: bytes) -> Sample:
    """The sample that a message holds. Raises Broken."""
    if len(record) > RECORD_BYTES:
        raise Broken("too large", f"{len(record)} bytes; at most {RECORD_BYTES} are taken")
    try:
        fields = json.loads(record) if record[:1] in b"{ \t\r\n" else msgpack.unpackb(record)
    except (ValueError, RecursionError, msgpack.UnpackException) as error:
        raise Broken("unreadable", f"neither msgpack nor JSON: {error}") from error
    if not isinstance(fields, dict) or "x" not in fields or "y" not in fields:
        raise Broken("incomplete", "a record is a map with x and y")
    x, y = _array(fields["x"], "x"), _array(fields["y"], "y")
    with np.errstate(over="ignore"):  # what is beyond float32 becomes infinite, and that is told below
        return _shaped(x.astype(np.float32), fields.get("shape")), _target(y)


def gather(records: Iterable[bytes], tally: Skipped) -> list[Chunk]:
    """The samples of some messages, in their order: neighbours of one kind in one chunk."""
    samples = []
    for record in records:
        try:
            samples.append(decode(record))
        except Broken as broken:
            tally.add(broken.kind, broken.detail)
    grouped = groupby(samples, key=lambda sample: (sample[0].shape, sample[1].shape, sample[1].dtype.kind))
    return [_stacked(list(group)) for _, group in grouped]


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
        if wanted == "classes":
            return Chunk(chunk.x[good], y[good].astype(np.int64))
        return Chunk(chunk.x[good], y[good].astype(np.float32))


def _stacked(samples: list[Sample]) -> Chunk:
    return Chunk(np.stack([x for x, _ in samples]), _target(np.stack([y for _, y in samples])))


def _all_of_each(flags: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Whether all flags of a sample are set, for each sample."""
    return np.asarray(flags.reshape(len(flags), -1).all(axis=1))


def _array(value: Any, name: str) -> NDArray[Any]:
    """Numbers as an array of whatever type they have."""
    if isinstance(value, bytes) and name == "x":
        if len(value) % 4:
            raise Broken("not numbers", f"x has {len(value)} bytes, which are no float32")
        return np.frombuffer(value, "<f4")
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise Broken("not numbers", f"{name}: {error}") from error
    if array.dtype.kind not in "if":
        raise Broken("not numbers", f"{name} is no number and no regular list of numbers")
    return array


def _shaped(x: NDArray[np.float32], shape: Any) -> NDArray[np.float32]:
    if shape is None:
        return x
    sizes: list[Any] = shape if isinstance(shape, list) and len(shape) <= 16 else [None]
    if not all(type(size) is int and size >= 0 for size in sizes) or math.prod(sizes) != x.size:
        raise Broken("of a wrong shape", f"shape {str(shape)[:80]} for {x.size} numbers")
    return x.reshape(sizes)


def _target(y: NDArray[Any]) -> NDArray[np.int64] | NDArray[np.float32]:
    return y.astype(np.float32) if y.dtype.kind == "f" else y.astype(np.int64)

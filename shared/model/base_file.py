"""The file with the frozen part of a model (shared/model/lora.py), as float32 or with matrices in eight bits.

All arrays are little-endian, in C order. The float32 ones come first, in the order of the base's layout: a
tensor, or in place of a matrix in eight bits its scales. The int8 matrices follow. A row w of such a matrix
has the scale s = max |w| / 127 and the numbers q = round(w / s). Both ends compute with s q in place of w.
"""

from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgeflock.shared.model.layout import Layout

Vector = NDArray[np.float32]
Octets = NDArray[np.uint8]

SCALES = ":scales"
"""What follows a matrix's name in the name of its scales, one for each row."""

_LARGEST = 127


class FilePart(NamedTuple):
    """An array of the file."""

    name: str
    shape: tuple[int, ...]
    start: int
    """Its first byte."""
    int8: bool
    """Whether it is int8; else it is float32."""

    @property
    def size(self) -> int:
        """Bytes."""
        return prod(self.shape) * (1 if self.int8 else 4)

    @property
    def stop(self) -> int:
        return self.start + self.size


def parts_of(layout: Layout, *, int8: bool) -> list[FilePart]:
    """Return the arrays of the file of a base of this layout, in order. `int8`: matrices have eight bits."""
    matrices = [t for t in layout.tensors if int8 and len(t.shape) > 1 and not t.buffer]
    parts: list[FilePart] = []
    for tensor in layout.tensors:
        scaled = tensor in matrices
        name, shape = (tensor.name + SCALES, tensor.shape[:1]) if scaled else (tensor.name, tensor.shape)
        parts.append(FilePart(name, shape, parts[-1].stop if parts else 0, int8=False))
    for matrix in matrices:
        parts.append(FilePart(matrix.name, matrix.shape, parts[-1].stop, int8=True))
    return parts


class BaseFile(NamedTuple):
    """A base that a device has as a file."""

    path: Path
    """Absolute, and no link."""
    layout: Layout
    int8: bool

    @property
    def parts(self) -> list[FilePart]:
        return parts_of(self.layout, int8=self.int8)

    @property
    def size(self) -> int:
        """Bytes."""
        return self.parts[-1].stop

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Map the file into memory, and return its arrays by name. Devices of a machine share its pages."""
        return arrays_of(self.parts, np.memmap(self.path, np.uint8, "c"))


def arrays_of(parts: list[FilePart], octets: Octets) -> dict[str, NDArray[Any]]:
    """Return the arrays by name, as views of the file's bytes."""
    return {
        part.name: octets[part.start : part.stop].view("i1" if part.int8 else "<f4").reshape(part.shape)
        for part in parts
    }


def encode(layout: Layout, theta: Vector, *, int8: bool) -> Octets:
    """Return the bytes of the file of a base, float32 [P + B]; in float32 they are a view of it."""
    if not int8:
        return theta.astype("<f4", copy=False).view(np.uint8)
    parts = parts_of(layout, int8=True)
    octets = np.zeros(parts[-1].stop, np.uint8)
    arrays = arrays_of(parts, octets)
    for tensor in layout.tensors:
        values = theta[tensor.start : tensor.stop].reshape(tensor.shape)
        scales = arrays.get(tensor.name + SCALES)
        if scales is not None:
            rows = values.reshape(len(scales), -1)
            scales[:] = np.abs(rows).max(axis=1, initial=0) / _LARGEST
            numbers = np.rint(rows / np.where(scales, scales, 1)[:, np.newaxis])
            values = numbers.clip(-_LARGEST, _LARGEST).reshape(tensor.shape)  # the scale may be subnormal
        arrays[tensor.name][...] = values
    return octets


def decode(layout: Layout, octets: Octets, *, int8: bool) -> Vector:
    """Return the base that a file holds, float32 [P + B]; of a file in float32 it is a view."""
    if not int8:
        return octets.view("<f4")
    theta = np.empty(layout.size, np.float32)
    arrays = arrays_of(parts_of(layout, int8=True), octets)
    for tensor in layout.tensors:
        values = arrays[tensor.name]
        if (scales := arrays.get(tensor.name + SCALES)) is not None:
            values = values * scales.reshape(-1, *[1] * (len(tensor.shape) - 1))
        theta[tensor.start : tensor.stop] = values.ravel()
    return theta

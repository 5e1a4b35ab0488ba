"""Coding of the share of each class in the data of a device or a fleet: float16, one number per class."""

import numpy as np
from numpy.typing import NDArray

from edgeflock.shared.errors import WrongDtype

Vector = NDArray[np.float64]

MAX_CLASSES = 1 << 12

_ROUNDING = 0.05
"""How far from 1 the sum of shares may be."""


def encode(shares: Vector) -> bytes:
    """Encode `shares`, float64 [K] or [2, K], as float16."""
    return shares.astype("<f2").tobytes()


def decode(octets: bytes, rows: int = 1) -> Vector:
    """float64 [rows, K], each row of which sums to 1. Raises WrongDtype if the bytes are not shares."""
    classes, odd = divmod(len(octets), 2 * rows)
    if odd or not 2 <= classes <= MAX_CLASSES:
        raise WrongDtype(
            f"shares of classes are 2 to {MAX_CLASSES} float16 numbers a row, not {len(octets)} bytes"
        )
    shares = np.frombuffer(octets, "<f2").astype(np.float64).reshape(rows, classes)
    sums = shares.sum(axis=1)
    if not (np.isfinite(shares).all() and (shares >= 0).all() and (np.abs(sums - 1) <= _ROUNDING).all()):
        raise WrongDtype("shares of classes must be numbers from 0 to 1 whose sum is 1")
    parts: Vector = shares / sums[:, None]
    return parts

"""compression.values = "bf16": two bytes a value, the upper half of a float32."""

import numpy as np
from numpy.typing import NDArray

from edgeflock.shared.codecs.values import ValueCoding

Values = NDArray[np.float32]
Counts = NDArray[np.int64]


def encode(values: Values, counts: Counts) -> bytes:
    return (values.view("<u4") >> 16).astype("<u2").tobytes()


def decode(octets: bytes, counts: Counts) -> Values:
    decoded: Values = (np.frombuffer(octets, "<u2").astype("<u4") << 16).view("<f4")
    return decoded


BF16 = ValueCoding(64, encode, decode, lambda k, t: 2 * k)

"""A model's file as bytes: its description without a look at the weights, and other tensors in it."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgeflock.shared.artifacts.info import ModelInfo
from edgeflock.shared.errors import BadGraph, ConfigError
from edgeflock.shared.graphs.writing import metadata_of


def describe(octets: bytes, format: str, name: str) -> ModelInfo:
    """Return the description in a file of `format`, onnx or safetensors. Needs neither's library.

    Raises ConfigError that names the file, `name`.
    """
    try:
        metadata = metadata_of(octets) if format == "onnx" else _metadata(octets)
    except (BadGraph, ValueError, RecursionError) as error:
        raise ConfigError(f"{name} is not a {format} file: {error}") from error
    return ModelInfo.read(metadata, name)


def with_tensors(octets: bytes, tensors: Mapping[str, NDArray[np.float32]]) -> bytes:
    """Return a safetensors file with other values of float32 `tensors`. ConfigError if it lacks one."""
    changed, header = bytearray(octets), _header(octets)
    begin = 8 + int.from_bytes(octets[:8], "little")
    for name, values in tensors.items():
        entry, content = header.get(name), values.astype("<f4").tobytes()
        place = entry.get("data_offsets") if isinstance(entry, dict) and entry.get("dtype") == "F32" else None
        if not isinstance(place, list) or [type(end) for end in place] != [int, int]:
            place = [-1, -1]
        start, stop = (begin + end for end in place)
        if not begin <= start <= stop <= len(octets) or stop - start != len(content):
            raise ConfigError(f"the file has no float32 {name} of {values.size} numbers; take the file again")
        changed[start:stop] = content
    return bytes(changed)


def _header(octets: bytes) -> dict[str, Any]:
    """The header of a safetensors file. Raises ValueError."""
    size = int.from_bytes(octets[:8], "little")
    if not 0 < size <= len(octets) - 8:
        raise ValueError("its header is cut short")
    found = json.loads(octets[8 : 8 + size])
    return found if isinstance(found, dict) else {}


def _metadata(octets: bytes) -> dict[str, str]:
    """The metadata of a safetensors file. Raises ValueError."""
    metadata = _header(octets).get("__metadata__")
    return metadata if isinstance(metadata, dict) else {}

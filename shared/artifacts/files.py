"""A model's file as bytes: its description without a look at the weights, and its place on the disk."""

import json
import os
from pathlib import Path

from edgeflock.shared.artifacts.info import ModelInfo
from edgeflock.shared.errors import BadGraph, ConfigError
from edgeflock.shared.graphs.writing import metadata_of


def describe(octets: bytes, format: str, name: str) -> ModelInfo:
    """Return the description in a file of `format`, onnx or safetensors. Needs neither's library.

    Raises ConfigError that names the file, `name`.
    """
    try:
        metadata = metadata_of(octets) if format == "onnx" else _header(octets)
    except (BadGraph, ValueError, RecursionError) as error:
        raise ConfigError(f"{name} is not a {format} file: {error}") from error
    return ModelInfo.read(metadata, name)


def replace_file(path: Path, octets: bytes) -> None:
    """Write a file as a whole: readers see the old one or the new one, also after a power failure."""
    part = path.with_name(f".{path.name}.part")
    with part.open("wb") as file:
        file.write(octets)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


def _header(octets: bytes) -> dict[str, str]:
    """The metadata of a safetensors file. Raises ValueError."""
    size = int.from_bytes(octets[:8], "little")
    if not 0 < size <= len(octets) - 8:
        raise ValueError("its header is cut short")
    found = json.loads(octets[8 : 8 + size])
    metadata = found.get("__metadata__") if isinstance(found, dict) else None
    return metadata if isinstance(metadata, dict) else {}

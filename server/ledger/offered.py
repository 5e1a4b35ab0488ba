"""The file in the journal's directory from which devices load a first model that they cannot make."""

import hashlib
import os
from pathlib import Path

from edgeflock.shared.codecs import packed
from edgeflock.shared.errors import WrongDtype
from edgeflock.shared.model.weights import Weights
from edgeflock.shared.protocol.messages import Model

FIRST_MODEL = "first-model"
"""The file's name."""


def save_first_model(directory: Path, model: Model) -> Weights:
    """Describe the file in `directory`. It is written if it is absent or does not hold all of `model`.

    An intact file is not rewritten, since devices may have loaded a part of it. Raises OSError.
    """
    path, mode = directory / FIRST_MODEL, model.value_mode
    octets = path.read_bytes() if path.exists() else b""
    if not _holds(octets, model):
        octets = packed.pack(model.values, mode)
        write_atomically(path, octets)
    return Weights(hashlib.sha256(octets).digest(), len(octets), mode, load=True)


def write_atomically(path: Path, octets: bytes, mode: int = 0o600) -> None:
    """Write the file atomically. Only its owner may read it, unless `mode` says otherwise."""
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:
        file.write(octets)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)


def _holds(octets: bytes, model: Model) -> bool:
    try:
        return packed.unpack(octets, model.value_mode, len(model.values)) == model.values
    except WrongDtype:
        return False

"""The files in the journal's directory that devices load: a first model that they cannot make, and a base."""

import hashlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edgeflock.shared.codecs import packed
from edgeflock.shared.errors import ConfigError, WrongDtype
from edgeflock.shared.files import write_atomically
from edgeflock.shared.model.start import Weights
from edgeflock.shared.protocol.messages import Model

FIRST_MODEL = "first-model"
BASE = "base"
"""The files' names."""


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


def save_base(directory: Path, octets: NDArray[np.uint8]) -> bytes:
    """Write the file of a base (shared/model/base_file.py), and return its SHA-256.

    An intact file is not rewritten. Raises ConfigError if it is another base, or cannot be written.
    """
    path = directory / BASE
    digest = hashlib.sha256(octets.data).digest()
    try:
        if not path.exists():
            write_atomically(path, octets.tobytes())
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").digest()
    except OSError as error:
        raise ConfigError(f"{path} cannot be kept: {error.strerror}; free some disk space") from error
    if found != digest:
        raise ConfigError(
            f"{path}: the run began with another base than model.weights gives now; choose another "
            "server.directory, or name the weights of then"
        )
    return digest


def _holds(octets: bytes, model: Model) -> bool:
    try:
        return packed.unpack(octets, model.value_mode, len(model.values)) == model.values
    except WrongDtype:
        return False

"""The file in the journal's directory from which devices load a first model that they cannot make."""

import hashlib
from pathlib import Path

from edgeflock.shared.codecs import packed
from edgeflock.shared.errors import WrongDtype
from edgeflock.shared.files import write_atomically
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


def _holds(octets: bytes, model: Model) -> bool:
    try:
        return packed.unpack(octets, model.value_mode, len(model.values)) == model.values
    except WrongDtype:
        return False

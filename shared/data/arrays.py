"""Readers of arrays: npz:PATH and digits:."""

import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from edgeflock.shared.data.samples import Raw, missing_file
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.extras import install_command
from edgeflock.shared.model.fields import Fields

_DIGITS = Path(__file__).with_name("digits.npz")
"""x uint8 [1797, 8, 8], ink of 0 to 16; y uint8 [1797]. NOTICE names the source."""

_MAX_ID = 1 << 24
"""float32 has all whole numbers below it."""


def read_digits(path: str, split: str, options: Mapping[str, str]) -> Raw:
    if path:
        raise ConfigError(f"data 'digits:{path}': digits takes no path")
    with np.load(_DIGITS) as archive:
        images = archive["x"].astype(np.float32)[:, np.newaxis] / 16
        labels = archive["y"].astype(np.int64)
    order = np.random.default_rng(0).permutation(len(images))
    held_out = len(images) // 5
    chosen = order[:held_out] if split == "test" else order[held_out:]
    return Raw("digits:", images[chosen], labels[chosen])


def read_npz(path: str, split: str, options: Mapping[str, str]) -> Raw:
    if "context" in options:
        return _read_text(path, split, options["context"])

    def select(names: list[str]) -> tuple[str, ...]:
        if split == "train" and "x" in names and "x_train" not in names:
            return "x", "y"
        if f"jpg_{split}" in names:
            return f"jpg_{split}", f"off_{split}", f"y_{split}"
        fields = [name for name in names if name.startswith(f"x_{split}.")]
        return *(fields or [f"x_{split}"]), f"y_{split}"

    arrays = load_arrays(path, select)
    target, y = arrays.popitem()
    if target != "y" and f"jpg_{split}" in arrays:
        octets, offsets = arrays.values()
        arrays = {f"jpg_{split}": _decode_images(octets, offsets, path)}
    for name, array in arrays.items():
        if not array.ndim or not y.ndim or len(array) != len(y) or len(y) == 0:
            counts = [len(one) if one.ndim else "no" for one in (array, y)]
            raise ConfigError(f"data 'npz:{path}': {name} has {counts[0]} samples, {target} {counts[1]}")
    if "." in name:
        return Raw(f"npz:{path}", fields_of(arrays), y)
    return Raw(f"npz:{path}", arrays[name], y, place=lambda sample: f"{name}[{sample}]")


def _read_text(path: str, split: str, context: str) -> Raw:
    """Read token ids in a row as windows of `context` tokens; y has the next token of each."""

    def select(names: list[str]) -> tuple[str]:
        return ("x" if split == "train" and "x_train" not in names else f"x_{split}",)

    ((name, ids),) = load_arrays(path, select).items()
    length = int(context) if context.isdecimal() and len(context) < 9 else 0
    whole = ids.ndim == 1 and ids.dtype.kind in "iu"
    if not (whole and 0 < length < len(ids) and int(ids.max()) < _MAX_ID):
        raise ConfigError(
            f"data 'npz:{path}?context={context}': context is a number of tokens from 1 on, and {name} must "
            f"be more whole numbers than that in a row, below 2^24; it is {ids.dtype} {list(ids.shape)}"
        )
    count = (len(ids) - 1) // length
    x, y = (part[: count * length].reshape(count, length) for part in (ids, ids[1:]))
    return Raw(f"npz:{path}", x.astype(np.float32), y.astype(np.int64))


def load_arrays(path: str, select: Callable[[list[str]], Sequence[str]]) -> dict[str, NDArray[np.generic]]:
    """Load the arrays of an archive that `select` chooses by the names of all. Raises ConfigError."""
    if not Path(path).is_file():
        raise missing_file(f"npz:{path}")
    try:
        with open(path, "rb") as file, np.load(file) as archive:
            names = select(archive.files)
            found = {name: archive[name] for name in names if name in archive}
            content = ", ".join(archive.files)
    except (OSError, EOFError, ValueError, TypeError, AttributeError, BadZipFile) as error:
        reason = "it holds Python objects; store numbers or text" if "allow_pickle" in str(error) else error
        raise ConfigError(f"data 'npz:{path}': is no readable np.savez archive: {reason}") from error
    for name in names:
        if name not in found:
            raise ConfigError(f"data 'npz:{path}': has no array {name}; it holds {content}")
    return found


def fields_of(arrays: Mapping[str, NDArray[np.generic]]) -> Fields:
    """Return the fields of arrays such as x_train.NAME."""
    return Fields({name.partition(".")[2]: array for name, array in arrays.items()})


def _decode_images(octets: NDArray[np.generic], offsets: NDArray[np.generic], path: str) -> NDArray[np.uint8]:
    """Decode JPEG images of one size: uint8 [n, channels, height, width]. Raises ConfigError."""
    try:
        from PIL import Image
    except ImportError as error:
        raise ConfigError(
            f"data 'npz:{path}': JPEG images need Pillow: {install_command('images')}"
        ) from error
    if octets.dtype != np.uint8 or octets.ndim != 1 or offsets.dtype.kind not in "iu" or offsets.ndim != 1:
        raise ConfigError(f"data 'npz:{path}': jpg_* must be bytes (uint8) in a row and off_* whole numbers")
    blob, images = octets.tobytes(), []
    for number, (start, end) in enumerate(zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)):
        try:
            image = np.asarray(Image.open(io.BytesIO(blob[start:end]), formats=("JPEG",)))
        except OSError as error:
            raise ConfigError(f"data 'npz:{path}': image {number} is no JPEG: {error}") from error
        images.append(np.atleast_3d(image).transpose(2, 0, 1))
        if images[-1].shape != images[0].shape:
            shapes = [list(images[index].shape) for index in (0, -1)]
            raise ConfigError(f"data 'npz:{path}': image {number} is {shapes[1]}, image 0 is {shapes[0]}")
    return np.stack(images) if images else np.zeros((0, 1, 1, 1), np.uint8)

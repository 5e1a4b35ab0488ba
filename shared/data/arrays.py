"""Readers of arrays: npz:PATH and digits:."""

import io
from collections.abc import Mapping
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
    if not Path(path).is_file():
        raise missing_file(f"npz:{path}")
    names: tuple[str, ...] = (f"x_{split}", f"y_{split}")
    try:
        with open(path, "rb") as file, np.load(file) as archive:
            if split == "train" and "x" in archive and "x_train" not in archive:
                names = ("x", "y")
            elif f"jpg_{split}" in archive:
                names = (f"y_{split}", f"jpg_{split}", f"off_{split}")
            elif fields := [name for name in archive.files if name.startswith(f"x_{split}.")]:
                names = (f"y_{split}", *fields)
            found = {name: archive[name] for name in names if name in archive}
            content = ", ".join(archive.files)
    except (OSError, EOFError, ValueError, TypeError, AttributeError, BadZipFile) as error:
        reason = "it holds Python objects; store numbers or text" if "allow_pickle" in str(error) else error
        raise ConfigError(f"data 'npz:{path}': is no readable np.savez archive: {reason}") from error
    for name in names:
        if name not in found:
            raise ConfigError(f"data 'npz:{path}': has no array {name}; it holds {content}")
    if names[1].startswith(f"x_{split}."):
        y, *inputs = (found[name] for name in names)
        return _read_fields(path, dict(zip(names[1:], inputs, strict=True)), y, names[0])
    if len(names) == 3:
        y, octets, offsets = (found[name] for name in names)
        x = _decode_images(octets, offsets, path)
    else:
        x, y = (found[name] for name in names)
    if not x.ndim or not y.ndim or len(x) != len(y) or len(y) == 0:
        counts = [len(array) if array.ndim else "no" for array in (x, y)]
        raise ConfigError(f"data 'npz:{path}': {names[0]} has {counts[0]} samples, {names[1]} {counts[1]}")
    return Raw(f"npz:{path}", x, y, place=lambda sample: f"{names[0]}[{sample}]")


def _read_fields(path: str, arrays: dict[str, NDArray[np.generic]], y: NDArray[np.generic], name: str) -> Raw:
    """Return samples with several inputs. `arrays` and y have their names in the archive."""
    for other, array in arrays.items():
        if not array.ndim or not y.ndim or len(array) != len(y) or len(y) == 0:
            counts = [len(one) if one.ndim else "no" for one in (array, y)]
            raise ConfigError(f"data 'npz:{path}': {other} has {counts[0]} samples, {name} {counts[1]}")
    x = Fields({other.partition(".")[2]: array for other, array in arrays.items()})
    return Raw(f"npz:{path}", x, y)


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

"""Stored data by URI, split and shared out the same way on both ends.

    digits:                     scikit-learn's bundled handwritten digits, 1,797 images of 8 x 8
    npz:PATH                    a NumPy archive with x_train, y_train and, for evaluation, x_test, y_test;
                                one that is not split may call them x and y, and trains only;
                                images as JPEG: jpg_train, all files' bytes in a row, and off_train, where
                                each begins and the last one ends, in the place of x_train (needs Pillow);
                several inputs as x_train.NAME, x_test.NAME each, by the names of forward's arguments
    ...?part=3/8                the third of eight equal random shares (1/8 .. 8/8)

uint8 images are scaled to 0..1; images without a channel axis get one.
"""

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from edgeflock.shared.errors import ConfigError
from edgeflock.shared.model.fields import Fields, Inputs, concatenated, rows


@dataclass(frozen=True, slots=True)
class Dataset:
    """n samples: x float32 [n, ...] or several fields, y [n]: int64 classes or float32 targets."""

    x: Inputs
    y: NDArray[np.int64] | NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.y)


def load(uri: str, split: str) -> Dataset:
    """The `split` ("train" or "test") of the data set that `uri` names.

    Raises ConfigError that names the URI and what is wrong with it.
    """
    scheme, _, rest = uri.partition(":")
    path, _, query = rest.partition("?")
    options = dict(parse_qsl(query, keep_blank_values=True))
    part = options.pop("part", "1/1")
    if options:
        raise ConfigError(f"data {uri!r}: option {next(iter(options))!r} is unknown; known is part=I/N")
    read = READERS.get(scheme)
    if read is None:
        raise ConfigError(f"data {uri!r}: known are {', '.join(f'{name}:' for name in READERS)}")
    x, y = read(path, split)
    chosen = _share(len(y), part, uri)
    if isinstance(x, Fields):
        return Dataset(_of_fields(x.rows(chosen)), targets(y[chosen]))
    return Dataset(scaled(x[chosen]), targets(y[chosen]))


def _of_fields(x: Fields) -> Fields:
    """Images and numbers as of a lone x; whole numbers and truths stay whole, as int64."""
    return Fields(
        {
            name: scaled(array)
            if array.dtype == np.uint8 or np.issubdtype(array.dtype, np.floating)
            else np.ascontiguousarray(array, dtype=np.int64)
            for name, array in x.items()
        }
    )


def deal(data: Dataset, shares: int, samples: int = 0) -> list[Dataset]:
    """Equal random shares of the data, or of `samples` of it: share i is what ?part=i+1/shares names.

    There must be at least as many samples as shares.
    """
    dealt = _dealt(len(data))[: samples or None]
    chosen = (np.sort(dealt[share::shares]) for share in range(shares))
    return [Dataset(rows(data.x, where), data.y[where]) for where in chosen]


def joined(parts: Sequence[Dataset]) -> Dataset:
    """The samples of all parts, one part behind the other."""
    return Dataset(concatenated([part.x for part in parts]), np.concatenate([part.y for part in parts]))


def deal_by_label(data: Dataset, shares: int, labels: int, samples: int = 0) -> list[Dataset]:
    """Shares of `labels` classes each, of the data or of `samples` of it: share i has the classes i labels,
    i labels + 1, ... modulo their number; whoever has a class in common gets equal parts of it.

    Raises ConfigError if the data have no classes, fewer than `labels`, or too few samples of one.
    """
    if data.y.dtype != np.int64:
        raise ConfigError("fleet.labels: the data have targets, not classes")
    dealt = _dealt(len(data))[: samples or None]
    classes = np.unique(data.y)
    if labels > classes.size:
        raise ConfigError(f"fleet.labels = {labels}: the data have {classes.size} classes")
    holders: dict[int, list[int]] = {}
    for share in range(shares):
        for number in range(labels):
            holders.setdefault((share * labels + number) % classes.size, []).append(share)
    parts: list[list[NDArray[np.int64]]] = [[] for _ in range(shares)]
    for label, having in holders.items():
        of_label = dealt[(data.y[dealt] == classes[label]).reshape(dealt.size, -1).any(axis=1)]
        if of_label.size < len(having):
            raise ConfigError(
                f"fleet.labels: class {classes[label]} has {of_label.size} samples for {len(having)}"
            )
        for place, share in enumerate(having):
            parts[share].append(of_label[place :: len(having)])
    chosen = (np.sort(np.concatenate(part)) for part in parts)
    return [Dataset(rows(data.x, where), data.y[where]) for where in chosen]


def _dealt(count: int) -> NDArray[np.int64]:
    return np.random.default_rng(0).permutation(count)


def _share(count: int, part: str, uri: str) -> NDArray[np.int64]:
    """The indices of share i of n: the same random deal on every machine."""
    number, _, of = part.partition("/")
    if not (number.isdecimal() and of.isdecimal() and 1 <= int(number) <= int(of) <= count):
        raise ConfigError(f"data {uri!r}: part={part} must be I/N with 1 <= I <= N <= {count}, e.g. 3/8")
    if of == "1":
        return np.arange(count)
    return np.sort(_dealt(count)[int(number) - 1 :: int(of)])


def _read_digits(path: str, split: str) -> tuple[NDArray[np.generic], NDArray[np.generic]]:
    if path:
        raise ConfigError(f"data 'digits:{path}': digits takes no path")
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise ConfigError("data 'digits:' needs scikit-learn: pip install 'edgeflock[demo]'") from error
    bunch = load_digits()
    images = (bunch.images / 16).astype(np.float32)[:, np.newaxis]
    order = np.random.default_rng(0).permutation(len(images))
    held_out = len(images) // 5
    chosen = order[:held_out] if split == "test" else order[held_out:]
    return images[chosen], bunch.target[chosen]


def _read_npz(path: str, split: str) -> tuple[NDArray[np.generic] | Fields, NDArray[np.generic]]:
    if not Path(path).is_file():
        raise ConfigError(f"data 'npz:{path}': there is no such file")
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
            held = ", ".join(archive.files)
    except (OSError, EOFError, ValueError, TypeError, AttributeError, BadZipFile) as error:
        raise ConfigError(f"data 'npz:{path}': is no readable np.savez archive: {error}") from error
    for name in names:
        if name not in found:
            raise ConfigError(f"data 'npz:{path}': has no array {name}; it holds {held}")
    x: NDArray[np.generic] | Fields
    if len(names) > 1 and names[1].startswith(f"x_{split}."):
        y = found[names[0]]
        try:
            x = Fields({name.partition(".")[2]: found[name] for name in names[1:]})
        except ValueError as error:
            raise ConfigError(f"data 'npz:{path}': {error}") from error
        count = len(found[names[1]])
    elif len(names) == 3:
        y, octets, offsets = (found[name] for name in names)
        x = _decoded(octets, offsets, path)
        count = len(x)
    else:
        x, y = (found[name] for name in names)
        count = len(x)
    if count != len(y) or len(y) == 0:
        raise ConfigError(f"data 'npz:{path}': {names[0]} has {count} samples, {names[1]} {len(y)}")
    return x, y


def _decoded(octets: NDArray[np.generic], offsets: NDArray[np.generic], path: str) -> NDArray[np.uint8]:
    """JPEG images of one size: uint8 [n, channels, height, width]. Raises ConfigError."""
    try:
        from PIL import Image
    except ImportError as error:
        raise ConfigError(
            f"data 'npz:{path}': JPEG images need Pillow: pip install 'edgeflock[demo]'"
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


Reader = Callable[[str, str], tuple[NDArray[np.generic] | Fields, NDArray[np.generic]]]

READERS: dict[str, Reader] = {"digits": _read_digits, "npz": _read_npz}


def scaled(x: NDArray[np.generic]) -> NDArray[np.float32]:
    if x.dtype == np.uint8:
        x = x.astype(np.float32) / np.float32(255)
        if x.ndim == 3:
            x = x[:, np.newaxis]
    return np.ascontiguousarray(x, dtype=np.float32)


def targets(y: NDArray[np.generic]) -> NDArray[np.int64] | NDArray[np.float32]:
    return y.astype(np.float32) if np.issubdtype(y.dtype, np.floating) else y.astype(np.int64)

"""Stored data by URI, with the same splits and shares on both ends.

    digits:                     1,797 handwritten digits of 8 x 8, which come with Edgeflock (NOTICE)
    npz:PATH                    a NumPy archive with x_train, y_train and, for evaluation, x_test, y_test;
                                an archive without splits may have x and y, which are for training only;
                                JPEG images (needs Pillow): instead of x_train, jpg_train has all files'
                                bytes in a row, and off_train each file's beginning and the last one's end;
                                several inputs: x_train.NAME, x_test.NAME, by the argument names of forward
    npz:PATH?context=128        x_train and x_test are texts, as token ids in a row: samples are windows of so
                                many tokens, y their next tokens
    csv:PATH?label=COLUMN       a table (tables.py)
    parquet:PATH?label=COLUMN
    images:FOLDER               images, with a folder for each class (images.py)
    package.module:function     the result of a function (own.py)

    ...?part=3/8                the third of eight equal random shares (1/8 .. 8/8)
    ...?held=0.2                for csv, parquet and images: a random fifth is for evaluation, the rest for
                                training; without it all rows belong to either split

uint8 images are scaled to 0..1; images without a channel axis get one.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import PurePath
from typing import NamedTuple
from urllib.parse import parse_qsl

import numpy as np
from numpy.typing import NDArray

from edgeflock.shared.data import arrays, images, tables
from edgeflock.shared.data.fitting import describe, read_as
from edgeflock.shared.data.own import is_own, read_own
from edgeflock.shared.data.samples import Dataset, Raw, targets, to_float32
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.model.description import Description
from edgeflock.shared.model.fields import concatenate_inputs

__all__ = [
    "READERS", "Dataset", "deal", "deal_by_label", "describe", "is_stored",
    "concatenate", "load", "open_stored", "read", "to_float32", "targets"]  # fmt: skip


log = logging.getLogger(__name__)


def load(
    uri: str, split: str, description: Description | None = None, *, scales_targets: bool = False
) -> Dataset:
    """Load the `split` ("train" or "test") of the data set `uri` into memory.

    It is converted to `description`, or to its own. `scales_targets`: whether numbers to predict are scaled
    (`describe`). Raises ConfigError that names the URI and the problem.
    """
    return open_stored(uri, split, description, scales_targets=scales_targets).load()


def open_stored(
    uri: str, split: str, description: Description | None = None, *, scales_targets: bool = False
) -> Dataset:
    """Like `load`, but x may be read on demand. The log reports how missing values are handled."""
    stored, message = read_as(read(uri, split), description, targets=scales_targets)
    if message:
        log.warning("%s", message)
    return stored


def read(uri: str, split: str) -> Raw:
    """Read the samples of `uri` in their stored form. Raises ConfigError.

    The messages also name streams, which only clients accept (client/data/sources/opening.py).
    """
    scheme, _, rest = uri.partition(":")
    path, _, query = rest.partition("?")
    options = dict(parse_qsl(query, keep_blank_values=True))
    part = options.pop("part", "1/1")
    reader = READERS.get(scheme)
    if scheme == "gym":
        raise ConfigError(f"data {uri!r} is an environment in which devices act; name stored data instead")
    if reader is None:
        if not is_own(uri) or find_spec(scheme.partition(".")[0]) is None:
            missing = (
                f"there is no module {scheme!r} in the folders of PYTHONPATH or among the installed packages "
                "(in the module's folder, put PYTHONPATH=. before the command); "
            )
            schemes = ", ".join(f"{name}:" for name in READERS)
            raise ConfigError(
                f"data {uri!r}: {missing if is_own(uri) else ''}known are {schemes} and "
                f"package.module:function, and for a client streams: {STREAMS}{suggestion(uri)}"
            )
        raw = read_own(f"{scheme}:{path}", split, options)
    else:
        names = (*reader.options, "part", *(() if reader.has_splits else ("held",)))
        fraction = None if reader.has_splits else options.pop("held", None)
        for option in options:
            if option not in reader.options:
                raise ConfigError(f"data {uri!r}: option {option!r} is unknown; known are {', '.join(names)}")
        raw = reader.read(path, split, options)
        if fraction is not None:
            raw = raw.select(_held_out_rows(len(raw), fraction, split, uri))
    if part == "1/1":
        return raw
    return raw.select(_share(len(raw), part, uri))


STREAMS = "mqtt:, mqtts:, kafka:, kafkas:, http:, https:, dir:, stdin:, python:, synthetic:"
"""The schemes of streams, for messages."""


def suggestion(path: str) -> str:
    """The URI for a plain path, as the end of a message; empty if `path` does not look like one."""
    place, _, options = path.partition("?")
    suffix = "" if "://" in place else PurePath(place).suffix.lower()  # an address may hold a secret
    if suffix in (".csv", ".parquet") and options:
        return f"; a table is {suffix[1:]}:{path}"
    if suffix in (".csv", ".parquet"):
        return f"; a table is {suffix[1:]}:{place}?label=COLUMN, where COLUMN is what to predict"
    return f"; an archive of arrays is npz:{path}" if suffix == ".npz" else ""


def has_splits(uri: str) -> bool:
    """Whether `uri` has separate rows for training and evaluation, rather than all rows of a file."""
    scheme, _, rest = uri.partition(":")
    reader = READERS.get(scheme)
    return reader is None or reader.has_splits or "held" in dict(parse_qsl(rest.partition("?")[2]))


def is_stored(uri: str) -> bool:
    """Whether `uri` names stored data rather than a stream; the name of a function does not tell."""
    scheme = uri.partition(":")[0]
    return scheme in READERS and (scheme != "csv" or "label=" in uri.partition("?")[2])


def deal(data: Dataset, shares: int, samples: int = 0) -> list[Dataset]:
    """Split the data, or `samples` of it, into equal random shares: share i is that of ?part=i+1/shares.

    There must be at least as many samples as shares.
    """
    dealt = _permutation(len(data))[: samples or None]
    return [data.subset(np.sort(dealt[share::shares])) for share in range(shares)]


def concatenate(parts: Sequence[Dataset]) -> Dataset:
    x, y = concatenate_inputs([part.x for part in parts]), np.concatenate([part.y for part in parts])
    return Dataset(x, y, description=parts[0].description)


def deal_by_label(data: Dataset, shares: int, labels: int, samples: int = 0) -> list[Dataset]:
    """Split the data, or `samples` of it, into shares of `labels` classes each.

    Share i has the classes i labels, i labels + 1, ... modulo their number. Shares with a class in common get
    equal parts of it. Raises ConfigError if the data have no classes, fewer than `labels`, or too few samples
    of one.
    """
    if data.y.dtype != np.int64:
        raise ConfigError("fleet.labels: the data have targets, not classes")
    dealt = _permutation(len(data))[: samples or None]
    classes = np.unique(data.y)
    if labels > classes.size:
        raise ConfigError(f"fleet.labels = {labels}: the data have {classes.size} classes")
    holders: dict[int, list[int]] = {}
    for share in range(shares):
        for number in range(labels):
            holders.setdefault((share * labels + number) % classes.size, []).append(share)
    parts: list[list[NDArray[np.int64]]] = [[] for _ in range(shares)]
    for label, owners in holders.items():
        of_label = dealt[(data.y[dealt] == classes[label]).reshape(dealt.size, -1).any(axis=1)]
        if of_label.size < len(owners):
            raise ConfigError(
                f"fleet.labels: class {classes[label]} has {of_label.size} samples for {len(owners)}"
            )
        for place, share in enumerate(owners):
            parts[share].append(of_label[place :: len(owners)])
    return [data.subset(np.sort(np.concatenate(part))) for part in parts]


def _permutation(count: int) -> NDArray[np.int64]:
    return np.random.default_rng(0).permutation(count)


def _share(count: int, part: str, uri: str) -> NDArray[np.int64]:
    """The indices of share i of n: the same random split on every machine."""
    number, _, total = part.partition("/")
    if not (number.isdecimal() and total.isdecimal() and 1 <= int(number) <= int(total) <= count):
        raise ConfigError(f"data {uri!r}: part={part} must be I/N with 1 <= I <= N <= {count}, e.g. 3/8")
    return np.sort(_permutation(count)[int(number) - 1 :: int(total)])


def _held_out_rows(count: int, part: str, split: str, uri: str) -> NDArray[np.int64]:
    """The indices of the held-out samples, or of the rest: the same on every machine."""
    try:
        size = round(count * float(part))
    except (ValueError, OverflowError):
        size = 0
    if not 0 < size < count:
        raise ConfigError(
            f"data {uri!r}: held={part} must be a part of its {count} samples between 0 and 1, e.g. 0.2"
        )
    order = _permutation(count)
    return np.sort(order[:size] if split == "test" else order[size:])


class FormatReader(NamedTuple):
    read: Callable[[str, str, Mapping[str, str]], Raw]
    """(path, split, options) -> samples."""
    options: tuple[str, ...] = ()
    has_splits: bool = True
    """Whether a file has both splits separately."""


READERS = {
    "digits": FormatReader(arrays.read_digits),
    "npz": FormatReader(arrays.read_npz, ("context",)),
    "csv": FormatReader(lambda path, _, options: tables.read_csv(path, options), tables.CSV_OPTIONS, False),
    "parquet": FormatReader(
        lambda path, _, options: tables.read_parquet(path, options), tables.OPTIONS, False
    ),
    "images": FormatReader(lambda path, _, options: images.read_images(path, options), images.OPTIONS, False),
}

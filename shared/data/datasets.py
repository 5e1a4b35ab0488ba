"""Stored data by URI, with the same splits and shares on both ends.

    digits:                     1,797 handwritten digits of 8 x 8, which come with Edgeflock (NOTICE)
    npz:PATH                    a NumPy archive with x_train, y_train and, for evaluation, x_test, y_test;
                                an archive without splits may have x and y, which are for training only;
                                JPEG images (needs Pillow): instead of x_train, jpg_train has all files'
                                bytes in a row, and off_train each file's beginning and the last one's end;
                                several inputs: x_train.NAME, x_test.NAME, by the argument names of forward
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
from edgeflock.shared.data.samples import Dataset, Raw, Stored, scaled, targets
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.model.description import Description
from edgeflock.shared.model.fields import concatenated, rows

__all__ = [
    "READERS", "Dataset", "Stored", "deal", "deal_by_label", "describe", "is_stored",
    "joined", "load", "opened", "read", "scaled", "targets"]  # fmt: skip


log = logging.getLogger(__name__)


def load(
    uri: str, split: str, described: Description | None = None, *, scales_targets: bool = False
) -> Dataset:
    """Load the `split` ("train" or "test") of the data set `uri` into memory, as `described` or as it
    describes itself. `scales_targets`: whether numbers to predict are scaled (`describe`).

    Raises ConfigError that names the URI and the problem.
    """
    return opened(uri, split, described, scales_targets=scales_targets).whole()


def opened(
    uri: str, split: str, described: Description | None = None, *, scales_targets: bool = False
) -> Stored:
    """Like `load`, but x may be read on demand. The log reports how missing values are handled."""
    stored, said = read_as(read(uri, split), described, targets=scales_targets)
    if said:
        log.warning("%s", said)
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
        raise ConfigError(f"data {uri!r}: is an environment in which devices act, and here data are needed")
    if reader is None:
        if not is_own(uri) or find_spec(scheme.partition(".")[0]) is None:
            lacks = f"; there is no module {scheme!r} here" if is_own(uri) else ""
            schemes = ", ".join(f"{name}:" for name in READERS)
            raise ConfigError(
                f"data {uri!r}: known are {schemes} and package.module:function, and for a client streams: "
                f"{STREAMS}{lacks or meant(uri)}"
            )
        raw = read_own(f"{scheme}:{path}", split, options)
    else:
        known = (*reader.options, "part", *(() if reader.splits else ("held",)))
        held = None if reader.splits else options.pop("held", None)
        for option in options:
            if option not in reader.options:
                raise ConfigError(f"data {uri!r}: option {option!r} is unknown; known are {', '.join(known)}")
        raw = reader.read(path, split, options)
        if held is not None:
            raw = raw.chosen(_held(len(raw), held, split, uri))
    if part == "1/1":
        return raw
    return raw.chosen(_share(len(raw), part, uri))


STREAMS = "mqtt:, mqtts:, kafka:, kafkas:, http:, https:, dir:, stdin:, python:, synthetic:"
"""The schemes of streams, for messages."""


def meant(path: str) -> str:
    """The URI for a plain path, as the end of a message; empty if `path` does not look like one."""
    suffix = PurePath(path).suffix.lower()
    if suffix in (".csv", ".parquet"):
        return f"; a table is {suffix[1:]}:{path}?label=COLUMN, where COLUMN is what to predict"
    return f"; an archive of arrays is npz:{path}" if suffix == ".npz" else ""


def splits(uri: str) -> bool:
    """Whether `uri` has separate rows for training and evaluation, rather than all rows of a file."""
    scheme, _, rest = uri.partition(":")
    reader = READERS.get(scheme)
    return reader is None or reader.splits or "held" in dict(parse_qsl(rest.partition("?")[2]))


def is_stored(uri: str) -> bool:
    """Whether `uri` names stored data rather than a stream; the name of a function does not tell."""
    scheme = uri.partition(":")[0]
    return scheme in READERS and (scheme != "csv" or "label=" in uri.partition("?")[2])


def deal(data: Dataset, shares: int, samples: int = 0) -> list[Dataset]:
    """Split the data, or `samples` of it, into equal random shares: share i is that of ?part=i+1/shares.

    There must be at least as many samples as shares.
    """
    dealt = _dealt(len(data))[: samples or None]
    chosen = (np.sort(dealt[share::shares]) for share in range(shares))
    return [Dataset(rows(data.x, where), data.y[where], described=data.described) for where in chosen]


def joined(parts: Sequence[Dataset]) -> Dataset:
    """Concatenate the samples of all parts."""
    x, y = concatenated([part.x for part in parts]), np.concatenate([part.y for part in parts])
    return Dataset(x, y, described=parts[0].described)


def deal_by_label(data: Dataset, shares: int, labels: int, samples: int = 0) -> list[Dataset]:
    """Split the data, or `samples` of it, into shares of `labels` classes each. Share i has the classes i
    labels, i labels + 1, ... modulo their number. Shares with a class in common get equal parts of it.

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
    return [Dataset(rows(data.x, where), data.y[where], described=data.described) for where in chosen]


def _dealt(count: int) -> NDArray[np.int64]:
    return np.random.default_rng(0).permutation(count)


def _share(count: int, part: str, uri: str) -> NDArray[np.int64]:
    """The indices of share i of n: the same random split on every machine."""
    number, _, of = part.partition("/")
    if not (number.isdecimal() and of.isdecimal() and 1 <= int(number) <= int(of) <= count):
        raise ConfigError(f"data {uri!r}: part={part} must be I/N with 1 <= I <= N <= {count}, e.g. 3/8")
    if of == "1":
        return np.arange(count)
    return np.sort(_dealt(count)[int(number) - 1 :: int(of)])


def _held(count: int, part: str, split: str, uri: str) -> NDArray[np.int64]:
    """The indices of the held-out samples, or of the rest: the same on every machine."""
    try:
        held = round(count * float(part))
    except (ValueError, OverflowError):
        held = 0
    if not 0 < held < count:
        raise ConfigError(
            f"data {uri!r}: held={part} must be a part of its {count} samples between 0 and 1, e.g. 0.2"
        )
    dealt = _dealt(count)
    return np.sort(dealt[:held] if split == "test" else dealt[held:])


class FormatReader(NamedTuple):
    """The reader of a stored format."""

    read: Callable[[str, str, Mapping[str, str]], Raw]
    """(path, split, options) -> samples."""
    options: tuple[str, ...] = ()
    splits: bool = True
    """Whether a file has both splits separately."""


READERS = {
    "digits": FormatReader(arrays.read_digits),
    "npz": FormatReader(arrays.read_npz),
    "csv": FormatReader(lambda path, _, options: tables.read_csv(path, options), tables.CSV_OPTIONS, False),
    "parquet": FormatReader(
        lambda path, _, options: tables.read_parquet(path, options), tables.OPTIONS, False
    ),
    "images": FormatReader(lambda path, _, options: images.read_images(path, options), images.OPTIONS, False),
}

"""Data for a device's own app: how it should train, and the arrays as it knows them.

A Welcome carries the data as bytes. A device without an app does not read them.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import msgpack
import numpy as np
from numpy.typing import NDArray

from edgeflock.shared.errors import BadSamples, ConfigError, LayoutMismatch, Malformed
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.protocol.schema import AllocationLimits, unpack

CONFIG_KEY = "edgeflock"
"""The key of a training message's ConfigRecord for what to send and how. It holds a Welcome record as base64
text, because ClientApps print their config or convert it to JSON."""

REFUSED_KEY = "edgeflock-refused"
"""Present if the node's last update was refused for its content: that content must not be sent again."""

STYPE = "edgeflock.update.v1"
"""The serialisation type of an Array whose data are an Update record instead of numbers."""

_LOSSES = ("train_loss", "train-loss", "loss")
"""Metrics with the loss of an update, for operators; the first one present counts."""

REMAINS = "edgeflock/remains"
"""A buffer that may follow the running statistics. It begins at 1, and every update reports 0. Its value is
the share of the statistics' first values that is still in them."""


def layout_of(
    shapes: Iterable[tuple[str, Sequence[int]]], statistics: Iterable[str], *, remains: bool
) -> Layout:
    """Return the layout of named arrays. Those whose last part of the name is in `statistics` are buffers.

    If there are buffers, `remains` appends REMAINS. Raises ConfigError if no array is trained.
    """
    endings = frozenset(statistics)
    tensors: list[tuple[str, Sequence[int], bool]] = [
        (name, shape, name.rpartition(".")[2] in endings) for name, shape in shapes
    ]
    if remains and any(buffer for _, _, buffer in tensors):
        tensors.append((REMAINS, (1,), True))
    return Layout.from_shapes(sorted(tensors, key=itemgetter(2)))


def flatten(arrays: Mapping[str, NDArray[np.generic]], layout: Layout) -> NDArray[np.float32]:
    """Flatten the arrays that `layout` names to float32 [P + B], with 0 for REMAINS.

    Raises LayoutMismatch if one is missing or has another shape.
    """
    flat = np.zeros(layout.size, np.float32)
    for tensor in layout.tensors:
        if tensor.name == REMAINS:
            continue
        array = arrays.get(tensor.name)
        if array is None:
            raise LayoutMismatch(f"array {tensor.name!r} is missing; send back every array of the model")
        if array.shape != tensor.shape:
            raise LayoutMismatch(
                f"array {tensor.name!r} has shape {list(array.shape)} instead of {list(tensor.shape)}"
            )
        with np.errstate(over="ignore"):  # overflow is not finite, so admission refuses it
            flat[tensor.start : tensor.stop] = array.reshape(-1)
    return flat


def samples_of(metrics: Iterable[Mapping[str, object]], key: str) -> int:
    """Return the number of samples of a reply: its weight. Raises BadSamples."""
    weight = next((record[key] for record in metrics if key in record), None)
    if not isinstance(weight, int | float) or not math.isfinite(weight):
        raise BadSamples(f"the reply's metrics lack {key!r}, the number of samples it was computed from")
    return max(0, round(weight))


def loss_of(metrics: Iterable[Mapping[str, object]]) -> float:
    """Return the loss in a reply's metrics; NaN if there is none."""
    found = (record[key] for record in metrics for key in _LOSSES if key in record)
    loss = next(found, math.nan)
    return float(loss) if isinstance(loss, int | float) else math.nan


Value = bool | int | float | str | list[bool] | list[int] | list[float] | list[str]
"""A value in the app's configuration."""

_LONGEST_UNTRAINED = 1 << 16
"""The most bytes of all arrays that are not trained."""

_LONGEST, _MAX_ENTRIES = 1 << 22, 1 << 14
"""The most bytes of an encoded App, and entries of a list or a table in it."""

_BOUNDS = AllocationLimits(containers=4 * _MAX_ENTRIES, array=_MAX_ENTRIES, map=_MAX_ENTRIES, text=_LONGEST)
"""An array is a list, and its shape is another list."""

_SCALARS = {bool, int, float, str}


@dataclass(frozen=True, slots=True)
class Arrays:
    """A model as named arrays, in an order of their own.

    Floating-point arrays are trained, in float32, and travel in their own type. All others (BatchNorm's
    num_batches_tracked) stay as they were at first.
    """

    layout: Layout
    kinds: dict[str, np.dtype[Any] | NDArray[np.generic]]
    """Name -> the type of a trained array, or another array itself; in the arrays' order."""

    @classmethod
    def from_arrays(cls, contents: Mapping[str, NDArray[np.generic]], statistics: Iterable[str]) -> "Arrays":
        """Build from the arrays' first values. Raises ConfigError if one can be neither trained nor kept.

        `statistics` are the last name parts of running statistics.
        """
        for name, content in contents.items():
            if content.dtype.kind not in "fiub" or content.dtype.itemsize > 8:
                raise ConfigError(f"array {name!r} is of type {content.dtype}; use float32")
        untrained = sum(content.nbytes for content in contents.values() if content.dtype.kind != "f")
        if untrained > _LONGEST_UNTRAINED:
            raise ConfigError(
                f"arrays of {untrained} bytes are not floating-point, and so are not trained; at most "
                f"{_LONGEST_UNTRAINED} such bytes are accepted: use float32 for arrays to train"
            )
        shapes = [(name, content.shape) for name, content in contents.items() if content.dtype.kind == "f"]
        kinds = {name: c.dtype if c.dtype.kind == "f" else c for name, c in contents.items()}
        return cls(layout_of(shapes, statistics, remains=False), kinds)

    @classmethod
    def from_layout(cls, layout: Layout) -> "Arrays":
        """The arrays of a model without further information: all are float32, in the layout's order."""
        return cls(layout, {tensor.name: np.dtype(np.float32) for tensor in layout.tensors})

    def flatten(self, contents: Mapping[str, NDArray[np.generic]]) -> NDArray[np.float32]:
        """Flatten `contents` to float32 [P + B]. Raises LayoutMismatch."""
        return flatten(contents, self.layout)

    def split(self, theta: NDArray[np.float32]) -> dict[str, NDArray[np.generic]]:
        """Split theta, float32 [P + B], into its arrays, in their order and types."""
        parts = {t.name: theta[t.start : t.stop].reshape(t.shape) for t in self.layout.tensors}
        return {
            name: parts[name].astype(kind, copy=False) if isinstance(kind, np.dtype) else kind
            for name, kind in self.kinds.items()
        }


@dataclass(frozen=True, slots=True)
class App:
    config: dict[str, Value]
    """The server's [client_config]."""
    evaluate: int
    """Updates of a device from one evaluation by its app to the next; 0: none."""
    arrays: Arrays


def encode(app: App) -> bytes:
    """Encode [config, evaluate, [[name, type], or [name, type, shape, bytes] of an untrained array, ...]]."""
    arrays = [
        [name, kind.str] if isinstance(kind, np.dtype) else [name, kind.dtype.str, kind.shape, kind.tobytes()]
        for name, kind in app.arrays.kinds.items()
    ]
    octets: bytes = msgpack.packb([app.config, app.evaluate, arrays])
    return octets


def decode(octets: bytes, layout: Layout) -> App:
    """Decode the App for a model of this layout. Raises Malformed, or LayoutMismatch for another layout."""
    if len(octets) > _LONGEST:
        raise Malformed(
            f"the data for the device's app has {len(octets)} bytes; at most {_LONGEST} are accepted"
        )
    try:
        config, evaluate, entries = unpack(octets, _BOUNDS, "the data for the device's app")
        kinds = dict(_entry(*entry) for entry in entries)
        sound = type(config) is dict and all(_is_value(value) for value in config.values())
    except (ValueError, TypeError, AttributeError) as error:
        raise Malformed(f"the data for the device's app cannot be read: {error}") from error
    if not sound or type(evaluate) is not int or evaluate < 0:
        raise Malformed("the data for the device's app must be [config, evaluate, arrays]")
    trained = {name for name, kind in kinds.items() if isinstance(kind, np.dtype)}
    if trained != {tensor.name for tensor in layout.tensors}:
        raise LayoutMismatch("the arrays in the data for the app are not those of the model")
    return App(config, evaluate, Arrays(layout, kinds))


def _entry(
    name: str, kind: str, shape: Iterable[int] | None = None, octets: bytes = b""
) -> tuple[str, np.dtype[Any] | NDArray[np.generic]]:
    dtype = np.dtype(kind)
    if dtype.kind not in "fiub" or type(name) is not str or (shape is None) != (dtype.kind == "f"):
        raise ValueError(f"array {name!r:.100} is of type {kind!r:.20}")
    return name, dtype if shape is None else np.frombuffer(octets, dtype).reshape(tuple(shape))


def _is_value(value: object) -> bool:
    kinds = {type(entry) for entry in value} if type(value) is list else {type(value)}
    return len(kinds) <= 1 and kinds <= _SCALARS

"""Conventions between a Flower strategy and a ClientApp's mod. numpy only: no flwr.

A Flower message carries named arrays; here a model is one flat vector. Floating-point arrays are trained, in
the order of their record. Those with running statistics (by their names) come last, as a Layout requires.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from edgeflock.shared.errors import BadSamples, LayoutMismatch
from edgeflock.shared.model.layout import Layout

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

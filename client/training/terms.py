"""Checks a server's Welcome: its values must be valid, and its model fit the device's memory.

A Welcome defines how much a device stores, computes and sends. Nothing in it is trusted before these checks.
"""

import math
from typing import Any

from edgeflock.shared.codecs import sparse, values
from edgeflock.shared.errors import ConfigError, ServerAtFault
from edgeflock.shared.model.calls import LONGEST
from edgeflock.shared.model.chunks import MAX_CHUNKS
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.model.lora import A, B
from edgeflock.shared.protocol.messages import PROTOCOL, Welcome

_MAX_TENSORS, _MAX_RANK, _MAX_NAME = 10_000, 8, 300
"""Largest numbers of tensors, of dimensions of a tensor, and of characters of a name."""

_MAX_SAMPLES = 1 << 24
"""Largest number of samples of an update."""
_MAX_BATCH = 1 << 16
"""Largest number of samples of a batch."""

_MAX_NUMBERS = 1 << 40
"""Largest number of values of a sample."""

_MAX_SEQUENCE = 1 << 62

_ENTRY_BYTES = 24
"""Bytes that a device holds for an entry of theta: the model, the next model, the gradient, the unsent rest,
and two more during selection."""

_MOMENT_BYTES = 16
"""Additional bytes with Adafactor: the roots, the bounds of entries, their squares and the direction. The
same for each row and column of a tensor: own means, the fleet's, and two temporary ones."""

_BALANCE_BYTES = 8
"""Additional bytes if labels are balanced: theta with adjusted logits, and the weighted direction."""

_JOINED_BYTES = 8
"""Additional bytes with personal layers: the whole model, and the shared part of its gradient."""

_OVERHEAD = 1 << 12
"""Upper bound of the bytes of a Model or a Receipt in addition to its streams."""

_SUM_OVERHEAD = 1 << 14
"""The same with secure sums, whose answers have keys and shares of NEIGHBOURS devices."""


def layout_of(welcome: Welcome, memory: int) -> Layout:
    """Return the layout of the run, if the Welcome is valid and fits `memory` bytes.

    Raises ServerAtFault with the invalid value.
    """
    if welcome.protocol != PROTOCOL:
        raise ServerAtFault(f"the server speaks protocol {welcome.protocol}, this device {PROTOCOL}")
    _check(_is_text(welcome.run, _MAX_NAME), "run", welcome.run)
    for name in ("model", "loss"):
        _check(_is_text(getattr(welcome, name), LONGEST), name, getattr(welcome, name))
    for name, limit in (
        ("batch", _MAX_BATCH),
        ("local_steps", _MAX_SAMPLES // max(1, min(welcome.batch, _MAX_BATCH))),
        ("frame_bytes", math.inf),
    ):
        _check(1 <= getattr(welcome, name) <= limit, name, getattr(welcome, name), limit)
    for name in ("version", "sequence", "evaluate", "examples"):
        _check(getattr(welcome, name) <= _MAX_SEQUENCE, name, getattr(welcome, name))
    for name in ("balance", "threshold", "feedback", "alpha", "beta"):
        _check(0 <= getattr(welcome, name) <= 1, name, getattr(welcome, name))
    for name in ("elastic", "momentum", "adafactor"):
        _check(0 <= getattr(welcome, name) < 1, name, getattr(welcome, name))
    _check(0 < welcome.select <= 1, "select", welcome.select)
    alone = welcome.tasks or welcome.elastic or welcome.adafactor or welcome.balances or welcome.evaluate
    _check(not (welcome.sums and alone), "reports of single devices in secure sums", True)
    _check(
        welcome.significance is None or 0 <= welcome.significance < math.inf,
        "significance",
        welcome.significance,
    )
    for name in ("proximal", "clip", "noise"):
        _check(0 <= getattr(welcome, name) < math.inf, name, getattr(welcome, name))
    _check(not welcome.clip or welcome.noise > 0, "noise", welcome.noise)
    by_example = bool(welcome.clip) and welcome.sums is None  # else each device is clipped
    _check(bool(welcome.examples) == by_example, "examples", welcome.examples)
    _check(0 < welcome.local_rate < math.inf, "local_rate", welcome.local_rate)
    _check(welcome.indices in (coding.mode for coding in sparse.CODINGS.values()), "indices", welcome.indices)
    _check(welcome.values in (coding.mode for coding in values.CODINGS.values()), "values", welcome.values)
    grids = welcome.indices == sparse.GRID, welcome.values == values.CODINGS["scale"].mode
    _check(grids[0] == grids[1], "indices and values", f"{welcome.indices} and {welcome.values}")
    sizes = welcome.input or ()
    _check(
        len(sizes) <= _MAX_RANK and 1 <= math.prod(sizes) <= _MAX_NUMBERS,
        "input",
        list(sizes[: _MAX_RANK + 1]),
    )
    if welcome.data is not None and (welcome.data.means or welcome.data.categories):
        inputs = welcome.data.inputs if welcome.data.columns else len(welcome.data.means)
        _check(welcome.input == (inputs,), "data with so many inputs", inputs)
    layout = _layout(welcome.layout)
    _check(not (welcome.clip and layout.buffers), "clip, with running statistics", welcome.clip)
    _check(not (welcome.sums and layout.buffers), "running statistics in secure sums", layout.buffers)
    base = _base_layout(welcome, layout)
    personal = _personal_layout(welcome, layout)
    tensors = [*layout.tensors, *(() if personal is None else personal.tensors)]
    lines = sum(_lines(tensor.shape) for tensor in tensors)
    held = _ENTRY_BYTES * layout.size
    if personal is not None:
        held += (_ENTRY_BYTES + _MOMENT_BYTES) * personal.size + _JOINED_BYTES * layout.size
    held += _MOMENT_BYTES * (layout.size + lines) if welcome.adafactor else 2 * lines
    held += _BALANCE_BYTES * layout.size if welcome.balances else 0
    frozen = 0 if base is None else base.size
    held += 0 if welcome.base is None else welcome.base.size
    if held > memory:
        raise ServerAtFault(
            f"the server's model has {layout.size + frozen} entries in {lines} rows and columns, for "
            "which this device's memory is too small"
        )
    if welcome.chunk and layout.size // welcome.chunk > MAX_CHUNKS:
        raise ServerAtFault(f"the server's chunks of {welcome.chunk} are more than {MAX_CHUNKS}")
    if welcome.start is not None and len(welcome.start.tensors) != len(layout.tensors):
        raise ServerAtFault(
            f"the server's start has {len(welcome.start.tensors)} tensors, its layout {len(layout.tensors)}"
        )
    return layout


def _personal_layout(welcome: Welcome, layout: Layout) -> Layout | None:
    """Return the layout of the personal layers, if there are any. Raises ServerAtFault if it is not valid."""
    if welcome.personal is None:
        return None
    own = _layout(welcome.personal.shapes)
    both = {tensor.name for tensor in own.tensors} & {tensor.name for tensor in layout.tensors}
    _check(not both, "personal layers that are shared as well", sorted(both))
    _check(not own.buffers, "running statistics in personal layers", own.buffers)
    _check(len(welcome.personal.start.tensors) == len(own.tensors), "personal.start of", len(own.tensors))
    _check(not (welcome.elastic or welcome.tasks or welcome.balances), "personal layers in such a mode", True)
    return own


def _base_layout(welcome: Welcome, layout: Layout) -> Layout | None:
    """Return the layout of the base, if there is one. Raises ServerAtFault if the adapters do not fit it."""
    if welcome.base is None:
        return None
    base = _layout(welcome.base.shapes)
    shapes = {tensor.name: tensor.shape for tensor in base.tensors}
    ranks = layout.tensors[0].shape[:1]
    _check(len(ranks) == 1 and ranks[0] >= 1, "adapters of rank", list(ranks))
    for a, b in zip(layout.tensors[::2], layout.tensors[1::2], strict=False):
        name = a.name.removesuffix(A)
        rank = a.shape[:1]
        weight = (*b.shape[:1], *a.shape[1:])
        fits = (a.name, b.name, b.shape[1:]) == (name + A, name + B, rank) and rank == ranks
        _check(fits and shapes.get(f"{name}.weight") == weight, "adapters", [a.name, b.name])
    _check(len(layout.tensors) % 2 == 0 and welcome.personal is None, "adapters with other layers", True)
    return base


def longest_message(layout: Layout, *, sums: bool = False) -> int:
    """Return the bytes of the longest valid answer of a server with this layout, with secure `sums` or not.

    A whole model has at most 4 bytes per entry. A difference has no more entries, each with at most 4 more
    bytes.
    """
    return 8 * layout.size + (_SUM_OVERHEAD if sums else _OVERHEAD)


def _layout(shapes: list[Any]) -> Layout:
    if len(shapes) > _MAX_TENSORS:
        raise ServerAtFault(
            f"the server's layout has {len(shapes)} tensors; at most {_MAX_TENSORS} are taken"
        )
    for number, entry in enumerate(shapes):
        if not _is_entry(entry):
            raise ServerAtFault(f"entry {number} of the server's layout is no name and shape of a tensor")
    try:
        layout = Layout.from_shapes(shapes)
    except ConfigError as error:
        raise ServerAtFault(f"the server's layout is not valid: {error}") from error
    if len({tensor.name for tensor in layout.tensors}) < len(shapes):
        raise ServerAtFault("the server's layout has two tensors of the same name")
    return layout


def _lines(shape: tuple[int, ...]) -> int:
    """Return the rows plus columns of a tensor as a matrix (Layout.grids), for any shape."""
    rows, *rest = shape if len(shape) > 1 else (1, *shape)
    return rows + math.prod(rest)


def _is_entry(entry: Any) -> bool:
    return (
        type(entry) is list
        and (len(entry) == 2 or (len(entry) == 3 and entry[2] is True))
        and type(entry[0]) is str
        and _is_text(entry[0], _MAX_NAME)
        and type(entry[1]) is list
        and len(entry[1]) <= _MAX_RANK
        and all(type(size) is int and 0 <= size <= 1 << 40 for size in entry[1])
    )


def _is_text(text: str, limit: int) -> bool:
    return len(text) <= limit and text.isprintable()


def _check(is_valid: bool, name: str, value: object, limit: object = None) -> None:
    if not is_valid:
        beyond = "" if limit is None else f": it must be 1 to {limit}"
        raise ServerAtFault(f"the server's Welcome has {name} = {value!r:.60}, which is not valid{beyond}")

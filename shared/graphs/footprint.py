"""The cost of a step before it runs: peak bytes and multiplications.

The code visits each node for inputs of given shapes. It also computes the values from which shapes come
(sizes, axes, products of them). Of all other tensors it knows only type and shape.
"""

from collections.abc import Callable, Mapping
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgeflock.shared.errors import BadGraph
from edgeflock.shared.graphs.graph import (
    BOOL,
    INT32,
    INT64,
    MISFITS,
    TYPES,
    Graph,
    Node,
    Port,
    Shape,
    TensorInfo,
    integer,
    integers,
    is_small,
)
from edgeflock.shared.graphs.operators import TABLE
from edgeflock.shared.graphs.shapes import slices

_WHOLE = (INT64, INT32, BOOL)

_SAFE = 1 << 31
"""Products of numbers with a magnitude below it do not overflow."""


_START = 1 << 12
"""Multiplications that take as long as the start of an operator, which a body repeats at each step."""


class Footprint(NamedTuple):
    """The cost of a step."""

    octets: int
    """The peak of the total bytes of tensors."""
    work: int
    """Multiplications, or visited entries, in total."""
    outputs: dict[str, TensorInfo]
    """The outputs of the step."""


def footprint(graph: Graph, shapes: Mapping[str, Shape]) -> Footprint:
    """Return the cost of `graph` for inputs of these shapes; `shapes` must have all its inputs.

    Raises BadGraph if operators do not fit together, or if a shape depends on more than shapes.
    """
    tensors = {
        name: _drop_entries(TensorInfo(tensor.type, tensor.shape, tensor.array()))
        for name, tensor in graph.constants.items()
    }
    tensors |= {port.name: TensorInfo(port.type, shapes[port.name]) for port in graph.inputs}
    return _visit_nodes(graph, tensors)


def _visit_nodes(graph: Graph, tensors: dict[str, TensorInfo]) -> Footprint:
    """Visit the nodes of `graph`; `tensors` has the tensors from outside it."""
    outer = frozenset(tensors)
    outputs = {port.name for port in graph.outputs}
    last = {name: number for number, node in enumerate(graph.nodes) for name in node.all_inputs()}
    allocated = peak = work = 0
    for number, node in enumerate(graph.nodes):
        results, done, scratch = _node(node, tensors)
        work += done
        if len(results) < len(node.outputs):
            raise BadGraph(f"{node.operator} ({_names(node)}) gives {len(results)} results")
        for name, result in zip(node.outputs, results, strict=False):
            if name:
                tensors[name] = result
                allocated += _octets(result)
        peak = max(peak, allocated + scratch)
        for name in {*node.all_inputs(), *node.outputs}:
            # Inputs from outside do not count, and outputs stay.
            if name in last and last[name] > number or not name or name in outputs:
                continue
            if name not in outer:
                allocated -= _octets(tensors[name])
    return Footprint(peak, work, {name: tensors[name] for name in outputs})


def _node(node: Node, tensors: dict[str, TensorInfo]) -> tuple[list[TensorInfo], int, int]:
    """(results, work, bytes that it takes while it runs)."""
    inputs = [tensors[name] if name else None for name in node.inputs]
    operator = TABLE[node.operator]
    try:
        if operator.rule is None:
            return _scan(node, inputs, tensors)
        results = operator.rule(node, [*inputs, *[None] * 5])
        work = max(1, operator.work(node, inputs, results))
        return [_compute_entries(node, inputs, results[0]), *results[1:]], work, 0
    except MISFITS as error:
        raise BadGraph(f"{node.operator} ({_names(node)}) does not fit its inputs: {error}") from error
    except BadGraph as error:
        raise BadGraph(f"{node.operator} ({_names(node)}): {error}") from error


def _scan(
    node: Node, inputs: list[TensorInfo | None], tensors: dict[str, TensorInfo]
) -> tuple[list[TensorInfo], int, int]:
    """Like `_node`, for a Scan.

    Its body takes the states and one step of the scanned inputs, and gives the next states and the results of
    the step.
    """
    body, scanned = node.body, integer(node, "num_scan_inputs")
    everything = [one for one in inputs if one is not None]
    states = len(inputs) - scanned
    if body is None or scanned < 1 or states < 0 or len(everything) < len(inputs):
        raise ValueError(f"it scans {scanned} of {len(everything)} inputs")
    if len(body.inputs) != len(inputs) or len(body.outputs) < states:
        raise ValueError(f"its body takes {len(body.inputs)} and gives {len(body.outputs)}")
    steps = everything[states].shape[0]
    if any(one.shape[0] != steps for one in everything[states:]):
        raise ValueError("the scanned inputs have different lengths")
    scanned_results = len(body.outputs) - states
    for name, count in (("scan_input_directions", scanned), ("scan_output_directions", scanned_results)):
        if set(integers(node, name, (0,) * count)) - {0, 1}:
            raise ValueError(f"{name} must be 0 or 1 each")
    one_step = [TensorInfo(one.type, one.shape) for one in everything[:states]]
    one_step += [TensorInfo(one.type, one.shape[1:]) for one in everything[states:]]
    for port, one in zip(body.inputs, one_step, strict=True):
        _check_port(port, one)
    ports = {port.name: one for port, one in zip(body.inputs, one_step, strict=True)}
    cost = _visit_nodes(body, {**tensors, **ports})
    results = []
    for number, port in enumerate(body.outputs):
        found = cost.outputs[port.name]
        _check_port(port, found)
        if number < states:
            if found[:2] != one_step[number][:2]:
                raise ValueError(f"its state {port.name} becomes {list(found.shape)}")
            results.append(TensorInfo(found.type, found.shape))
        else:
            results.append(TensorInfo(found.type, (steps, *found.shape)))
    return results, steps * (cost.work + _START * len(body.nodes)), cost.octets


def _check_port(port: Port, tensor: TensorInfo) -> None:
    fits = len(port.shape) == len(tensor.shape) and all(
        isinstance(size, str) or size == found for size, found in zip(port.shape, tensor.shape, strict=True)
    )
    if port.type != tensor.type or not fits:
        raise ValueError(f"{port.name} is {list(tensor.shape)}, its body has {list(port.shape)}")


def _octets(tensor: TensorInfo) -> int:
    return prod(tensor.shape) * TYPES[tensor.type].itemsize


def _drop_entries(tensor: TensorInfo) -> TensorInfo:
    """Return `tensor` without its entries, unless a shape may come from them."""
    return tensor if tensor.type in _WHOLE and is_small(tensor.shape) else tensor._replace(entries=None)


def _compute_entries(node: Node, inputs: list[TensorInfo | None], result: TensorInfo) -> TensorInfo:
    """Return `result` with its entries, if they can be known."""
    compute = _ENTRIES.get(node.operator)
    if result.entries is not None or compute is None or not is_small(result.shape):
        return _drop_entries(result)
    if result.type not in _WHOLE or any(one is not None and one.entries is None for one in inputs):
        return result
    entries: Any = compute(node, inputs, result)
    if entries is None or entries.shape != result.shape:
        return result
    return result._replace(entries=entries.astype(TYPES[result.type]))


def _arithmetic(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return `function` for integers, or None where machine integers might overflow."""

    def compute(node: Node, inputs: list[Any], result: TensorInfo) -> Any:
        numbers = [one.entries for one in inputs]
        return function(*numbers) if all((np.abs(one) < _SAFE).all() for one in numbers) else None

    return compute


def _divide(a: NDArray[Any], b: NDArray[Any]) -> Any:
    """Division rounds towards zero, as in C."""
    return np.abs(a) // np.abs(b) * np.sign(a) * np.sign(b) if b.all() else None


def _reshape(node: Node, inputs: list[Any], result: TensorInfo) -> Any:
    return inputs[0].entries.reshape(result.shape)


def _slice(node: Node, inputs: list[Any], result: TensorInfo) -> Any:
    parts = slices([*inputs, None, None], inputs[0].shape)
    return inputs[0].entries[tuple(parts.get(axis, slice(None)) for axis in range(inputs[0].entries.ndim))]


def _gather(node: Node, inputs: list[Any], result: TensorInfo) -> Any:
    axis: Any = node.attributes.get("axis", 0)
    return np.take(inputs[0].entries, inputs[1].entries, axis=axis)


def _concatenate(node: Node, inputs: list[Any], result: TensorInfo) -> Any:
    axis: Any = node.attributes["axis"]
    return np.concatenate([one.entries for one in inputs], axis=axis)


_ENTRIES: dict[str, Callable[[Node, list[Any], TensorInfo], Any]] = {
    "Add": _arithmetic(np.add),
    "Sub": _arithmetic(np.subtract),
    "Mul": _arithmetic(np.multiply),
    "Div": _arithmetic(_divide),
    "Equal": _arithmetic(np.equal),
    "Where": _arithmetic(np.where),
    "Cast": lambda node, operands, result: operands[0].entries,
    "Identity": _reshape,
    "Reshape": _reshape,
    "Squeeze": _reshape,
    "Unsqueeze": _reshape,
    "Slice": _slice,
    "Gather": _gather,
    "Concat": _concatenate,
}
"""Operator -> (node, inputs, its result) -> the result's entries; None if they cannot be known."""


def _names(node: Node) -> str:
    return ", ".join(filter(None, node.outputs))[:80]

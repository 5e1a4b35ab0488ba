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
from edgeflock.shared.graphs.graph import BOOL, INT32, INT64, TYPES, Graph, Node, Port
from edgeflock.shared.graphs.operators import TABLE
from edgeflock.shared.graphs.shapes import slices
from edgeflock.shared.graphs.tensor_info import MISFITS, Shape, TensorInfo, few, integer, integers

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
    seen = {
        name: _known(TensorInfo(tensor.type, tensor.shape, tensor.array()))
        for name, tensor in graph.constants.items()
    }
    seen |= {port.name: TensorInfo(port.type, shapes[port.name]) for port in graph.inputs}
    return _gone_through(graph, seen)


def _gone_through(graph: Graph, seen: dict[str, TensorInfo]) -> Footprint:
    """Visit the nodes of `graph`; `seen` has the tensors from outside it."""
    given_to_it = frozenset(seen)
    outputs = {port.name for port in graph.outputs}
    last = {name: number for number, node in enumerate(graph.nodes) for name in node.takes()}
    held = most = work = 0
    for number, node in enumerate(graph.nodes):
        results, done, within = _node(node, seen)
        work += done
        if len(results) < len(node.outputs):
            raise BadGraph(f"{node.operator} ({_names(node)}) gives {len(results)} results")
        for name, result in zip(node.outputs, results, strict=False):
            if name:
                seen[name] = result
                held += _octets(result)
        most = max(most, held + within)
        for name in {*node.takes(), *node.outputs}:
            # Inputs from outside do not count, and outputs stay.
            if name in last and last[name] > number or not name or name in outputs:
                continue
            if name not in given_to_it:
                held -= _octets(seen[name])
    return Footprint(most, work, {name: seen[name] for name in outputs})


def _node(node: Node, seen: dict[str, TensorInfo]) -> tuple[list[TensorInfo], int, int]:
    """(results, work, bytes that it takes while it runs)."""
    given = [seen[name] if name else None for name in node.inputs]
    operator = TABLE[node.operator]
    try:
        if operator.rule is None:
            return _scan(node, given, seen)
        results = operator.rule(node, [*given, *[None] * 5])
        work = max(1, operator.work(node, given, results))
        return [_computed(node, given, results[0]), *results[1:]], work, 0
    except MISFITS as error:
        raise BadGraph(f"{node.operator} ({_names(node)}) does not fit what it takes: {error}") from error
    except BadGraph as error:
        raise BadGraph(f"{node.operator} ({_names(node)}): {error}") from error


def _scan(
    node: Node, given: list[TensorInfo | None], seen: dict[str, TensorInfo]
) -> tuple[list[TensorInfo], int, int]:
    """Like `_node`, for a Scan. Its body takes the states and one step of the scanned inputs, and gives the
    next states and the results of the step."""
    body, along = node.body, integer(node, "num_scan_inputs")
    everything = [one for one in given if one is not None]
    states = len(given) - along
    if body is None or along < 1 or states < 0 or len(everything) < len(given):
        raise ValueError(f"it goes along {along} of {len(everything)} inputs")
    if len(body.inputs) != len(given) or len(body.outputs) < states:
        raise ValueError(f"its body takes {len(body.inputs)} and gives {len(body.outputs)}")
    steps = everything[states].shape[0]
    if any(one.shape[0] != steps for one in everything[states:]):
        raise ValueError("what it goes along is not of one length")
    results_along = len(body.outputs) - states
    for name, count in (("scan_input_directions", along), ("scan_output_directions", results_along)):
        if set(integers(node, name, (0,) * count)) - {0, 1}:
            raise ValueError(f"{name} must be 0 or 1 each")
    one_step = [TensorInfo(one.type, one.shape) for one in everything[:states]]
    one_step += [TensorInfo(one.type, one.shape[1:]) for one in everything[states:]]
    for port, one in zip(body.inputs, one_step, strict=True):
        _check_port(port, one)
    ports = {port.name: one for port, one in zip(body.inputs, one_step, strict=True)}
    taken = _gone_through(body, {**seen, **ports})
    results = []
    for number, port in enumerate(body.outputs):
        found = taken.outputs[port.name]
        _check_port(port, found)
        if number < states:
            if found[:2] != one_step[number][:2]:
                raise ValueError(f"its state {port.name} becomes {list(found.shape)}")
            results.append(TensorInfo(found.type, found.shape))
        else:
            results.append(TensorInfo(found.type, (steps, *found.shape)))
    return results, steps * (taken.work + _START * len(body.nodes)), taken.octets


def _check_port(port: Port, seen: TensorInfo) -> None:
    fits = len(port.shape) == len(seen.shape) and all(
        isinstance(size, str) or size == found for size, found in zip(port.shape, seen.shape, strict=True)
    )
    if port.type != seen.type or not fits:
        raise ValueError(f"{port.name} is {list(seen.shape)}, its body has {list(port.shape)}")


def _octets(seen: TensorInfo) -> int:
    return prod(seen.shape) * TYPES[seen.type].itemsize


def _known(seen: TensorInfo) -> TensorInfo:
    """Return `seen` without its entries, unless a shape may come from them."""
    return seen if seen.type in _WHOLE and few(seen.shape) else seen._replace(known=None)


def _computed(node: Node, given: list[TensorInfo | None], result: TensorInfo) -> TensorInfo:
    """Return `result` with its entries, if they can be known."""
    compute = _ENTRIES.get(node.operator)
    if result.known is not None or compute is None or not few(result.shape):
        return _known(result)
    if result.type not in _WHOLE or any(one is not None and one.known is None for one in given):
        return result
    entries: Any = compute(node, given, result)
    if entries is None or entries.shape != result.shape:
        return result
    return result._replace(known=entries.astype(TYPES[result.type]))


def _arithmetic(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return `function` for integers, or None where machine integers might overflow."""

    def compute(node: Node, given: list[Any], result: TensorInfo) -> Any:
        numbers = [one.known for one in given]
        return function(*numbers) if all((np.abs(one) < _SAFE).all() for one in numbers) else None

    return compute


def _divided(a: NDArray[Any], b: NDArray[Any]) -> Any:
    """Division rounds towards zero, as in C."""
    return np.abs(a) // np.abs(b) * np.sign(a) * np.sign(b) if b.all() else None


def _reshaped(node: Node, given: list[Any], result: TensorInfo) -> Any:
    return given[0].known.reshape(result.shape)


def _sliced(node: Node, given: list[Any], result: TensorInfo) -> Any:
    parts = slices([*given, None, None], given[0].shape)
    return given[0].known[tuple(parts.get(axis, slice(None)) for axis in range(given[0].known.ndim))]


def _gathered(node: Node, given: list[Any], result: TensorInfo) -> Any:
    axis: Any = node.attributes.get("axis", 0)
    return np.take(given[0].known, given[1].known, axis=axis)


def _concatenated(node: Node, given: list[Any], result: TensorInfo) -> Any:
    axis: Any = node.attributes["axis"]
    return np.concatenate([one.known for one in given], axis=axis)


_ENTRIES: dict[str, Callable[[Node, list[Any], TensorInfo], Any]] = {
    "Add": _arithmetic(np.add),
    "Sub": _arithmetic(np.subtract),
    "Mul": _arithmetic(np.multiply),
    "Div": _arithmetic(_divided),
    "Equal": _arithmetic(np.equal),
    "Where": _arithmetic(np.where),
    "Cast": lambda node, given, result: given[0].known,
    "Identity": _reshaped,
    "Reshape": _reshaped,
    "Squeeze": _reshaped,
    "Unsqueeze": _reshaped,
    "Slice": _sliced,
    "Gather": _gathered,
    "Concat": _concatenated,
}
"""Operator -> (node, inputs, its result) -> the result's entries; None if they cannot be known."""


def _names(node: Node) -> str:
    return ", ".join(filter(None, node.outputs))[:80]

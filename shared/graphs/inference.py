"""The forward pass of a model as a graph of its own, with the weights inside.

It is a part of the evaluation graph: what its outputs depend on, with constants in place of the inputs
theta/NAME. Neither torch nor the model's code is needed.
"""

import numpy as np
from numpy.typing import NDArray

from edgeflock.shared.errors import BadGraph
from edgeflock.shared.graphs.graph import FLOAT, Graph, GraphConstant, Node
from edgeflock.shared.graphs.step import is_output
from edgeflock.shared.model.layout import Layout

TARGET = "y"
"""The input of an evaluation that a forward pass does not need."""


def inference_of(evaluation: Graph, layout: Layout, theta: NDArray[np.float32]) -> Graph:
    """Return the forward pass of `evaluation` at theta, float32 [P + B].

    Its inputs are x, or x/NAME of each field; its outputs are those of the model. Raises BadGraph if the
    outputs depend on targets.
    """
    outputs = tuple(port for port in evaluation.outputs if is_output(port.name))
    nodes, needed = _needed(evaluation, {port.name for port in outputs})
    if TARGET in needed:
        raise BadGraph("its outputs depend on the targets, so it predicts nothing")
    weights = {
        f"theta/{tensor.name}": GraphConstant(
            FLOAT, tensor.shape, theta[tensor.start : tensor.stop].astype("<f4", copy=False).tobytes()
        )
        for tensor in layout.tensors
    }
    constants = {**evaluation.constants, **weights}
    nodes = _without_transposes(nodes, constants)
    needed = {name for node in nodes for name in node.all_inputs()}
    inputs = tuple(port for port in evaluation.inputs if port.name not in weights and port.name != TARGET)
    return Graph(nodes, {name: constants[name] for name in constants if name in needed}, inputs, outputs)


def _without_transposes(nodes: tuple[Node, ...], constants: dict[str, GraphConstant]) -> tuple[Node, ...]:
    """Transpose constants now instead of in each run. They are added to `constants`."""
    rest = []
    for node in nodes:
        constant = constants.get(node.inputs[0]) if node.operator == "Transpose" else None
        axes = node.attributes.get("perm")
        if constant is None or not isinstance(axes, tuple) or isinstance(axes, GraphConstant):
            rest.append(node)
            continue
        array = np.ascontiguousarray(constant.array().transpose(axes))
        constants[node.outputs[0]] = GraphConstant(constant.type, array.shape, array.tobytes())
    return tuple(rest)


def _needed(graph: Graph, outputs: set[str]) -> tuple[tuple[Node, ...], set[str]]:
    """Return (the nodes that `outputs` depend on, in order; all names that these nodes use or make)."""
    needed, nodes = set(outputs), []
    for node in reversed(graph.nodes):
        if needed.intersection(node.outputs):
            nodes.append(node)
            needed.update(node.all_inputs())
    return tuple(reversed(nodes)), needed

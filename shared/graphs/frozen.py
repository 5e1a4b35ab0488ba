"""A graph whose frozen tensors are constants in a file, as float32 or int8 (shared/model/base_file.py)."""

from collections.abc import Mapping
from dataclasses import replace

from edgeflock.shared.graphs.graph import INT8, Graph, GraphConstant, Node
from edgeflock.shared.model.base_file import SCALES


def freeze(graph: Graph, constants: Mapping[str, GraphConstant]) -> Graph:
    """Return `graph` with `constants` in place of inputs. An int8 matrix NAME comes with NAME:scales.

    Each use of such a matrix has a DequantizeLinear of its own, and the Transposes on the way. So no matrix
    stays in float32 from the forward to the backward pass. These nodes come first: of a node's inputs
    onnxruntime makes the one of the earliest nodes last, which is right before the use.
    """
    outputs = {port.name for port in graph.outputs}
    views: dict[str, Node] = {}
    early: list[Node] = []
    late: list[Node] = []

    def make(name: str) -> str:
        """Append the nodes that make a matrix, or a view of one. Return the name of what they make."""
        node, made = views.get(name), f"{name}:{len(early)}"
        if node is None:
            early.append(Node("DequantizeLinear", (name, name + SCALES), (made,), {"axis": 0}))
        else:
            early.append(node._replace(inputs=(make(node.inputs[0]),), outputs=(made,)))
        return made

    matrices = {name for name, constant in constants.items() if constant.type == INT8}
    for node in graph.nodes:
        used = [name for name in dict.fromkeys(node.all_inputs()) if name in matrices or name in views]
        if used and node.operator == "Transpose" and node.outputs[0] not in outputs:
            views[node.outputs[0]] = node
        else:
            late.append(_rename(node, {name: make(name) for name in used}))
    inputs = tuple(port for port in graph.inputs if port.name not in constants)
    return replace(graph, nodes=(*early, *late), constants={**graph.constants, **constants}, inputs=inputs)


def _rename(node: Node, names: Mapping[str, str]) -> Node:
    """Return `node`, and its body, with other names of inputs."""
    attributes = node.attributes
    if node.body is not None and names:
        body = replace(node.body, nodes=tuple(_rename(inner, names) for inner in node.body.nodes))
        attributes = {**attributes, "body": body}
    return node._replace(inputs=tuple(names.get(name, name) for name in node.inputs), attributes=attributes)

"""A trained model as an ONNX file, which any runtime runs. Loaded only with onnxruntime."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from edgeflock.shared.artifacts.info import ModelInfo, digest_of
from edgeflock.shared.errors import BadGraph, ConfigError, one_line
from edgeflock.shared.graphs.graph import FLOAT, Graph, GraphConstant, Node
from edgeflock.shared.graphs.reading import read
from edgeflock.shared.graphs.step import is_output
from edgeflock.shared.graphs.writing import write
from edgeflock.shared.model.fields import Inputs, arrays_by_name, describe_shape, rows
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


BATCH = 200
"""Samples that are predicted at a time."""

Outputs = Callable[[Inputs], NDArray[np.float32]]
"""x of some samples -> the model's first output, float32 [n, ...]."""


def encode(info: ModelInfo, evaluation: bytes, theta: NDArray[np.float32]) -> bytes:
    """Encode a model: its inputs are those of the module, any number of samples at a time.

    `evaluation` is the run's evaluation graph. Raises BadGraph if the outputs depend on targets.
    """
    graph = inference_of(read(evaluation), info.layout, theta)
    return write(graph, replace(info, digest=digest_of(theta)).metadata())


def load(model: Path | bytes) -> tuple[ModelInfo, Outputs]:
    """Return the description of a model, and the function that computes it.

    Raises ConfigError if the file cannot be loaded, or has no description.
    """
    name = str(model) if isinstance(model, Path) else "the model"
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # errors are also raised
    try:
        octets = model.read_bytes() if isinstance(model, Path) else model
        session = onnxruntime.InferenceSession(octets, options, providers=["CPUExecutionProvider"])
    except OSError as error:
        raise ConfigError(f"{name} cannot be read: {error.strerror}; name a model file") from error
    except Exception as error:  # onnxruntime's errors have no base of their own
        raise ConfigError(f"{name} is no ONNX model that onnxruntime runs: {one_line(error)}") from error
    info = ModelInfo.read(session.get_modelmeta().custom_metadata_map, name)
    first = session.get_outputs()[0].name

    def outputs(x: Inputs) -> NDArray[np.float32]:
        try:
            (found,) = session.run([first], arrays_by_name(x))
        except Exception as error:  # onnxruntime's errors have no base of their own
            raise ConfigError(f"{name} does not fit inputs {describe_shape(x)}: {one_line(error)}") from error
        return np.asarray(found, np.float32)

    return info, outputs


def in_batches(outputs: Outputs, x: Inputs, count: int) -> NDArray[np.float32]:
    """Return the outputs of all `count` samples of x, which may be read lazily."""
    parts = [outputs(rows(x, slice(start, start + BATCH))) for start in range(0, count, BATCH)]
    return np.concatenate(parts)

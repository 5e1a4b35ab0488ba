"""Translations by themselves: a few ONNX operators around one of them, without the exporter."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx_ir
import onnxruntime
import torch
from numpy.typing import NDArray
from onnxscript import evaluator, values
from torch import Tensor
from torch.onnx._internal.exporter import _building, _tensors

from edgeflock.server.training_graph.gradient_check import session_for

BATCHES = (1, 2, 7, 64)

Shape = tuple[int | None, ...]
"""None: the batch."""


def session(build: Callable[..., Any], inputs: Mapping[str, Shape]) -> onnxruntime.InferenceSession:
    """What `build` makes of tensors of these names and shapes, all float32."""
    ops = values.Opset("", 18)
    recorder = _building.OpRecorder(ops, {})  # type: ignore[abstract]
    tensors = [
        _tensors.SymbolicTensor(
            opset=ops,
            name=name,
            shape=onnx_ir.Shape(["batch" if size is None else size for size in shape]),
            type=onnx_ir.TensorType(onnx_ir.DataType.FLOAT),
        )
        for name, shape in inputs.items()
    ]
    with evaluator.default_as(recorder):
        made = build(*tensors)
    results = list(made) if isinstance(made, tuple | list) else [made]
    for number, node in enumerate(recorder.nodes):
        for place, value in enumerate(node.outputs):
            value.name = value.name or f"value_{number}_{place}"
    for value in results:
        value.type = value.type or onnx_ir.TensorType(onnx_ir.DataType.FLOAT)
    graph = onnx_ir.Graph(tensors, results, nodes=recorder.nodes, opset_imports={"": 18}, name="operator")
    model = onnx_ir.to_proto(onnx_ir.Model(graph, ir_version=10))
    del model.functions[:]
    return session_for(model.SerializeToString())


def run(session: onnxruntime.InferenceSession, *tensors: Tensor) -> list[NDArray[np.float32]]:
    """Its results for these arguments, in the order in which the graph was built."""
    given = {
        entry.name: tensor.detach().float().numpy()
        for entry, tensor in zip(session.get_inputs(), tensors, strict=True)
    }
    results: list[NDArray[np.float32]] = session.run(None, given)
    return results


def assert_close(found: NDArray[np.float32], wanted: Tensor, label: object = "") -> None:
    """Within 1e-5 of the largest entry."""
    exact = wanted.detach().double().numpy()
    assert found.shape == exact.shape, label
    error = np.abs(found - exact).max(initial=0)
    assert error <= 1e-5 * np.abs(exact).max(initial=1e-9), (label, error)


def normal(*shape: int, seed: int = 0) -> Tensor:
    """float64 of that shape."""
    return torch.from_numpy(np.random.default_rng([seed, *shape]).standard_normal(shape))

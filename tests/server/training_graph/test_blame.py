"""Who is to blame: the operator in an exporter's error, the module that calls it."""

import numpy as np
import pytest

from edgeflock.server.training_graph.blame import module_that_calls, operator_in
from edgeflock.server.training_graph.tracing import Example
from edgeflock.shared.model.torch_module import FlatModule

NETS = "tests.server.training_graph.models:"


@pytest.mark.parametrize(
    ("text", "operator"),
    [
        (
            "No ONNX function found for <OpOverload(op='aten.median', overload='dim')>. Failure message: no",
            "aten.median.dim",
        ),
        ("Error when calling function for torch.ops.aten.conv3d.default(%x, %w)", "aten.conv3d.default"),
        ("<OpOverload(op='prims.prod', overload='default')>", "prims.prod.default"),
        ("something else", ""),
        ("", ""),
    ],
)
def test_the_operator_is_found_in_an_error_or_in_its_causes(text: str, operator: str) -> None:
    assert operator_in(RuntimeError(text)) == operator
    outer = RuntimeError("while exporting")
    outer.__cause__ = ValueError("in between")
    outer.__cause__.__cause__ = KeyError(text)
    assert operator_in(outer) == operator


@pytest.mark.parametrize(
    ("operator", "where"),
    [
        ("aten.convolution.default", "0 (Conv2d)"),
        ("aten.convolution_backward.default", "4 (ConvTranspose2d)"),
        ("aten.gelu.default", "3 (GELU)"),
        ("aten._adaptive_avg_pool2d_backward.default", "7 (AdaptiveAvgPool2d)"),
        ("aten.avg_pool2d_backward.default", "5 (AvgPool2d)"),
        ("aten.median.dim", "it"),
    ],
)
def test_the_module_is_the_innermost_that_runs_it_first(operator: str, where: str) -> None:
    """In the order of execution, the backward pass from the end."""
    flat = FlatModule(NETS + "convolutions", "cross_entropy")
    x, y = np.zeros((4, 4, 8, 8), np.float32), np.zeros(4, np.int64)
    assert module_that_calls(operator, Example.from_batch(flat, x, y)) == where


def test_a_module_in_a_module_has_its_path() -> None:
    flat = FlatModule(NETS + "Volume", "cross_entropy")
    x, y = np.zeros((4, 2, 8, 8), np.float32), np.zeros(4, np.int64)
    example = Example.from_batch(flat, x, y)
    assert module_that_calls("aten.convolution_backward.default", example) == "0.0 (Conv3d)"
    assert module_that_calls("aten._log_softmax.default", example) == "the loss"

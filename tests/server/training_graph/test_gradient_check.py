"""What a graph must agree with torch in to be offered."""

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper

from edgeflock.server.training_graph.export import export_model
from edgeflock.server.training_graph.gradient_check import check_evaluation, check_step, feed, session_for
from edgeflock.shared.model.torch_module import FlatModule

NETS = "tests.server.training_graph.test_gradient_check:"


def line() -> object:
    """theta x, a number a sample."""
    from torch import nn

    return nn.Linear(3, 1, bias=False)


def graph(slope: float = 1.0, value: float = 1.0, *, by: str = "batch", step: bool = True) -> bytes:
    """mean((w x - y)^2) and its slope 2 mean((w x - y) x), by hand, times factors; or by 8 samples."""
    nodes = [
        helper.make_node("Transpose", ["theta/weight"], ["w"], perm=[1, 0]),
        helper.make_node("MatMul", ["x", "w"], ["out"]),
        helper.make_node("Sub", ["out", "y"], ["error"]),
        helper.make_node("Mul", ["error", "error"], ["square"]),
        helper.make_node("ReduceMean", ["square"], ["mean"], keepdims=0),
        helper.make_node("Mul", ["mean", "value"], ["loss"]),
        helper.make_node("Mul", ["error", "x"], ["pull"]),
        helper.make_node("ReduceSum", ["pull", "zero"], ["sum"], keepdims=1),
        helper.make_node("Mul", ["sum", "slope"], ["twice"]),
        helper.make_node("Size", ["y"], ["size"]),
        helper.make_node("Cast", ["size"], ["batch"], to=TensorProto.FLOAT),
        helper.make_node("Div", ["twice", by], ["gradient/weight"]),
    ]
    floats = {"value": value, "slope": 2 * slope, "eight": 8.0}
    inputs: dict[str, list[str | int | None]] = {"theta/weight": [1, 3], "x": ["b", 3], "y": ["b", 1]}
    outputs: dict[str, list[str | int | None]] = {"loss": []}
    if step:
        outputs["gradient/weight"] = [1, 3]
    made = helper.make_graph(
        nodes if step else nodes[:6],
        "step",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in outputs.items()],
        [
            *(onnx.numpy_helper.from_array(np.array(v, np.float32), n) for n, v in floats.items()),
            onnx.numpy_helper.from_array(np.array([0]), "zero"),
        ],
    )
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    octets: bytes = model.SerializeToString()
    return octets


@pytest.fixture
def flat() -> FlatModule:
    return FlatModule(NETS + "line", "mse")


def batch(size: int = 8) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    random = np.random.default_rng(2)
    return tuple(random.standard_normal((size, n)).astype(np.float32) for n in (3, 1))  # type: ignore[return-value]


def test_the_slope_of_a_parabola_passes(flat: FlatModule) -> None:
    assert check_step(flat, graph(), *batch()) is None
    assert check_evaluation(flat, graph(step=False), *batch()) is None


@pytest.mark.parametrize("factor", [1.00005, 0.99995])
def test_rounding_errors_pass(factor: float, flat: FlatModule) -> None:
    assert check_step(flat, graph(factor, factor), *batch()) is None
    assert check_evaluation(flat, graph(value=factor, step=False), *batch()) is None


@pytest.mark.parametrize("factor", [1.0002, 0.9998, 0.0, -1.0, np.nan, np.inf])
def test_more_does_not(factor: float, flat: FlatModule) -> None:
    """Ten thousandths are allowed; no number never is."""
    said = check_step(flat, graph(slope=factor), *batch())
    assert said is not None
    assert said.startswith("gradient/weight by ")
    assert said.endswith("with 8 samples")
    said = check_step(flat, graph(value=factor), *batch())
    assert said is not None
    assert said.startswith("loss by ")
    said = check_evaluation(flat, graph(value=factor, step=False), *batch())
    assert said is not None
    assert said.startswith("the loss, ")


def test_a_size_that_was_built_in_is_found_by_the_other_batch(flat: FlatModule) -> None:
    said = check_step(flat, graph(by="eight"), *batch())
    assert said is not None
    assert said.endswith("with 2 samples")


def test_a_graph_is_fed_what_it_asks_for(flat: FlatModule) -> None:
    x, y = batch()
    fed = feed(session_for(graph()), flat, flat.theta(), x, y)
    assert list(fed) == ["theta/weight", "x", "y"]
    assert np.array_equal(fed["theta/weight"], flat.theta().reshape(1, 3))


def normalised() -> object:
    """Two samples become 1 and -1, whatever they were: the gradients of what comes before cancel."""
    from torch import nn

    widths = nn.Linear(30, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 64), nn.BatchNorm1d(64)
    return nn.Sequential(*widths, nn.ReLU(), nn.Linear(64, 4))


@pytest.mark.slow
def test_what_rounding_leaves_of_sums_that_cancel_passes() -> None:
    # Refused for the second bias without that, by 5.9 ten thousandths.
    draws = np.random.default_rng(1)
    x, y = draws.standard_normal((64, 30)).astype(np.float32), draws.integers(0, 4, 64)
    export_model(NETS + "normalised", "cross_entropy", x, y)

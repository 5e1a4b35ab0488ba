"""The onnx backend: the server's graph on flat vectors. Graphs are made by hand, gradients by formula."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from edgeflock.client.backends import onnx as onnx_backend
from edgeflock.client.backends.onnx import OnnxBackend
from edgeflock.shared.errors import BadGraph, ConfigError
from edgeflock.shared.graphs.protobuf import field, varint
from edgeflock.shared.graphs.step import StepGraph
from edgeflock.shared.model.layout import Layout
from tests.client.backends.graphs import (
    INPUT_INFOS,
    INPUTS,
    LAYOUT,
    OUTPUT_INFOS,
    OUTPUTS,
    expected,
    floats,
    model,
)

Batch = tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]


def batch_of(size: int, seed: int = 0) -> Batch:
    """theta, x, y."""
    random = np.random.default_rng([seed, size])
    theta, x, y = (
        random.standard_normal(shape).astype(np.float32)
        for shape in (LAYOUT.size, (size, INPUTS), (size, OUTPUTS))
    )
    return theta, x, y


def check(backend: OnnxBackend, theta: NDArray[np.float32], x: Any, y: Any) -> None:
    loss, gradient, statistics, _, _ = backend.gradient(theta, x, y)
    wanted = expected(theta.astype(float), x.astype(float), y.astype(float))
    assert gradient.dtype == statistics.dtype == np.float32
    assert loss == pytest.approx(wanted[0], rel=1e-5)
    np.testing.assert_allclose(gradient, wanted[1], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(statistics, wanted[2], rtol=1e-4, atol=1e-6)


def test_a_graph_may_say_how_right_the_model_was() -> None:
    """As those of losses that know it do."""
    more = helper.make_node("ReduceMean", ["squared"], ["right"], keepdims=0)
    knowing = OnnxBackend(model(outputs=OUTPUT_INFOS | {"right": floats("right", ())}, more=[more]), LAYOUT)
    for seed in range(2):
        found = knowing.gradient(*batch_of(7, seed))
        assert found.right == pytest.approx(found.loss), "in this graph"
    assert OnnxBackend(model(), LAYOUT).gradient(*batch_of(7)).right is None


@pytest.mark.parametrize("size", [1, 2, 7, 64])
def test_loss_gradient_and_statistics_are_those_of_the_formula(size: int) -> None:
    theta, x, y = batch_of(size)
    before = theta.copy()
    check(OnnxBackend(model(), LAYOUT), theta, x, y)
    assert theta.tobytes() == before.tobytes()


def test_one_batch_after_the_other() -> None:
    """Of any size: nothing is left over from the batch before."""
    backend = OnnxBackend(model(), LAYOUT)
    for seed, size in enumerate([7, 7, 64, 1, 7]):
        check(backend, *batch_of(size, seed))


def test_theta_is_looked_at_in_each_step() -> None:
    """The same vector with new values in it, another vector, one that cannot be written, and a view."""
    backend = OnnxBackend(model(), LAYOUT)
    theta, x, y = batch_of(4)
    check(backend, theta, x, y)
    theta[3:11] *= -2
    check(backend, theta, x, y)
    check(backend, 3 * theta, x, y)
    check(backend, np.frombuffer((theta + 1).tobytes(), np.float32), x, y)
    strided = np.repeat(theta, 2)[::2]
    check(backend, strided, x, y)
    strided[:] = 5
    check(backend, strided, x, y)
    check(backend, theta, x, y)


def test_a_model_without_buffers_or_inputs_that_are_not_needed() -> None:
    """loss = w (mean of x), so that d loss / d w = mean of x."""
    make = helper.make_node
    nodes = [
        make("ReduceMean", ["x", "first"], ["gradient/w"], keepdims=0),
        make("Mul", ["gradient/w", "theta/w"], ["product"]),
        make("ReduceSum", ["product"], ["loss"], keepdims=0),
    ]
    graph = helper.make_graph(
        nodes,
        "step",
        [floats("theta/w", (3,)), floats("x", ("batch", 3)), floats("y", ("batch",))],
        [floats("loss", ()), floats("gradient/w", (3,))],
        [numpy_helper.from_array(np.array([0]), "first")],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    backend = OnnxBackend(made.SerializeToString(), Layout.from_shapes([("w", (3,))]))
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    loss, gradient, statistics, _, _ = backend.gradient(
        np.array([1, 2, 4], np.float32), x, np.zeros(2, np.float32)
    )
    assert loss == 1.5 + 2 * 2.5 + 4 * 3.5
    assert gradient.tolist() == [1.5, 2.5, 3.5]
    assert statistics.size == 0


THETA, X, Y = batch_of(4)

BAD: dict[str, tuple[Any, Any]] = {
    "inputs of another shape": (np.zeros((4, INPUTS + 1), np.float32), Y),
    "inputs of another rank": (np.zeros((4, INPUTS, 1), np.float32), Y),
    "inputs of another type": (X.astype(np.float64), Y),
    "targets of another shape": (X, Y[:, 0]),
    "targets of another type": (X, np.zeros((4, OUTPUTS), np.int64)),
}


@pytest.mark.parametrize(("x", "y"), BAD.values(), ids=BAD.keys())
def test_data_that_do_not_fit_are_a_config_error(x: Any, y: Any, capfd: pytest.CaptureFixture[str]) -> None:
    backend = OnnxBackend(model(), LAYOUT, model="package:Model")
    with pytest.raises(ConfigError, match="package:Model cannot train on inputs") as raised:
        backend.gradient(THETA, x, y)
    message = str(raised.value)
    assert f"{list(x.shape[1:])} with targets {y.dtype}" in message
    assert "\n" not in message
    assert capfd.readouterr().err == "", "the error says it all"
    check(backend, THETA, X, Y)


def without(name: str, infos: dict[str, onnx.ValueInfoProto]) -> dict[str, onnx.ValueInfoProto]:
    return {key: info for key, info in infos.items() if key != name}


def counted() -> bytes:
    """A graph that gives an integer as one of its gradients."""
    changed = onnx.load_from_string(model())
    (info,) = (one for one in changed.graph.output if one.name == "gradient/unused")
    info.type.tensor_type.elem_type = TensorProto.INT64
    (node,) = (one for one in changed.graph.node if one.output[0] == "gradient/unused")
    node.input[0] = "size"
    octets: bytes = changed.SerializeToString()
    return octets


MISFITS: dict[str, tuple[bytes, str]] = {
    "no loss": (model(outputs=without("loss", OUTPUT_INFOS)), "does not give loss"),
    "a gradient missing": (
        model(outputs=without("gradient/dense.bias", OUTPUT_INFOS)),
        "does not give gradient/dense.bias",
    ),
    "a buffer missing": (
        model(outputs=without("buffer/norm.running_mean", OUTPUT_INFOS)),
        "does not give buffer/norm.running_mean",
    ),
    "another input": (
        model(inputs=INPUT_INFOS | {"z": floats("theta/secret", (2,))}),
        "asks for theta/secret",
    ),
    "a parameter of another shape": (
        model(inputs=INPUT_INFOS | {"theta/dense.bias": floats("theta/dense.bias", (1,))}),
        r"takes theta/dense.bias as \[1\] of type 1, the layout has float \[2\]",
    ),
    "a gradient of another type": (counted(), r"gives gradient/unused as \[\] of type 7"),
    "one more output": (
        model(outputs=OUTPUT_INFOS | {"leak": floats("product", ("batch", OUTPUTS))}),
        "gives product, which is no part of a step",
    ),
    "no targets": (
        model(inputs=without("y", INPUT_INFOS), more=[helper.make_node("Identity", ["product"], ["y"])]),
        "Sub takes y, which nothing before it makes",
    ),
    "a list of sizes that fills the memory": (
        model(more=[helper.make_node("Split", ["product"], ["part"], axis=0, num_outputs=1 << 33)]),
        "1 outputs, for another num_outputs",
    ),
    "no graph": (b"", "the model has no ir_version"),
    "no ONNX": (b"<html>" * 40, "the model has a field of wire type 4"),
    "cut short": (model()[:-40], "cut short"),
}


@pytest.mark.parametrize(("graph", "said"), MISFITS.values(), ids=MISFITS.keys())
def test_a_graph_that_does_not_fit_the_layout_is_refused(graph: bytes, said: str) -> None:
    with pytest.raises(BadGraph, match=said) as raised:
        OnnxBackend(graph, LAYOUT, model="package:Model")
    assert "package:Model" in str(raised.value)


# What a hostile server serves


def stealing(path: Path) -> bytes:
    """A graph whose gradient is a file: a subgraph's constant, whose tag of external data is spelt longer."""
    outside = TensorProto(name="outside", data_type=TensorProto.FLOAT, dims=[2])
    entry = onnx.StringStringEntryProto(key="location", value=str(path)).SerializeToString()
    # Field 13, external_data, and field 14, data_location = EXTERNAL: as nobody writes them.
    external = b"\xea\x80\x80\x80\x10" + varint(len(entry)) + entry + b"\xf0\x80\x80\x80\x10\x01"
    branch = helper.make_graph(
        [helper.make_node("Identity", ["outside"], ["branch"])], "branch", [], [floats("branch", (2,))]
    )
    graph = branch.SerializeToString() + field(5, outside.SerializeToString() + external)
    attributes = [
        field(1, name) + field(6, graph) + field(20, onnx.AttributeProto.GRAPH)
        for name in ("then_branch", "else_branch")
    ]
    node = onnx.NodeProto(op_type="If", input=["yes"], output=["gradient/dense.bias"]).SerializeToString()
    proto = onnx.load_from_string(model(constants=[numpy_helper.from_array(np.array(True), "yes")]))
    (own,) = (one for one in proto.graph.node if one.output[0] == "gradient/dense.bias")
    proto.graph.node.remove(own)
    more = field(1, node + b"".join(field(5, attribute) for attribute in attributes))
    return field(1, 10) + field(7, proto.graph.SerializeToString() + more) + field(8, field(2, 20))


def test_a_graph_may_not_read_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """onnxruntime itself would, and the file would leave the device as a gradient."""
    secret = np.array([3, 4], np.float32)
    (tmp_path / "secret.bin").write_bytes(secret.tobytes())
    monkeypatch.chdir(tmp_path)
    graph = stealing(Path("secret.bin"))
    session = onnx_backend.open_session(graph, 1)
    given = {"x": X, "y": Y}
    for tensor in LAYOUT.tensors:
        given[f"theta/{tensor.name}"] = THETA[tensor.start : tensor.stop].reshape(tensor.shape)
    asked = {info.name: given[info.name] for info in session.get_inputs()}
    assert session.run(["gradient/dense.bias"], asked)[0].tolist() == secret.tolist()
    with pytest.raises(BadGraph, match="an operator If, which no training step needs"):
        OnnxBackend(graph, LAYOUT)


def large(*nodes: onnx.NodeProto, **constants: NDArray[Any]) -> bytes:
    """The step with more in it."""
    return model(
        constants=[numpy_helper.from_array(value, name) for name, value in constants.items()], more=nodes
    )


make = helper.make_node
MUCH = np.array([1 << 20, 1 << 20])

BOMBS: dict[str, bytes] = {
    "ConstantOfShape": large(make("ConstantOfShape", ["much"], ["bomb"]), much=MUCH),
    "Expand": large(make("Expand", ["zero", "much"], ["bomb"]), much=MUCH),
    "Tile": large(make("Tile", ["theta/dense.weight", "much"], ["bomb"]), much=MUCH),
    "Pad": large(make("Pad", ["first", "much"], ["bomb"]), much=MUCH << 19),
    "Range": large(
        make("Range", ["from", "to", "by"], ["bomb"]),
        **{"from": np.array(0), "to": np.array(1 << 40), "by": np.array(1)},
    ),
    "a product": large(
        make("Expand", ["zero", "column"], ["a"]),
        make("Transpose", ["a"], ["b"]),
        make("MatMul", ["a", "b"], ["bomb"]),
        column=np.array([1 << 20, 1]),
    ),
    "many that are small": large(
        *(make("Expand", ["zero", "some"], [f"bomb{number}"]) for number in range(100)),
        make("Concat", [f"bomb{number}" for number in range(100)], ["bomb"], axis=0),
        some=np.array([1 << 18]),
    ),
    "by the size of the batch": large(
        make("Shape", ["x"], ["batch"], start=0, end=1),
        make("Mul", ["batch", "many"], ["times"]),
        make("Expand", ["zero", "times"], ["bomb"]),
        many=np.array([1 << 24]),
    ),
}


@pytest.mark.parametrize("graph", BOMBS.values(), ids=BOMBS.keys())
def test_a_graph_may_not_take_more_memory_than_there_is(graph: bytes) -> None:
    """It is refused before onnxruntime sees it."""
    with pytest.raises(BadGraph, match=r"takes [\d,.]+ MiB of memory, and this device has 64.0 MiB"):
        OnnxBackend(graph, LAYOUT, memory=1 << 26)


def test_nor_as_soon_as_the_batch_is_large() -> None:
    backend = OnnxBackend(model(), LAYOUT, memory=1 << 10, model="package:Model")
    check(backend, *batch_of(8))
    with pytest.raises(BadGraph, match="graph of package:Model: a step on 64 samples takes"):
        backend.gradient(*batch_of(64))


def test_nor_more_time_than_a_step_takes() -> None:
    """Small results of long work."""
    shape = np.array([1 << 12, 1 << 12])
    graph = large(
        make("Expand", ["zero", "square"], ["m0"]),
        *(make("MatMul", [f"m{n}", f"m{n}"], [f"m{n + 1}"]) for n in range(1000)),
        square=shape,
    )
    with pytest.raises(BadGraph, match=r"takes 2\^45 operations; at most 2\^44"):
        OnnxBackend(graph, LAYOUT)


def test_a_shape_that_depends_on_values_is_refused() -> None:
    graph = large(
        make("Cast", ["loss"], ["whole"], to=TensorProto.INT64),
        make("Reshape", ["whole", "first_shape"], ["sizes"]),
        make("Expand", ["zero", "sizes"], ["bomb"]),
        first_shape=np.array([1]),
    )
    with pytest.raises(BadGraph, match=r"Expand \(bomb\): a shape in it depends on values"):
        OnnxBackend(graph, LAYOUT)


@pytest.mark.parametrize("kind", [TensorProto.STRING, TensorProto.COMPLEX64, 1000])
def test_numbers_become_no_text(kind: int) -> None:
    with pytest.raises(BadGraph, match=f"entries of type {kind}"):
        OnnxBackend(large(make("Cast", ["loss"], ["text"], to=kind)), LAYOUT)


# Which graph


def test_another_graph_than_the_approved_one_is_refused() -> None:
    approved = StepGraph(model(), LAYOUT, 1 << 30).digest
    check(OnnxBackend(model(), LAYOUT, digest=approved), THETA, X, Y)
    other = large(make("Neg", ["p"], ["negative"]))
    with pytest.raises(ConfigError) as raised:
        OnnxBackend(other, LAYOUT, digest=approved)
    assert "client.graph_digest" in str(raised.value)
    assert approved in str(raised.value)
    assert StepGraph(other, LAYOUT, 1 << 30).digest in str(raised.value)


def test_the_digest_is_of_what_the_graph_says_not_of_how_it_is_spelt() -> None:
    spelt = onnx.load_from_string(model())
    for number, node in enumerate(spelt.graph.node):
        node.name = f"node {number}"
    other = spelt.SerializeToString()
    assert other != model()
    assert StepGraph(other, LAYOUT, 1 << 30).digest == StepGraph(model(), LAYOUT, 1 << 30).digest


def test_names_may_hold_any_word() -> None:
    """A layer called location is none of it."""
    name = "location.weight"
    inputs, outputs = (
        {
            key: floats(key.replace("dense.weight", name), (OUTPUTS, INPUTS))
            if "dense.weight" in key
            else info
            for key, info in infos.items()
        }
        for infos in (INPUT_INFOS, OUTPUT_INFOS)
    )
    renamed = onnx.load_from_string(model(inputs, outputs))
    for node in renamed.graph.node:
        for names in (node.input, node.output):
            names[:] = [one.replace("dense.weight", name) for one in names]
    layout = Layout.from_shapes(
        [(t.name.replace("dense.weight", name), t.shape, t.buffer) for t in LAYOUT.tensors]
    )
    check(OnnxBackend(renamed.SerializeToString(), layout), THETA, X, Y)


@pytest.mark.parametrize("threads", [1, 3])
def test_it_uses_the_threads_it_may(threads: int) -> None:
    session = onnx_backend.open_session(model(), threads)
    options = session.get_session_options()
    assert (options.intra_op_num_threads, options.inter_op_num_threads) == (threads, 1)
    assert options.execution_mode == onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    assert options.get_session_config_entry("session.intra_op.allow_spinning") == "0"


@pytest.mark.filterwarnings("ignore:Specified provider")
def test_an_accelerator_that_is_not_there() -> None:
    """onnxruntime alone would quietly take the CPU."""
    if "CUDAExecutionProvider" in onnxruntime.get_available_providers():
        check(OnnxBackend(model(), LAYOUT, accelerator="cuda"), THETA, X, Y)
        return
    with pytest.raises(ConfigError, match=r"client\.accelerator = 'cuda'.*cannot use it here.*leave it out"):
        OnnxBackend(model(), LAYOUT, accelerator="cuda")


def test_an_accelerator_gets_theta_anew_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """It keeps a copy."""
    bound: list[str] = []
    real = onnx_backend.open_session

    class Binding:
        def __init__(self, binding: Any) -> None:
            self.real = binding

        def bind_cpu_input(self, name: str, array: NDArray[np.generic]) -> None:
            bound.append(name)
            self.real.bind_cpu_input(name, array.copy())

        def bind_output(self, *place: Any) -> None:
            self.real.bind_output(*place)

    class Cuda:
        """The CPU's session under another name, that copies what it is given."""

        def __init__(self, session: onnxruntime.InferenceSession) -> None:
            self.real = session
            self.get_inputs, self.get_outputs = session.get_inputs, session.get_outputs

        def get_providers(self) -> list[str]:
            return ["CUDAExecutionProvider", "CPUExecutionProvider"]

        def io_binding(self) -> Binding:
            return Binding(self.real.io_binding())

        def run_with_iobinding(self, binding: Binding) -> None:
            self.real.run_with_iobinding(binding.real)

    def open_session(graph: bytes, threads: int, base: object, accelerator: str) -> Any:
        assert accelerator == "cuda"
        return Cuda(real(graph, threads))

    monkeypatch.setattr(onnx_backend, "open_session", open_session)
    backend = OnnxBackend(model(), LAYOUT, accelerator="cuda")
    theta = THETA.copy()
    for _ in range(3):
        theta *= 2
        check(backend, theta, X, Y)
    assert len(bound) == 3 * len(INPUT_INFOS)

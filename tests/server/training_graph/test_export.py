"""Exported models compute what autograd computes, or are refused by name; nothing is silently wrong."""

import importlib
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from numpy.typing import NDArray
from onnxscript import opset18 as op
from torch import nn
from torch.nn import functional

from edgeflock.server.training_graph.export import ExportedGraphs, export_model
from edgeflock.server.training_graph.gradient_check import session_for
from edgeflock.server.training_graph.operators import translations
from edgeflock.shared.errors import ConfigError, NotExportable
from edgeflock.shared.graphs.footprint import footprint
from edgeflock.shared.graphs.operators import TABLE
from edgeflock.shared.graphs.reading import all_nodes, read
from edgeflock.shared.graphs.step import outputs_of
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.model.torch_module import FlatModule
from tests.server.training_graph.models import HERE, Arrays, reference

ZOO = "edgeflock.client.zoo:"
NETS = "benchmarks.models.nets:"
aten = torch.ops.aten

FUNCTIONS: dict[str, Any] = {
    "cross_entropy": functional.cross_entropy,
    "mse": functional.mse_loss,
    "bce": functional.binary_cross_entropy_with_logits,
}


@dataclass(frozen=True, slots=True)
class Model:
    """A module, its loss, and what its data look like."""

    path: str
    shape: tuple[int, ...]
    loss: str = "cross_entropy"
    classes: int = 4
    targets: tuple[int, ...] = ()
    ignored: bool = False
    """Whether every third target is -100, which counts for nothing."""
    words: bool = False
    """Whether inputs are whole numbers from 0 to 9."""
    together: bool = False
    """Whether samples depend on each other, so that one alone cannot train."""

    def batch(self, size: int, seed: int) -> tuple[NDArray[np.float32], NDArray[np.generic]]:
        random = np.random.default_rng([size, seed])
        x = random.standard_normal((size, *self.shape)).astype(np.float32)
        if self.words:
            x = random.integers(0, 10, x.shape).astype(np.float32)
        shape = (size, *self.targets)
        if self.loss != "cross_entropy":
            y = random.standard_normal(shape).astype(np.float32)
            return x, (y > 0).astype(np.float32) if self.loss == "bce" else y
        classes = random.integers(0, self.classes, shape)
        if self.ignored:
            classes.ravel()[2::3] = -100
        return x, classes

    def make(self) -> nn.Module:
        name, _, attribute = self.path.partition(":")
        torch.manual_seed(0)
        module: nn.Module = getattr(importlib.import_module(name), attribute)()
        return module

    def reference(
        self, layout: Layout, theta: NDArray[np.float32], x: NDArray[np.float32], y: NDArray[np.generic]
    ) -> tuple[Arrays, Arrays]:
        return reference(self.make, FUNCTIONS[self.loss], layout, theta, x, y)


long = pytest.mark.long

MODELS: dict[str, Model] = {
    "PaperMLP": Model(ZOO + "PaperMLP", (1, 28, 28), classes=10),
    "TabularMLP": Model(ZOO + "TabularMLP", (16,), classes=2),
    "DigitsCNN": Model(ZOO + "DigitsCNN", (1, 8, 8), classes=10),
    "PaperCNN": Model(ZOO + "PaperCNN", (1, 28, 28), classes=10),
    "SvhnCNN": Model(ZOO + "SvhnCNN", (3, 32, 32), classes=10),
    "ResNetGN": Model(ZOO + "ResNetGN", (3, 16, 16), classes=10),
    # Of 64 whole pictures, no batch is stable: torch's own two convolutions differ by 0.5% in its gradients.
    "ResNetBN": Model(ZOO + "ResNetBN", (3, 9, 9), classes=10),
    "LSTMTagger": Model(NETS + "LSTMTagger", (4, 32), classes=17, targets=(4,), ignored=True),
    "TransformerBlock": Model(NETS + "TransformerBlock", (16, 32), classes=10),
    "convolutions": Model(HERE + "convolutions", (4, 8, 8)),
    "signals": Model(HERE + "signals", (2, 20)),
    "Recurrent": Model(HERE + "Recurrent", (3, 4)),
    "Words": Model(HERE + "Words", (6,), classes=10, targets=(6,), ignored=True, words=True),
    "normed": Model(HERE + "normed", (6,), together=True),
    "Odd": Model(HERE + "Odd", (5, 6), together=True),
    "regression": Model(HERE + "regression", (6,), "mse", targets=(3,)),
    "Switch": Model(HERE + "Switch", (6,), "bce"),
    "Functions": Model(HERE + "Functions", (4, 6)),
    "upsampling": Model(HERE + "upsampling", (1, 4, 4)),
    "volumes": Model(HERE + "volumes", (1, 3, 4, 4)),
}

LONG = {
    "PaperCNN",  # of DigitsCNN's operators
    "SvhnCNN",
    "TransformerBlock",
    "convolutions",
    "upsampling",
    "ResNetGN",
    "ResNetBN",
    "LSTMTagger",
    "Recurrent",
    "Words",
    "Odd",
    "signals",
    "Functions",
    "volumes",
}

every_model = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=long) if name in LONG else name for name in MODELS]
)


@cache
def exported(name: str) -> ExportedGraphs:
    model = MODELS[name]
    return export_model(model.path, model.loss, *model.batch(8, seed=0))


def fed(
    session: onnxruntime.InferenceSession,
    layout: Layout,
    theta: NDArray[np.float32],
    x: NDArray[np.float32],
    y: NDArray[np.generic],
) -> Arrays:
    """The session's outputs by name, for inputs by name."""
    given: dict[str, NDArray[np.generic]] = {"x": x, "y": y}
    for tensor in layout.tensors:
        given[f"theta/{tensor.name}"] = theta[tensor.start : tensor.stop].reshape(tensor.shape)
    names = [output.name for output in session.get_outputs()]
    results = session.run(names, {entry.name: given[entry.name] for entry in session.get_inputs()})
    return dict(zip(names, results, strict=True))


def distance(found: Arrays, wanted: Arrays) -> tuple[float, str]:
    """The largest difference of a tensor relative to its own largest entry, and which it is.

    A tensor next to without a gradient is measured by a hundredth of the model's largest: what is left of it
    are rounding errors.
    """
    assert list(found) == list(wanted)
    largest = max(np.abs(value).max(initial=0) for value in wanted.values())
    return max(
        (
            float(np.abs(found[name] - value).max(initial=0))
            / max(float(np.abs(value).max(initial=0)), 1e-2 * float(largest)),
            name,
        )
        for name, value in wanted.items()
    )


def stable(
    model: Model, layout: Layout, size: int
) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.generic], Arrays, Arrays]:
    """Parameters and a batch at which torch agrees with itself when they move by a few rounding errors.

    Elsewhere a ReLU's sign or a pool's maximum hangs on the last bit, and there is no right gradient.
    """
    for seed in range(40):
        random = np.random.default_rng([size, seed, 5])
        theta = FlatModule(model.path, model.loss).theta()
        trained = layout.parameters.size
        theta[:trained] += (0.02 * random.standard_normal(trained)).astype(np.float32)
        theta[trained:] += random.uniform(0.1, 0.5, layout.buffers).astype(np.float32)
        x, y = model.batch(size, seed=seed + 1)
        step, judged = model.reference(layout, theta, x, y)
        near = (theta * (1 + 3e-7 * random.standard_normal(theta.size)).astype(np.float32) for _ in range(6))
        if all(distance(model.reference(layout, moved, x, y)[0], step)[0] < 1e-4 for moved in near):
            return theta, x, y, step, judged
    raise AssertionError("no batch is stable")


@pytest.mark.slow
@every_model
def test_gradients_statistics_and_evaluations_are_torch_s(name: str) -> None:
    model, graphs = MODELS[name], exported(name)
    layout = FlatModule(model.path, model.loss).layout
    step, evaluation = session_for(graphs.step), session_for(graphs.evaluation)
    for size in (7, 64) if model.together else (1, 2, 7, 64):
        theta, x, y, wanted, judged = stable(model, layout, size)
        far, what = distance(fed(step, layout, theta, x, y), wanted)
        assert far < 1e-5, (what, size)
        far, what = distance(fed(evaluation, layout, theta, x, y), judged)
        assert far < 1e-5, (what, size)


@pytest.mark.parametrize("wrong", [-1, -10, -11, -99, -101, 10])
def test_a_class_that_is_none_is_refused_as_torch_does(wrong: int) -> None:
    """ONNX would count a negative one from the last."""
    model, graphs = MODELS["DigitsCNN"], exported("DigitsCNN")
    flat = FlatModule(model.path, model.loss)
    x, _ = model.batch(3, seed=0)
    y = np.array([1, wrong, -100])
    with pytest.raises(IndexError, match="out of bounds"):
        flat.gradient(flat.theta(), x, y)
    for graph in (graphs.step, graphs.evaluation):
        with pytest.raises(Exception, match="(?i)out of (data bounds|range)"):
            fed(session_for(graph), flat.layout, flat.theta(), x, y)


# The file


def test_inputs_and_outputs_are_named_as_documented() -> None:
    step = onnx.load_from_string(exported("normed").step)
    assert [entry.name for entry in step.graph.input] == [
        *(f"theta/{layer}.{kind}" for layer in (0, 1, 3, 6) for kind in ("weight", "bias")),
        "theta/7.weight",
        "theta/7.bias",
        "theta/9.weight",
        "theta/9.bias",
        *(f"theta/{layer}.running_{kind}" for layer in (1, 4) for kind in ("mean", "var")),
        "x",
        "y",
    ]
    trained = [entry.name.removeprefix("theta/") for entry in step.graph.input[:12]]
    assert [entry.name for entry in step.graph.output] == [
        "loss",
        *(f"gradient/{name}" for name in trained),
        *(f"buffer/{layer}.running_{kind}" for layer in (1, 4) for kind in ("mean", "var")),
        "right",
    ]
    evaluation = onnx.load_from_string(exported("normed").evaluation)
    assert [entry.name for entry in evaluation.graph.output] == ["loss", "output"]


@pytest.mark.parametrize("name", ["DigitsCNN", "normed", "Switch"])
def test_only_the_batch_has_any_size(name: str) -> None:
    model = MODELS[name]
    layout = FlatModule(model.path, model.loss).layout
    shapes = {f"theta/{tensor.name}": [*tensor.shape] for tensor in layout.tensors}
    for octets in (exported(name).step, exported(name).evaluation):
        for entry in onnx.load_from_string(octets).graph.input:
            dimensions = entry.type.tensor_type.shape.dim
            kind = entry.type.tensor_type.elem_type
            if entry.name in ("x", "y"):
                assert dimensions[0].dim_param
                shape = model.shape if entry.name == "x" else model.targets
                assert [d.dim_value for d in dimensions[1:]] == [*shape]
                classes = entry.name == "y" and model.loss == "cross_entropy"
                assert kind == (onnx.TensorProto.INT64 if classes else onnx.TensorProto.FLOAT)
            else:
                assert [d.dim_value for d in dimensions] == shapes[entry.name]
                assert kind == onnx.TensorProto.FLOAT


@pytest.mark.parametrize("name", ["DigitsCNN", "normed", "Switch"])
def test_it_holds_what_machines_need_and_no_more(name: str) -> None:
    for octets in (exported(name).step, exported(name).evaluation):
        model = onnx.load_from_string(octets)
        onnx.checker.check_model(model, full_check=True)
        graph = model.graph
        assert {entry.domain for entry in model.opset_import} == {""}, "operators of ONNX itself"
        assert not model.functions
        assert not [*graph.value_info, *graph.metadata_props, *model.metadata_props]
        for thing in (*graph.node, *graph.input, *graph.output, *graph.initializer):
            assert not thing.metadata_props, thing.name
            assert not thing.doc_string, thing.name
        assert b"/site-packages/" not in octets
        assert b"tests" not in octets
        # The parameters are no part of it.
        assert sum(onnx.numpy_helper.to_array(tensor).size for tensor in graph.initializer) < 1000


@long
def test_devices_take_what_is_exported_and_nothing_else() -> None:
    """The table of what a graph may have is what these graphs have: no attribute more, and no text."""
    used: dict[str, dict[str, set[bytes]]] = {}
    every = [exported(name) for name in MODELS] + [export_model(*DROPPING, *pictures())]
    for graphs in every:
        for node in (*all_nodes(read(graphs.step)), *all_nodes(read(graphs.evaluation))):
            attributes = used.setdefault(node.operator, {})
            for name, value in node.attributes.items():
                attributes.setdefault(name, set()).update([value] if isinstance(value, bytes) else [])
    assert used.keys() == TABLE.keys()
    for name, operator in TABLE.items():
        assert used[name].keys() == operator.attributes.keys(), name
        assert set().union(*used[name].values()) == operator.texts, name


@every_model
def test_what_a_step_gives_and_takes_is_known_beforehand(name: str) -> None:
    model, graph = MODELS[name], read(exported(name).step)
    layout = FlatModule(model.path, model.loss).layout
    for size in (2, 7):
        x, y = model.batch(size, seed=0)
        given = {f"theta/{tensor.name}": tensor.shape for tensor in layout.tensors}
        taken = footprint(graph, {**given, "x": x.shape, "y": y.shape})
        right = {} if model.loss == "mse" else {"right": ()}
        assert {n: seen.shape for n, seen in taken.outputs.items()} == outputs_of(layout) | right


@pytest.mark.parametrize("name", ["DigitsCNN", "normed"])
def test_onnxruntime_takes_it_without_a_warning(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    for octets in (exported(name).step, exported(name).evaluation):
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 2  # warnings and worse
        onnxruntime.InferenceSession(octets, options, providers=["CPUExecutionProvider"])
    assert capfd.readouterr().err == ""


@long
def test_the_same_model_is_the_same_bytes() -> None:
    """In another process, whose hashes are salted otherwise. test_served.py has a smaller model."""
    program = (
        "import hashlib, sys; from tests.server.training_graph.test_export import exported\n"
        "graphs = exported('normed')\n"
        "for octets in (graphs.step, graphs.evaluation): print(hashlib.sha256(octets).hexdigest())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    ours = exported("normed")
    assert done.stdout.split() == [sha256(octets).hexdigest() for octets in (ours.step, ours.evaluation)]


@pytest.mark.slow
def test_a_single_sample_is_example_enough(capsys: pytest.CaptureFixture[str]) -> None:
    """And the export leaves no trace in torch, in the caller's data or on the terminal."""
    model = MODELS["Switch"]
    x, y = model.batch(1, seed=0)
    before = x.copy(), y.copy()
    ours = exported("Switch")
    assert export_model(model.path, model.loss, x, y) == ours
    assert np.array_equal(x, before[0])
    assert np.array_equal(y, before[1])
    assert torch.is_grad_enabled()
    assert capsys.readouterr() == ("", "")


# Random numbers

DROPPING = HERE + "dropping", "cross_entropy"


def pictures(size: int = 8) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    random = np.random.default_rng(3)
    return random.standard_normal((size, 4, 4, 4)).astype(np.float32), random.integers(0, 4, size)


@pytest.mark.slow
def test_a_model_that_drops_at_random_passes() -> None:
    """And drops anew in every step, but never in an evaluation."""
    x, y = pictures()
    graphs = export_model(*DROPPING, x, y)
    flat = FlatModule(*DROPPING)
    step, evaluation = session_for(graphs.step), session_for(graphs.evaluation)
    theta = flat.theta()
    losses = {float(fed(step, flat.layout, theta, x, y)["loss"]) for _ in range(5)}
    assert len(losses) == 5
    (judged,) = {float(fed(evaluation, flat.layout, theta, x, y)["loss"]) for _ in range(5)}
    assert judged == pytest.approx(flat.evaluate(theta, x, y)[0], rel=1e-5)


@pytest.mark.slow
def test_a_dropout_that_forgets_its_factor_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgetful(x: Any, share: float, training: bool | None) -> tuple[Any, Any]:
        draws: Any = op.RandomUniformLike(x)
        kept = op.GreaterOrEqual(draws, op.Constant(value_float=share))
        return op.Mul(x, op.CastLike(kept, x)), kept

    monkeypatch.setitem(translations.TRANSLATIONS, aten.native_dropout.default, forgetful)
    with pytest.raises(NotExportable, match="dropping: its ONNX graph differs.*aten.native_dropout.default"):
        export_model(*DROPPING, *pictures())


# What is refused

SIX = (6,)
PICTURE = (2, 8, 8)


def refusal(name: str, shape: tuple[int, ...], loss: str = "cross_entropy") -> str:
    random = np.random.default_rng(4)
    x = random.standard_normal((8, *shape)).astype(np.float32)
    y = random.integers(0, 4, 8)
    with pytest.raises(NotExportable) as refused:
        export_model(HERE + name, loss, x, y if loss == "cross_entropy" else y.astype(np.float32))
    assert HERE + name in str(refused.value)
    assert "\n" not in str(refused.value)
    return str(refused.value)


UNKNOWN = {
    "adaptive_maxima": (PICTURE, ["1 (AdaptiveMaxPool2d)", "aten.adaptive_max_pool2d_backward"]),
    "bags": (SIX, ["0 (Bag)", "aten._embedding_bag_backward"]),
    "Places": (PICTURE, ["pool (MaxPool2d)", "return_indices"]),
    "part_of_the_batch": (SIX, ["a part of a batch cannot train"]),
    "first_of_the_batch": (SIX, ["one sample of a batch cannot train"]),
}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "shape", "says"), [(n, s, w) for n, (s, w) in UNKNOWN.items()])
def test_what_has_no_translation_is_named(name: str, shape: tuple[int, ...], says: list[str]) -> None:
    said = refusal(name, shape)
    for part in says:
        assert part in said


@pytest.mark.parametrize("name", ["adaptive_maxima", "bags"])
def test_what_has_no_translation_is_refused_before_torch_exports(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its exporter takes seconds to find out."""

    def never(*arguments: object, **settings: object) -> None:
        raise AssertionError("torch's exporter ran")

    monkeypatch.setattr("torch.export.export", never)
    shape, says = UNKNOWN[name]
    said = refusal(name, shape)
    assert "which has no translation to ONNX" in said
    for part in says:
        assert part in said


@pytest.mark.parametrize("name", ["by_values", "by_number"])
def test_a_forward_by_values_is_refused(name: str) -> None:
    said = refusal(name, SIX)
    assert "cannot be traced" in said
    assert "must not depend on the values" in said


@pytest.mark.slow
@pytest.mark.parametrize("name", ["by_length", "one_by_one", "by_calls"])
def test_a_forward_by_anything_but_its_input_is_refused(name: str) -> None:
    assert "nor on how many samples there are" in refusal(name, SIX)


@pytest.mark.slow
def test_what_onnxruntime_cannot_run_is_refused() -> None:
    assert "cannot run" in refusal("half_precision", SIX)


@pytest.mark.parametrize(
    ("name", "shape", "loss", "says"),
    [
        ("dense", (5,), "cross_entropy", ["does not fit inputs [5] with targets int64", "mat1 and mat2"]),
        ("dense", SIX, "mse", ["does not fit inputs [6] with targets float32", "must be alike"]),
        ("a_pair", SIX, "cross_entropy", ["does not fit", "tuple"]),
        ("Words", SIX, "bce", ["does not fit"]),
    ],
)
def test_data_that_do_not_fit_are_named(
    name: str, shape: tuple[int, ...], loss: str, says: list[str]
) -> None:
    said = refusal(name, shape, loss)
    for part in says:
        assert part in said


@pytest.mark.parametrize(
    ("path", "loss", "says"),
    [
        ("nowhere:Net", "cross_entropy", "nowhere:Net"),
        (HERE + "Nothing", "cross_entropy", "Nothing"),
        (HERE + "dense", "hinge", "hinge"),
    ],
)
def test_an_unknown_module_or_loss_is_named(path: str, loss: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        export_model(path, loss, *MODELS["normed"].batch(8, seed=0))


# What would be wrong without a word


def spoiled(translation: Callable[..., Any], which: int) -> Callable[..., Any]:
    """The translation with one of its results a thousandth too large."""

    def wrong(*arguments: Any, **attributes: Any) -> Any:
        made = translation(*arguments, **attributes)
        results = list(made) if isinstance(made, tuple) else [made]
        results[which] = op.Mul(results[which], op.Constant(value_float=1.001))
        return tuple(results) if isinstance(made, tuple) else results[0]

    return wrong


@pytest.mark.slow
@pytest.mark.parametrize(
    ("operator", "which", "name"),
    [
        (aten.convolution_backward.default, 1, "convolutions"),
        (aten._native_batch_norm_legit_functional.default, 4, "normed"),
        pytest.param(aten.native_batch_norm_backward.default, 1, "normed", marks=long),
    ],
)
def test_a_wrong_translation_is_refused_by_name(
    operator: Any, which: int, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = spoiled(translations.TRANSLATIONS[operator], which)
    monkeypatch.setitem(translations.TRANSLATIONS, operator, wrong)
    model = MODELS[name]
    with pytest.raises(NotExportable) as refused:
        export_model(model.path, model.loss, *model.batch(8, seed=0))
    assert f"{model.path}: its ONNX graph differs from torch in " in str(refused.value)
    assert str(refused.value).endswith(f"the first operator that differs is {operator}")

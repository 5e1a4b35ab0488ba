"""A trained model as a file: the weights and the description come back, and ONNX computes what torch does."""

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
import torch
from torch import nn

from edgeflock.api.graphs import Graphs, export_graphs
from edgeflock.server.training_graph.export import export_model
from edgeflock.shared.artifacts import ModelInfo, digest_of, onnx_file, safetensors_file
from edgeflock.shared.artifacts.info import describe, with_tensors
from edgeflock.shared.artifacts.onnx_file import inference_of
from edgeflock.shared.errors import BadGraph, ConfigError
from edgeflock.shared.graphs.graph import FLOAT, Graph, Node, Port
from edgeflock.shared.graphs.writing import metadata_of
from edgeflock.shared.model.description import Description
from edgeflock.shared.model.fields import Fields
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.model.modules.building import apply, to_tensors
from edgeflock.shared.model.torch_module import FlatModule

DATA = Description(("warm", "mode"), (20.0, 0.0), (2.0, 1.0), ("cat", "dog"), categories=((), ("off", "on")))
LAYOUT = Layout.from_shapes([("w", (3, 2)), ("b", (2,)), ("norm.running_var", (2,), True)])
INFO = ModelInfo(
    model="model:Model",
    layout=LAYOUT,
    run="feed",
    version=41,
    loss="cross_entropy",
    input=(3,),
    data=DATA,
    evaluation={"version": 40, "loss": 0.5, "accuracy": 0.75, "metrics": {"f1": 0.7}},
)
THETA = np.random.default_rng(0).random(LAYOUT.size, np.float32)


class Mixed(nn.Module):
    """Two inputs, and running statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.last = nn.BatchNorm1d(3), nn.Linear(4, 2)

    def forward(self, seen: torch.Tensor, kind: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.last(torch.cat([self.norm(seen), kind.float().unsqueeze(1)], 1))
        return found


def test_weights_and_description_come_back(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(safetensors_file.encode(INFO, THETA))
    saved = safetensors_file.load(path)
    assert saved.info == replace(INFO, digest=digest_of(THETA))
    assert saved.theta.tobytes() == THETA.tobytes()
    tensors = safetensors.numpy.load(path.read_bytes())
    assert {name: tensor.shape for name, tensor in tensors.items()} == {
        t.name: t.shape for t in LAYOUT.tensors
    }


def test_a_file_that_was_changed_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    octets = bytearray(safetensors_file.encode(INFO, THETA))
    octets[-1] ^= 64
    path.write_bytes(octets)
    with pytest.raises(ConfigError, match="its weights are not those that were saved"):
        safetensors_file.load(path)
    path.write_bytes(safetensors.numpy.save({"w": THETA}))
    with pytest.raises(ConfigError, match=r"has no description of its model: take a file that an Edgeflock"):
        safetensors_file.load(path)
    path.write_bytes(b"none")
    with pytest.raises(ConfigError, match="cannot be read"):
        safetensors_file.load(path)
    with pytest.raises(
        ConfigError, match=r"nothing\.safetensors: no such file; a run that was evaluated has"
    ):
        safetensors_file.load(tmp_path / "nothing.safetensors")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("layout", "[["),
        ("layout", "[]"),
        ("layout", '[["w", "x", false]]'),
        ("version", "first"),
        ("data", '{"columns": 3}'),
        ("data", "[]"),
        ("evaluation", "{"),
        ("input", '["a"]'),
    ],
)
def test_a_damaged_description_is_named(key: str, value: str) -> None:
    with pytest.raises(ConfigError, match="m.onnx: its description is damaged"):
        ModelInfo.read({**INFO.metadata(), key: value}, "m.onnx")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "x"),
    [
        ("edgeflock.client.zoo:DigitsCNN", np.random.default_rng(1).random((5, 1, 8, 8), np.float32)),
        (
            "tests.shared.artifacts.test_files:Mixed",
            Fields({"seen": np.eye(3, dtype=np.float32), "kind": np.array([0, 3, 1])}),
        ),
    ],
)
def test_onnx_computes_what_torch_does(module: str, x: object) -> None:
    count = 5 if isinstance(x, np.ndarray) else 3
    y = np.zeros(count, np.int64)
    flat = FlatModule(module, "cross_entropy", seed=3)
    theta = flat.theta() + np.random.default_rng(2).random(flat.layout.size, np.float32)
    evaluation = export_model(module, "cross_entropy", x, y).evaluation
    info = replace(INFO, layout=flat.layout, model=module)
    octets = onnx_file.encode(info, evaluation, theta)
    read, outputs = onnx_file.load(octets)
    assert read == replace(info, digest=digest_of(theta))
    assert ModelInfo.read(metadata_of(octets), "m") == read
    with torch.no_grad():
        expected = apply(flat.evaluation_module(theta), to_tensors(x)).numpy()
    np.testing.assert_allclose(onnx_file.in_batches(outputs, x, count), expected, rtol=1e-4, atol=1e-5)


@cache
def digits() -> Graphs:
    return export_graphs("edgeflock.client.zoo:DigitsCNN", "cross_entropy", None, "digits:")


def test_a_file_that_is_no_model_is_named(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"no model")
    with pytest.raises(ConfigError, match=r"m\.onnx is no ONNX model that onnxruntime runs"):
        onnx_file.load(tmp_path / "m.onnx")
    with pytest.raises(ConfigError, match=r"none\.onnx cannot be read: No such file"):
        onnx_file.load(tmp_path / "none.onnx")


def test_what_needs_targets_is_no_prediction() -> None:
    ports = tuple(Port(name, FLOAT, ("n", 2)) for name in ("x", "y"))
    graph = Graph((Node("Add", ("x", "y"), ("output",), {}),), {}, ports, (Port("output", FLOAT, ("n", 2)),))
    with pytest.raises(BadGraph, match="its outputs depend on the targets"):
        inference_of(graph, LAYOUT, THETA)


def test_inputs_that_do_not_fit_are_named() -> None:
    graphs = digits()
    flat = FlatModule("edgeflock.client.zoo:DigitsCNN", "cross_entropy")
    _, outputs = onnx_file.load(
        onnx_file.encode(replace(INFO, layout=flat.layout), graphs.evaluation, flat.theta())
    )
    with pytest.raises(ConfigError, match=r"the model does not fit inputs \[3\]"):
        outputs(np.zeros((2, 3), np.float32))


@pytest.mark.parametrize("format", ["onnx", "safetensors"])
def test_a_description_is_read_without_a_library(format: str) -> None:
    whole = safetensors_file.encode(INFO, THETA)
    if format == "safetensors":
        assert describe(whole, format, "m") == replace(INFO, digest=digest_of(THETA))
    damaged = (b"", b"\xff" * 100, whole[:30], (9).to_bytes(8, "little") + b"[[[[[[[[[")
    for octets in damaged:
        with pytest.raises(ConfigError, match=f"^m (is not a {format} file|has no description of its model)"):
            describe(octets, format, "m")


def test_other_values_are_put_into_a_file() -> None:
    whole = safetensors_file.encode(INFO, THETA)
    name = LAYOUT.tensors[0].name
    values = np.full(LAYOUT.tensors[0].stop, 7, np.float32)
    changed = safetensors.numpy.load(with_tensors(whole, {name: values}))
    assert (changed[name].ravel() == 7).all()
    assert changed.keys() == safetensors.numpy.load(whole).keys()


@pytest.mark.parametrize("place", [5, None, ["a", 4], [0], [-8, -4], [0, 1 << 40], [True, 5], [4, 0]])
def test_a_place_outside_of_the_file_is_refused(place: object) -> None:
    header = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": place}}).encode()
    octets = len(header).to_bytes(8, "little") + header + bytes(8)
    with pytest.raises(ConfigError, match="the file has no float32 w of 1 numbers"):
        with_tensors(octets, {"w": np.ones(1, np.float32)})

"""The step of adapters, in torch and in ONNX, against autograd through W + (alpha / rank) B A."""

import re
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from edgeflock.client.backends.onnx import OnnxBackend
from edgeflock.client.backends.torch import TorchBackend
from edgeflock.server.training_graph.export import ExportedGraphs, export_model
from edgeflock.server.training_graph.gradient_check import feed, session_for
from edgeflock.shared.errors import BadGraph, ConfigError
from edgeflock.shared.graphs.reading import read
from edgeflock.shared.model.base_file import BaseFile
from edgeflock.shared.model.lora import Adapted, Lora
from edgeflock.shared.model.torch_module import FlatModule


class Attending(nn.Module):
    """A transformer: tied embeddings, attention by named layers, and running statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        self.q, self.k, self.v = (nn.Linear(8, 8, bias=False) for _ in range(3))
        self.norm, self.statistics = nn.LayerNorm(8), nn.BatchNorm1d(5)
        self.mlp = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))
        self.head = nn.Linear(8, 11, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, x: Tensor) -> Tensor:
        h: Tensor = self.embed(x.long())
        shares = (self.q(h) @ self.k(h).transpose(1, 2)).softmax(-1)
        h = self.statistics(self.norm(h + shares @ self.v(h)))
        output: Tensor = self.head((h + self.mlp(h)).mean(1))
        return output


ATTENDING = f"{__name__}:Attending"
LORA = Lora(3, 6.0, ("q", "v", "mlp.*"))
INT8 = LORA._replace(int8=True)
RANDOM = np.random.default_rng(0)
X = RANDOM.integers(0, 11, (6, 5)).astype(np.float32)
Y = RANDOM.integers(0, 11, 6)


def pretrained(lora: Lora) -> tuple[FlatModule, Adapted]:
    """The model with adapters, and its base."""
    flat = FlatModule(ATTENDING, "cross_entropy", 3, None, lora)
    base = flat.base_theta()
    base += (0.1 * np.random.default_rng(1).standard_normal(base.size)).astype(np.float32) ** 2
    flat.load_base(base)
    one = flat.adapted()
    assert one is not None
    return flat, one


def adapted(lora: Lora = LORA) -> tuple[FlatModule, NDArray[np.float32]]:
    """The model with adapters, and adapters that change it."""
    flat, _ = pretrained(lora)
    theta = flat.first_model(7)[0]
    return flat, theta + (0.2 * np.random.default_rng(2).standard_normal(theta.size)).astype(np.float32)


@cache
def graphs() -> ExportedGraphs:
    return export_model(ATTENDING, "cross_entropy", X, Y, None, LORA)


def wanted(lora: Lora) -> tuple[float, NDArray[np.float32]]:
    """Loss and gradient of the adapters, by autograd through merged weights of the plain module."""
    flat, theta = adapted(lora)
    module, values = Attending(), torch.from_numpy(flat.base_theta())
    assert flat.base is not None
    state = {t.name: values[t.start : t.stop].view(t.shape) for t in flat.base.tensors}
    adapters = torch.from_numpy(theta).requires_grad_()
    parts = {t.name: adapters[t.start : t.stop].view(t.shape) for t in flat.layout.tensors}
    for layer in ("q", "v", "mlp.0", "mlp.2"):
        change = parts[f"{layer}.lora_B"] @ parts[f"{layer}.lora_A"]
        state[f"{layer}.weight"] = state[f"{layer}.weight"] + 2 * change
    module.statistics.eval()
    loss = F.cross_entropy(functional_call(module, state, torch.from_numpy(X)), torch.from_numpy(Y))
    loss.backward()  # type: ignore[no-untyped-call]
    assert adapters.grad is not None
    return loss.item(), adapters.grad.numpy()


def file_of(folder: Path, lora: Lora = LORA) -> BaseFile:
    """The file of the base, as devices have it."""
    return pretrained(lora)[1].write(folder / "base")


def torch_backend(folder: Path, lora: Lora = LORA) -> TorchBackend:
    backend = TorchBackend(ATTENDING, "cross_entropy", seed=9, lora=lora)
    backend.hold_base(file_of(folder, lora))
    return backend


def onnx_backend(folder: Path, lora: Lora = LORA) -> OnnxBackend:
    return OnnxBackend(graphs().step, adapted(lora)[0].layout, base=file_of(folder, lora))


@pytest.mark.slow
@pytest.mark.parametrize("lora", [LORA, INT8])
@pytest.mark.parametrize("make", [torch_backend, onnx_backend])
def test_both_backends_agree_with_autograd(make: Any, lora: Lora, tmp_path: Path) -> None:
    backend, (_, theta), (loss, gradient) = make(tmp_path, lora), adapted(lora), wanted(lora)
    for _ in range(2):  # the frozen running statistics stay
        found = backend.gradient(theta, X, Y)
        assert found.loss == pytest.approx(loss, rel=1e-4)
        assert found.gradient == pytest.approx(gradient, abs=1e-4 * float(np.abs(gradient).max()))
        assert found.statistics.size == 0


@pytest.mark.slow
def test_a_large_base_is_not_packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    class Options(onnxruntime.SessionOptions):  # type: ignore[misc]
        def add_session_config_entry(self, key: str, value: str) -> None:
            asked.append(f"{key}={value}")
            super().add_session_config_entry(key, value)

    monkeypatch.setattr(onnxruntime, "SessionOptions", Options)
    backend, (_, theta) = onnx_backend(tmp_path), adapted()
    packed = backend.gradient(theta, X, Y).gradient.copy()
    assert "session.disable_prepacking=0" in asked
    monkeypatch.setattr("edgeflock.client.backends.onnx._MAX_PACKED", 0)
    backend = onnx_backend(tmp_path)
    assert "session.disable_prepacking=1" in asked
    assert backend.gradient(theta, X, Y).gradient == pytest.approx(packed, abs=1e-6)


def test_a_step_leaves_the_base_bit_for_bit(tmp_path: Path) -> None:
    flat, theta = adapted()
    before = flat.base_theta().tobytes()
    flat.gradient(theta, X, Y)
    flat.evaluate(theta, X, Y)
    assert flat.base_theta().tobytes() == before
    backend = onnx_backend(tmp_path)
    backend.gradient(theta, X, Y)
    assert (tmp_path / "base").read_bytes() == before


def test_no_gradient_of_the_base_is_computed() -> None:
    flat, _ = adapted()
    graph = read(graphs().step)
    assert {port.name for port in graph.outputs} == {
        "loss", "right", *(f"gradient/{tensor.name}" for tensor in flat.layout.tensors)
    }  # fmt: skip
    assert "theta/k.weight" in {port.name for port in graph.inputs}
    assert sum(len(constant.octets) for constant in graph.constants.values()) < 1000


@pytest.mark.parametrize("lora", [LORA, INT8])
def test_the_evaluation_and_the_merged_model_agree(lora: Lora, tmp_path: Path) -> None:
    flat, theta = adapted(lora)
    backend = onnx_backend(tmp_path, lora)
    backend.learn_to_predict(graphs().evaluation)
    (outputs,) = backend.predictor(theta)(X)
    (expected,) = flat.predictor(theta)(X)
    assert outputs == pytest.approx(expected, abs=1e-4)
    one = flat.adapted()
    assert one is not None
    plain = FlatModule(ATTENDING, "cross_entropy", 1)
    (merged,) = plain.predictor(one.merge(theta))(X)
    assert merged == pytest.approx(expected, abs=1e-4)
    session = session_for(graphs().merged)
    (merged,) = session.run(["output"], feed(session, plain, one.merge(theta), X, Y))
    assert merged == pytest.approx(expected, abs=1e-4)


def test_a_graph_of_another_base_is_refused() -> None:
    flat, _ = adapted()
    with pytest.raises(BadGraph, match="asks for theta/.*which the layout does not have"):
        OnnxBackend(graphs().step, flat.layout)


def test_the_first_adapters_change_nothing() -> None:
    flat, _ = adapted()
    theta, start = flat.first_model(7)
    one = flat.adapted()
    assert one is not None
    assert one.merge(theta).tobytes() == one.theta.tobytes()
    assert start is not None
    assert start.seed == 7
    a = theta[: 3 * 8]
    assert 0.9 / np.sqrt(8) < np.abs(a).max() <= 1 / np.sqrt(8)
    assert flat.first_model(8)[0][: 3 * 8].tolist() != a.tolist()


class Fused(nn.Module):
    """Linear layers that are not called, or whose weight is of another one, too."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)
        self.body, self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)
        self.one.weight = self.two.weight


@pytest.mark.parametrize("target", ["head", "attention.out_proj", "attention.*", "one", "two"])
def test_other_layers_are_refused(target: str) -> None:
    refused = f"model.lora: the target {target!r} matches no linear layer with a weight of its own"
    with pytest.raises(ConfigError, match=re.escape(f"{refused}; the model has body")):
        FlatModule("Fused", "cross_entropy", make=Fused, lora=Lora(2, 2.0, (target,)))

"""Modules as people write them: constructor arguments, several inputs, losses of their own, tied and frozen
weights.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from edgeflock.shared.artifacts import ModelInfo, safetensors_file
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.model.fields import Fields
from edgeflock.shared.model.losses import LOSSES
from edgeflock.shared.model.torch_module import FlatModule
from edgeflock.shared.selection import select_largest
from edgeflock.shared.settings.config import parse

_bce = functional.binary_cross_entropy_with_logits

HERE = "tests.shared.model.test_own_models:"


class Wide(nn.Module):
    def __init__(self, width: int = 2, depths: tuple[int, ...] = (1,)) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, width), *(nn.Linear(width, width) for _ in depths))

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.layers(x)
        return output


class House(nn.Module):
    """By names: sizes and a town."""

    def __init__(self) -> None:
        super().__init__()
        self.towns = nn.Embedding(5, 2)
        self.head = nn.Linear(4, 1)

    def forward(self, size: Tensor, town: Tensor) -> Tensor:
        output: Tensor = self.head(torch.cat((size, self.towns(town)), 1))
        return output


class OfADict(House):
    def forward(self, batch: dict[str, Tensor]) -> Tensor:  # type: ignore[override]
        return super().forward(batch["size"], batch["town"])


class OfATuple(House):
    def forward(self, batch: tuple[Tensor, Tensor]) -> Tensor:  # type: ignore[override]
        return super().forward(*batch)


class Autoencoder(nn.Module):
    """Tied: the decoder's weight is the encoder's, and there is a buffer that nothing changes."""

    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.Embedding(6, 3)
        self.decode = nn.Linear(3, 6, bias=False)
        self.decode.weight = self.encode.weight
        self.norm = nn.BatchNorm1d(3)
        self.register_buffer("places", torch.arange(4.0))

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.decode(self.norm(self.encode(x.long())))
        return output


class Frozen(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(3, 8).requires_grad_(False)
        self.head = nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.head(self.body(x).relu())
        return output


def weighed(outputs: Tensor, batch: Mapping[str, Tensor], factor: float = 1.0) -> Tensor:
    """Squares, of large houses more."""
    return factor * (batch["size"][:, :1] * (outputs - batch["y"]) ** 2).mean()


class Contrast(nn.Module):
    def __init__(self, margin: float = 1.0) -> None:
        super().__init__()
        self.margin = margin

    def forward(self, outputs: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
        return (self.margin - outputs * batch["y"]).relu().mean()


def no_scalar(outputs: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
    return outputs


def houses(size: int = 6) -> tuple[Fields, np.ndarray[Any, np.dtype[np.float32]]]:
    random = np.random.default_rng(0)
    fields: dict[str, Any] = {
        "size": random.random((size, 2), np.float32),
        "town": random.integers(0, 5, size),
    }
    return Fields(fields), random.random((size, 1), np.float32)


def test_a_module_gets_its_arguments() -> None:
    assert FlatModule(HERE + "Wide(width=7, depths=[1, 1])", "mse").layout.size == 3 * 7 + 7 + 2 * 56
    with pytest.raises(ConfigError, match="unexpected keyword argument 'wide'"):
        FlatModule(HERE + "Wide(wide=7)", "mse")


def test_arguments_are_part_of_the_setting() -> None:
    settings = parse(overrides=["model.module=pack:Net(width=7, depths=[1])"])
    assert settings.model.module == "pack:Net(width=7, depths=[1])"
    with pytest.raises(ConfigError, match=r"unknown key model\.arguments = .*; model\.module takes them"):
        parse('[model]\nmodule = "pack:Net"\narguments = { b = 1 }\n')


@pytest.mark.parametrize("model", ["House", "OfADict"])
def test_fields_go_by_their_names(model: str) -> None:
    flat = FlatModule(HERE + model, "mse")
    x, y = houses()
    found = flat.gradient(flat.theta(), x, y)
    module = flat.module
    output = House.forward(module, torch.from_numpy(x["size"]), torch.from_numpy(x["town"]))  # type: ignore[arg-type]
    wanted = functional.mse_loss(output, torch.from_numpy(y))
    assert found.loss == pytest.approx(wanted.item())
    slopes = torch.autograd.grad(wanted, list(module.parameters()))
    np.testing.assert_allclose(found.gradient, torch.cat([g.flatten() for g in slopes]), rtol=1e-5)
    assert flat.evaluate(flat.theta(), x, y, batch=4)[0] == pytest.approx(wanted.item())


@pytest.mark.parametrize("model", ["House", "OfATuple"])
def test_fields_named_by_numbers_go_by_their_places(model: str) -> None:
    flat = FlatModule(HERE + model, "mse")
    x, y = houses()
    by_place = Fields({"0": x["size"], "1": x["town"]})
    named = FlatModule(HERE + "House", "mse")
    expected = named.gradient(named.theta(), x, y)
    assert flat.gradient(named.theta(), by_place, y).loss == pytest.approx(expected.loss)


def test_a_loss_of_one_s_own_gets_outputs_and_the_batch() -> None:
    flat = FlatModule(HERE + "House", HERE + "weighed(factor=3)")
    x, y = houses()
    output = flat.module(torch.from_numpy(x["size"]), torch.from_numpy(x["town"]))
    wanted = weighed(output, {"size": torch.from_numpy(x["size"]), "y": torch.from_numpy(y)}, 3)
    found = flat.gradient(flat.theta(), x, y)
    assert found.loss == pytest.approx(wanted.item())
    assert found.right is None
    loss, accuracy = flat.evaluate(flat.theta(), x, y)
    assert loss == pytest.approx(wanted.item())
    assert accuracy is None


def test_a_loss_may_be_a_module_s_class() -> None:
    flat = FlatModule(HERE + "Wide", HERE + "Contrast(margin=2)")
    x, y = np.ones((4, 3), np.float32), np.array([[1, -1]] * 4, np.float32)
    output = flat.module(torch.from_numpy(x))
    wanted = (2 - output * torch.from_numpy(y)).relu().mean()
    assert flat.gradient(flat.theta(), x, y).loss == pytest.approx(wanted.item())


def test_a_loss_that_is_no_scalar_is_named() -> None:
    flat = FlatModule(HERE + "Wide", HERE + "no_scalar")
    with pytest.raises(ValueError, match=r"no_scalar returns \[4, 2\], not a scalar"):
        flat.gradient(flat.theta(), np.ones((4, 3), np.float32), np.ones((4, 2), np.float32))


@pytest.mark.parametrize(
    ("loss", "wanted"),
    [
        ("huber(delta=0.5)", lambda o, y: functional.huber_loss(o, y, delta=0.5)),
        ("l1", functional.l1_loss),
        ("bce(pos_weight=[1, 3])", lambda o, y: _bce(o, y, pos_weight=torch.tensor([1.0, 3.0]))),
    ],
)
def test_losses_by_name_take_arguments(loss: str, wanted: Any) -> None:
    flat = FlatModule(HERE + "Wide", loss)
    random = np.random.default_rng(1)
    x, y = random.random((5, 3), np.float32), (random.random((5, 2)) > 0.5).astype(np.float32)
    expected = wanted(flat.module(torch.from_numpy(x)), torch.from_numpy(y))
    assert flat.gradient(flat.theta(), x, y).loss == pytest.approx(expected.item())


def test_classes_have_weights_and_labels_are_smoothed() -> None:
    flat = FlatModule(HERE + "Wide", "cross_entropy(weight=[1, 4], label_smoothing=0.1)")
    x, y = np.random.default_rng(1).random((5, 3), np.float32), np.array([0, 1, 1, 0, 1])
    wanted = functional.cross_entropy(
        flat.module(torch.from_numpy(x)),
        torch.from_numpy(y),
        weight=torch.tensor([1.0, 4.0]),
        label_smoothing=0.1,
    )
    found = flat.gradient(flat.theta(), x, y)
    assert found.loss == pytest.approx(wanted.item())
    assert found.right is not None


@pytest.mark.parametrize(
    ("loss", "says"),
    [
        ("hinge", "unknown; known are cross_entropy, mse, bce, huber, l1"),
        ("huber(delta=[)", "must be NAME"),
        ("huber(alpha=2)", "unexpected keyword argument 'alpha'|got an unexpected"),
        ("nowhere:lost", "ModuleNotFoundError"),
        (HERE + "lost", "has no attribute 'lost'"),
    ],
)
def test_a_loss_that_cannot_be_is_named(loss: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        FlatModule(HERE + "Wide", loss)
    assert "hinge" not in LOSSES


def test_a_saved_model_with_tied_weights_loads_as_it_is() -> None:
    import safetensors.torch

    flat = FlatModule(HERE + "Autoencoder", "mse")
    theta = np.random.default_rng(0).random(flat.layout.size, np.float32)
    info = ModelInfo(model="m", layout=flat.layout, run="run", version=3)
    octets = safetensors_file.encode(info, theta, flat.extra_state())
    fresh = Autoencoder()
    fresh.load_state_dict(safetensors.torch.load(octets), strict=True)
    assert fresh.decode.weight is fresh.encode.weight
    np.testing.assert_array_equal(fresh.encode.weight.detach().numpy().ravel(), theta[:18])
    assert fresh.state_dict()["places"].tolist() == [0, 1, 2, 3]


def test_of_frozen_parameters_nothing_is_sent() -> None:
    flat = FlatModule(HERE + "Frozen", "cross_entropy")
    x, y = np.random.default_rng(0).random((6, 3), np.float32), np.arange(6) % 2
    gradient = flat.gradient(flat.theta(), x, y).gradient
    frozen = next(tensor for tensor in flat.layout.tensors if tensor.name == "body.weight")
    assert not gradient[frozen.start : frozen.stop].any()
    for fraction in (0.01, 0.5, 1.0):
        selected = select_largest(gradient, flat.layout, fraction, 0.5)
        counts = flat.layout.counts(selected)
        names = {t.name for t, count in zip(flat.layout.tensors, counts, strict=True) if count}
        assert names <= {"head.weight", "head.bias"}
        assert names
    assert "body.weight" in {tensor.name for tensor in flat.layout.tensors}, "it is of the model, and saved"

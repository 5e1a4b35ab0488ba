"""Frozen matrices in eight bits: each use makes a float32 copy, and nothing keeps it."""

import weakref

import pytest
import torch
from torch import Tensor, nn

from edgeflock.shared.model.modules import int8
from edgeflock.shared.model.modules.int8 import Int8Matrix, replace_parameter, saving_references


class Tied(nn.Module):
    """A matrix in two places, and a convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, padding=1)
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4, bias=False)
        self.second.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        h = self.conv(x).mean((2, 3))
        output: Tensor = self.second(torch.relu(self.first(h)))
        return output


def quantized(module: nn.Module) -> dict[str, Tensor]:
    """Replace all matrices; return what they make by name."""
    made = {}
    for name, parameter in [*module.named_parameters()]:
        if parameter.dim() > 1:
            numbers = torch.randint(-127, 128, parameter.shape, dtype=torch.int8)
            matrix = Int8Matrix(numbers, torch.rand(len(parameter)))
            replace_parameter(module, parameter, matrix)
            made[name] = matrix.dequantize()
    return made


def test_gradients_are_those_of_the_float_matrices_and_no_copy_lives_until_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch.manual_seed(0)
    module, plain = Tied(), Tied()
    plain.load_state_dict(module.state_dict())
    state = plain.state_dict()
    for name, values in quantized(module).items():
        state[name].copy_(values)
    x = torch.randn(2, 1, 5, 5)
    mine, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    expected = plain(theirs)
    expected.square().sum().backward()
    copies: list[weakref.ref[Tensor]] = []
    dequantize = Int8Matrix.dequantize

    def watched(matrix: Int8Matrix) -> Tensor:
        made = dequantize(matrix)
        copies.append(weakref.ref(made))
        return made

    monkeypatch.setattr(int8.Int8Matrix, "dequantize", watched)
    with saving_references():
        output = module(mine)
        loss = output.square().sum()
    assert len(copies) == 3
    assert not any(copy() is not None for copy in copies)
    loss.backward()
    assert output.detach() == pytest.approx(expected.detach(), rel=1e-5)
    assert mine.grad is not None
    assert mine.grad == pytest.approx(theirs.grad, rel=1e-5)
    assert isinstance(module.first, nn.Linear)
    assert [name for name, _ in module.named_parameters()] == ["conv.bias", "first.bias"]

"""Frozen matrices of a torch module in eight bits, of which each use makes a float32 copy.

Autograd would keep that copy for the backward pass. It keeps a reference to the int8 numbers instead, and
makes the copy anew.
"""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn


@dataclass(frozen=True, slots=True)
class Int8Matrix:
    """scales [rows] times numbers, int8 [rows, ...]."""

    numbers: Tensor
    scales: Tensor

    def dequantize(self) -> Tensor:
        """Return float32 [rows, ...], which knows this matrix."""
        made = self.numbers * self.scales.view(-1, *[1] * (self.numbers.dim() - 1))
        made._int8_matrix = self  # type: ignore[attr-defined]
        return made


def replace_parameter(module: nn.Module, parameter: Tensor, matrix: Int8Matrix) -> None:
    """Make every attribute of `module` and its layers that is this parameter compute the matrix instead."""
    for layer in module.modules():
        for name in [name for name, value in layer._parameters.items() if value is parameter]:
            del layer._parameters[name]
            kind = type(layer)
            layer.__class__ = type(kind.__name__, (kind,), {name: property(lambda _: matrix.dequantize())})


def saving_references() -> AbstractContextManager[None]:
    """Let autograd keep references in place of matrices that were made, in the block."""
    return torch.autograd.graph.saved_tensors_hooks(_pack, _unpack)


def _pack(tensor: Tensor) -> Any:
    """Return a tensor; if it is a view of what a matrix made: the matrix, and how to view it."""
    matrix = getattr(tensor if tensor._base is None else tensor._base, "_int8_matrix", None)
    view = tensor.size(), tensor.stride(), int(tensor.storage_offset())
    return tensor if matrix is None else (matrix, view)


def _unpack(saved: Any) -> Tensor:
    made: Tensor = saved[0].dequantize().as_strided(*saved[1]) if isinstance(saved, tuple) else saved
    return made

"""A small model, and data that it learns."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

LINEAR = "tests.library.api.nets:Linear"


class Linear(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.layer(x)
        return scores


def sides(samples: int = 200) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Points, and on which side of a plane each lies."""
    x = np.random.default_rng(0).standard_normal((samples, 6)).astype(np.float32)
    return x, (x[:, 0] > 0).astype(np.int64)


def accuracy(module: Any, x: NDArray[np.float32], y: NDArray[np.int64]) -> float:
    with torch.no_grad():
        return float((module(torch.from_numpy(x)).argmax(1).numpy() == y).mean())

"""The layers and losses that people reach for, each in the smallest model that trains it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

Rule = Callable[[Any, Tensor], Tensor]

HERE = "tests.server.training_graph.layers:"


class Probe(nn.Module):
    """A layer's output with four scores of it, of an input that has a gradient."""

    def __init__(self, layer: Callable[[], nn.Module], rule: Rule, width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))
        self.layer, self.rule = layer(), rule
        self.head = nn.Linear(width, 4)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.head(self.rule(self.layer, x * self.scale).flatten(1))
        return output


@dataclass(frozen=True, slots=True)
class Layer:
    """One row of the table."""

    build: Callable[[], nn.Module]
    shape: tuple[int, ...]
    """Of a sample."""
    rule: Rule = lambda layer, x: layer(x)
    refused: str = ""
    """What the refusal names, if it is one."""
    loss: str = "cross_entropy"
    targets: str = "classes"
    """classes, or numbers, or bits: four of them."""

    def make(self) -> nn.Module:
        with torch.no_grad():
            width = self.rule(self.build().eval(), torch.ones(2, *self.shape)).flatten(1).shape[1]
        return Probe(self.build, self.rule, width)

    def batch(self) -> tuple[NDArray[np.float32], NDArray[np.generic]]:
        random = np.random.default_rng(6)
        x = random.standard_normal((8, *self.shape)).astype(np.float32)
        if self.targets == "classes":
            return x, random.integers(0, 4, 8)
        y = random.standard_normal((8, 4)).astype(np.float32)
        return x, y if self.targets == "numbers" else (y > 0).astype(np.float32)


def _first(layer: nn.Module, x: Tensor) -> Tensor:
    output: Tensor = layer(x)[0]
    return output


def _words(layer: nn.Module, x: Tensor) -> Tensor:
    output: Tensor = layer(x.detach().abs().clamp(max=9).long())
    return output


def _attention(layer: nn.Module, x: Tensor) -> Tensor:
    output: Tensor = layer(x, x, x)[0]
    return output


def _twice(layer: nn.Module, x: Tensor) -> Tensor:
    output: Tensor = layer(x, x)
    return output


def nll(outputs: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
    return functional.nll_loss(outputs.log_softmax(1), batch["y"])


def poisson(outputs: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
    return functional.poisson_nll_loss(outputs, batch["y"])


def ctc(outputs: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
    """Two steps of two symbols, of which the first is the blank, and one label each."""
    scores = outputs.view(-1, 2, 2).transpose(0, 1).log_softmax(2)
    labels = torch.ones_like(batch["y"]).unsqueeze(1)
    steps, long = torch.full_like(batch["y"], 2), torch.ones_like(batch["y"])
    return functional.ctc_loss(scores, labels, steps, long)


STEPS, ROW, LINE, PICTURE, VOLUME = (3, 4), (6,), (2, 8), (2, 6, 6), (2, 4, 4, 4)


def _loss(loss: str, targets: str, refused: str = "") -> Layer:
    return Layer(nn.Identity, ROW, refused=refused, loss=loss, targets=targets)


KINDS: Mapping[str, Mapping[str, Layer]] = {
    "dense, embeddings": {
        "Linear": Layer(lambda: nn.Linear(6, 6), ROW),
        "Bilinear": Layer(lambda: nn.Bilinear(6, 6, 3), ROW, _twice),
        "Embedding": Layer(lambda: nn.Embedding(10, 3), ROW, _words),
        "EmbeddingBag": Layer(
            lambda: nn.EmbeddingBag(10, 3), ROW, _words, "aten._embedding_bag_backward.default"
        ),
    },
    "recurrent": {
        "RNN": Layer(lambda: nn.RNN(4, 3, batch_first=True), STEPS, _first),
        "GRU": Layer(lambda: nn.GRU(4, 3, batch_first=True), STEPS, _first),
        "LSTM": Layer(lambda: nn.LSTM(4, 3, batch_first=True), STEPS, _first),
    },
    "attention": {
        "MultiheadAttention": Layer(lambda: nn.MultiheadAttention(4, 2, batch_first=True), STEPS, _attention),
        "TransformerEncoderLayer": Layer(
            lambda: nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), STEPS
        ),
        "TransformerDecoderLayer": Layer(
            lambda: nn.TransformerDecoderLayer(4, 2, 8, batch_first=True), STEPS, _twice
        ),
    },
    "convolutions": {
        "Conv1d": Layer(lambda: nn.Conv1d(2, 3, 3), LINE),
        "Conv2d": Layer(lambda: nn.Conv2d(2, 3, 3), PICTURE),
        "Conv3d": Layer(lambda: nn.Conv3d(2, 3, 3), VOLUME),
        "ConvTranspose1d": Layer(lambda: nn.ConvTranspose1d(2, 3, 3), LINE),
        "ConvTranspose2d": Layer(lambda: nn.ConvTranspose2d(2, 3, 3), PICTURE),
        "ConvTranspose3d": Layer(lambda: nn.ConvTranspose3d(2, 3, 3), VOLUME),
    },
    "pools": {
        "MaxPool1d": Layer(lambda: nn.MaxPool1d(2), LINE),
        "MaxPool2d": Layer(lambda: nn.MaxPool2d(2), PICTURE),
        "MaxPool3d": Layer(lambda: nn.MaxPool3d(2), VOLUME),
        "AvgPool1d": Layer(lambda: nn.AvgPool1d(2), LINE),
        "AvgPool2d": Layer(lambda: nn.AvgPool2d(2), PICTURE),
        "AvgPool3d": Layer(lambda: nn.AvgPool3d(2), VOLUME),
        "AdaptiveAvgPool1d": Layer(lambda: nn.AdaptiveAvgPool1d(3), LINE),
        "AdaptiveAvgPool2d": Layer(lambda: nn.AdaptiveAvgPool2d(4), PICTURE),
        "AdaptiveAvgPool3d": Layer(lambda: nn.AdaptiveAvgPool3d(3), VOLUME),
        "AdaptiveMaxPool2d to a divisor of the size": Layer(lambda: nn.AdaptiveMaxPool2d(3), PICTURE),
        "AdaptiveMaxPool2d to another size": Layer(
            lambda: nn.AdaptiveMaxPool2d(4), PICTURE, refused="aten.adaptive_max_pool2d_backward.default"
        ),
        "FractionalMaxPool2d": Layer(
            lambda: nn.FractionalMaxPool2d(2, 3), PICTURE, refused="aten.fractional_max_pool2d.default"
        ),
        "LPPool2d": Layer(lambda: nn.LPPool2d(2, 2), PICTURE),
    },
    "normalisation": {
        "BatchNorm1d": Layer(lambda: nn.BatchNorm1d(6), ROW),
        "BatchNorm2d": Layer(lambda: nn.BatchNorm2d(2), PICTURE),
        "BatchNorm3d": Layer(lambda: nn.BatchNorm3d(2), VOLUME),
        "GroupNorm": Layer(lambda: nn.GroupNorm(1, 2), PICTURE),
        "InstanceNorm2d": Layer(lambda: nn.InstanceNorm2d(2, affine=True), PICTURE),
        "LayerNorm": Layer(lambda: nn.LayerNorm(6), ROW),
        "RMSNorm": Layer(lambda: nn.RMSNorm(6), ROW),
        "LocalResponseNorm": Layer(lambda: nn.LocalResponseNorm(2), PICTURE),
    },
    "dropout": {
        "Dropout": Layer(lambda: nn.Dropout(0.2), ROW),
        "Dropout2d": Layer(lambda: nn.Dropout2d(0.2), PICTURE),
        "AlphaDropout": Layer(lambda: nn.AlphaDropout(0.2), ROW),
    },
    "activations": {
        "ReLU": Layer(nn.ReLU, ROW),
        "ReLU6": Layer(nn.ReLU6, ROW),
        "LeakyReLU": Layer(nn.LeakyReLU, ROW),
        "PReLU": Layer(nn.PReLU, ROW),
        "ELU": Layer(nn.ELU, ROW),
        "SELU": Layer(nn.SELU, ROW),
        "GELU": Layer(nn.GELU, ROW),
        "SiLU": Layer(nn.SiLU, ROW),
        "Mish": Layer(nn.Mish, ROW),
        "Hardswish": Layer(nn.Hardswish, ROW),
        "Softplus": Layer(nn.Softplus, ROW),
        "Sigmoid": Layer(nn.Sigmoid, ROW),
        "Tanh": Layer(nn.Tanh, ROW),
        "GLU": Layer(nn.GLU, ROW),
        "Softmax": Layer(lambda: nn.Softmax(1), ROW),
    },
    "sizes and edges": {
        "Upsample nearest": Layer(lambda: nn.Upsample(scale_factor=2), PICTURE),
    },
    "parametrisations": {
        "weight norm": Layer(lambda: nn.utils.parametrizations.weight_norm(nn.Linear(6, 3)), ROW),
    },
    "losses": {
        "cross_entropy": _loss("cross_entropy(label_smoothing=0.1)", "classes"),
        "bce": _loss("bce", "bits"),
        "mse": _loss("mse", "numbers"),
        "l1": _loss("l1", "numbers"),
        "huber": _loss("huber(delta=0.5)", "numbers"),
        "NLLLoss": _loss(HERE + "nll", "classes"),
        "PoissonNLLLoss": _loss(HERE + "poisson", "numbers"),
        "CTCLoss": _loss(HERE + "ctc", "classes", "aten._ctc_loss.Tensor"),
    },
}
"""Those of each row of the table in docs/onnx.md, by their names there."""

LAYERS = {name: layer for kind in KINDS.values() for name, layer in kind.items()}

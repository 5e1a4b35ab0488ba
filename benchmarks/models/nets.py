"""Twelve models as people write them: nothing in them knows of Edgeflock."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional


class Tabular(nn.Module):
    """Numbers and two kinds of categories."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.town = nn.Embedding(12, 4)
        self.kind = nn.Embedding(5, 3)
        self.layers = nn.Sequential(nn.Linear(6 + 4 + 3, width), nn.ReLU(), nn.Linear(width, 3))

    def forward(self, numbers: Tensor, town: Tensor, kind: Tensor) -> Tensor:
        output: Tensor = self.layers(torch.cat((numbers, self.town(town), self.kind(kind)), 1))
        return output


class Residual(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(channels, channels, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm1d(channels)

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(x + self.norm(self.conv(x)))


class Signal(nn.Module):
    """1-D convolutions with BatchNorm and residuals."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv1d(1, 12, 5, 2, 2), nn.ReLU(), Residual(12), Residual(12), nn.AdaptiveAvgPool1d(1)
        )
        self.head = nn.Linear(12, 4)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.head(self.layers(x).flatten(1))
        return output


class Gru(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(2, 16, batch_first=True)
        self.head = nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        hidden, _ = self.gru(x)
        output: Tensor = self.head(hidden.mean(1))
        return output


class TiedAutoencoder(nn.Module):
    """The decoder is the encoder's transpose, as one parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.Linear(64, 16)
        self.bias = nn.Parameter(torch.zeros(64))

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(self.encode(x.flatten(1)))
        return functional.linear(h, self.encode.weight.t(), self.bias)


def _twice(before: int, after: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(before, after, 3, padding=1), nn.ReLU(), nn.Conv2d(after, after, 3, padding=1), nn.ReLU()
    )


class UNet(nn.Module):
    """Three levels."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList([_twice(1, 6), _twice(6, 12), _twice(12, 24)])
        self.up = nn.ModuleList([nn.ConvTranspose2d(24, 12, 2, 2), nn.ConvTranspose2d(12, 6, 2, 2)])
        self.join = nn.ModuleList([_twice(24, 12), _twice(12, 6)])
        self.head = nn.Conv2d(6, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        first = self.down[0](x)
        second = self.down[1](functional.max_pool2d(first, 2))
        h = self.down[2](functional.max_pool2d(second, 2))
        for up, join, beside in zip(self.up, self.join, (second, first), strict=True):
            h = join(torch.cat((up(h), beside), 1))
        output: Tensor = self.head(h)
        return output


class ViT(nn.Module):
    """Patches of 2 x 2, two layers of attention."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Conv2d(1, 24, 2, 2)
        self.place = nn.Parameter(0.02 * torch.randn(1, 16, 24))
        layer = nn.TransformerEncoderLayer(24, 4, 48, dropout=0.0, activation="gelu", batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(24, 10)

    def forward(self, x: Tensor) -> Tensor:
        h = self.patch(x).flatten(2).transpose(1, 2) + self.place
        output: Tensor = self.head(self.layers(h).mean(1))
        return output


class TwoInputs(nn.Module):
    """A curve and a few numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.curve = nn.Sequential(nn.Conv1d(1, 8, 5, padding=2), nn.SiLU(), nn.AdaptiveAvgPool1d(4))
        self.head = nn.Sequential(nn.Linear(32 + 3, 32), nn.SiLU(), nn.Linear(32, 1))

    def forward(self, curve: Tensor, numbers: Tensor) -> Tensor:
        output: Tensor = self.head(torch.cat((self.curve(curve).flatten(1), numbers), 1))
        return output


class Tagger(nn.Sequential):
    """Several labels at once."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(20, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 6))


class Huber(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 1))


class Mobile(nn.Module):
    """Depthwise and pointwise convolutions with BatchNorm, as in MobileNet."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU6(),
            nn.Conv2d(16, 16, 3, 2, 1, groups=16, bias=False), nn.BatchNorm2d(16), nn.ReLU6(),
            nn.Conv2d(16, 32, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU6(),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.layers(x)
        return output


class Decoder(nn.Module):
    """Pictures of a few numbers, by transposed convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.start = nn.Linear(4, 16 * 4)
        self.layers = nn.Sequential(
            nn.ReLU(), nn.ConvTranspose2d(16, 8, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(8, 1, 4, 2, 1)
        )

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.layers(self.start(x).view(-1, 16, 2, 2))
        return output


class Characters(nn.Module):
    """What comes next, at each place of a text."""

    def __init__(self) -> None:
        super().__init__()
        self.letters = nn.Embedding(8, 8)
        self.lstm = nn.LSTM(8, 24, batch_first=True)
        self.head = nn.Linear(24, 8)

    def forward(self, text: Tensor) -> Tensor:
        hidden, _ = self.lstm(self.letters(text))
        output: Tensor = self.head(hidden).transpose(1, 2)
        return output


class LSTMTagger(nn.Module):
    """20 steps of 32 features, a class of 17 for each: float32 [b, 20, 32] to [b, 17, 20].

    One LSTM of 64 and a dense layer; 26,193 parameters. Targets are [b, 20].
    """

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(32, 64, batch_first=True)
        self.head = nn.Linear(64, 17)

    def forward(self, x: Tensor) -> Tensor:
        hidden, _ = self.lstm(x)
        output: Tensor = self.head(hidden)
        return output.transpose(1, 2)


class TransformerBlock(nn.Module):
    """16 tokens of 32 features in 10 classes; 13,546 parameters.

    A learned position for each token, one block with four heads and 128 hidden units, the tokens' mean and a
    dense layer. No dropout.
    """

    def __init__(self) -> None:
        super().__init__()
        self.position = nn.Parameter(0.02 * torch.randn(16, 32))
        self.block = nn.TransformerEncoderLayer(32, 4, 128, dropout=0.0, batch_first=True)
        self.head = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.head(self.block(x + self.position).mean(1))
        return output


def pixels(outputs: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
    """The autoencoder's: how far pictures are from what came in."""
    return ((outputs - batch["x"].flatten(1)) ** 2).mean()

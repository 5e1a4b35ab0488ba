"""Networks of the tasks that edgeflock.client.zoo does not have."""

import torch
from torch import Tensor, nn

from edgeflock.client.zoo.images import _Block


class TutorialCNN(nn.Module):
    """The CNN of TensorFlow's CIFAR-10 tutorial; 122,570 parameters.

    3 x 3 convolutions of 32, 64 and 64 channels without padding, a 2 x 2 pool behind the first two, then
    dense layers of 64 and 10. Weights begin as Glorot's uniform, biases at 0, as in Keras.
    """

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 32, 3), nn.MaxPool2d(2), nn.ReLU(),
            nn.Conv2d(32, 64, 3), nn.MaxPool2d(2), nn.ReLU(),
            nn.Conv2d(64, 64, 3), nn.ReLU(),
            nn.Flatten(), nn.Linear(1024, 64), nn.ReLU(), nn.Linear(64, 10),
        )  # fmt: skip
        for parameter in self.parameters():
            if parameter.ndim > 1:
                nn.init.xavier_uniform_(parameter)
            else:
                nn.init.zeros_(parameter)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.layers(x.to(memory_format=torch.channels_last))
        return output


class ResNet20(nn.Sequential):
    """Three stages of 16, 32 and 64 channels, three basic blocks each, for 32 x 32 images in 10 classes.

    K. He, X. Zhang, S. Ren and J. Sun, "Deep residual learning for image recognition", CVPR 2016, section
    4.2, n = 3, with projections for shortcuts. `norm`: "group" (eight groups) or "batch".
    """

    def __init__(self, norm: str = "group") -> None:
        def normalise(channels: int) -> nn.Module:
            return nn.BatchNorm2d(channels) if norm == "batch" else nn.GroupNorm(8, channels)

        blocks = [
            _Block(before if block == 0 else out, out, stride if block == 0 else 1, normalise)
            for before, out, stride in ((16, 16, 1), (16, 32, 2), (32, 64, 2))
            for block in range(3)
        ]
        super().__init__(
            nn.Conv2d(3, 16, 3, padding=1, bias=False), normalise(16), nn.ReLU(),
            *blocks,
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        images = x.to(memory_format=torch.channels_last)
        output: Tensor = super().forward(images)  # type: ignore[no-untyped-call]
        return output


class ResNet20BN(ResNet20):
    """ResNet20 with BatchNorm."""

    def __init__(self) -> None:
        super().__init__("batch")


class Tagger(nn.Module):
    """20 words in 17 parts of speech each: float32 [b, 20, 2] to [b, 17, 20]; 298,673 parameters.

    A word is the number of itself and of its ending (`data.tagged_words`). Embeddings of 48 and 16, one LSTM
    of 64 each way, and a dense layer.
    """

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(4096, 48)
        self.endings = nn.Embedding(2048, 16)
        self.lstm = nn.LSTM(64, 64, batch_first=True, bidirectional=True)
        self.head = nn.Linear(128, 17)

    def forward(self, x: Tensor) -> Tensor:
        numbers = x.long()
        words = torch.cat((self.words(numbers[..., 0]), self.endings(numbers[..., 1])), 2)
        hidden, _ = self.lstm(words)
        output: Tensor = self.head(hidden).transpose(1, 2)
        return output


class ElevenMillion(nn.Sequential):
    """Two 3 x 3 convolutions and three dense layers for 28 x 28 images; 11,033,938 parameters."""

    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(1568, 2728), nn.ReLU(), nn.Linear(2728, 2464), nn.ReLU(),
            nn.Linear(2464, 10),
        )  # fmt: skip


class SixColumns(nn.Sequential):
    """Six columns to a number: two hidden layers of 64; 4,673 parameters."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(6, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))

"""Reference models. Each is named by import string, e.g. edgeflock.client.zoo:PaperCNN."""

import torch
from torch import Tensor, nn


class DigitsCNN(nn.Module):
    """8 x 8 images in 10 classes: two 3 x 3 convolutions, pool, two dense layers; 38,282 parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(512, 64),
            nn.ReLU(),
            nn.Linear(64, 10),
        )

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.layers(x)
        return output


class PaperMLP(nn.Module):
    """28 x 28 images in 10 classes: two hidden layers of 128; 118,282 parameters.

    AdaComp's MLP (section V d) is described in its technical report only; this one is of the usual size.
    """

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Flatten(),
            nn.Linear(784, 128),
            nn.ReLU(),
            nn.Linear(128, 128),
            nn.ReLU(),
            nn.Linear(128, 10),
        )

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.layers(x)
        return output


class SpeechCNN(nn.Module):
    """64 x 40 log-mel spectrograms in 10 classes, for spoken digits; 333,194 parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(5120, 64),
            nn.ReLU(),
            nn.Linear(64, 10),
        )

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.layers(x.to(memory_format=torch.channels_last))
        return output


class PaperCNN(nn.Module):
    """AdaComp's CNN for 28 x 28 images in 10 classes, 211,690 parameters (section V b).

    Initialised as its TensorFlow ancestor: weights truncated normal with deviation 0.1, biases 0.1.
    """

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1),
            nn.MaxPool2d(2),
            nn.ReLU(),  # after the pool: the same function on a quarter of the values
            nn.Conv2d(32, 32, 3, padding=1),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(1568, 128),
            nn.ReLU(),
            nn.Linear(128, 10),
        )
        for name, parameter in self.named_parameters():
            if name.endswith("weight"):
                nn.init.trunc_normal_(parameter, std=0.1, a=-0.2, b=0.2)
            else:
                nn.init.constant_(parameter, 0.1)

    def forward(self, x: Tensor) -> Tensor:
        # Channels last: torch's pooling on a CPU is several times faster.
        output: Tensor = self.layers(x.to(memory_format=torch.channels_last))
        return output

"""Stand-ins for CIFAR-100 and its model, a CNN with shared statistics, and the paper's measure: top-5."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from edgeflock.client.zoo import SvhnBN
from edgeflock.shared.errors import ConfigError


def digit_pairs(path: str, split: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return images of two digits side by side, [n, 1, 28, 56], and their classes: 0 to 99.

    `path` is that of mnist.npz. Each of its digits is once on the left, and once on the right of a random
    other one, the same on every machine. Raises ConfigError if there is no such file.
    """
    try:
        with np.load(path) as archive:
            x, y = archive[f"x_{split}"], archive[f"y_{split}"].astype(np.int64)
    except (OSError, KeyError) as error:
        raise ConfigError(f"{path}: {error}; name the folder of mnist.npz with --data") from error
    right = np.random.default_rng(0).permutation(len(x))
    x = x.reshape(-1, 1, 28, 28)
    return np.concatenate([x, x[right]], axis=3), 10 * y + y[right]


class PairsCNN(nn.Sequential):
    """28 x 56 images in 100 classes: two convolutions of stride 2, two dense layers; 217,156 parameters."""

    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(1, 8, 5, 2, padding=2),
            nn.ReLU(),
            nn.Conv2d(8, 16, 5, 2, padding=2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(1568, 128),
            nn.ReLU(),
            nn.Linear(128, 100),
        )


class SharedNorm2d(nn.BatchNorm2d):
    """BatchNorm that normalises by its running statistics, in training too: [n, c, h, w] to the same shape.

    A round averages the devices' running statistics, so these are of all devices' data. Statistics of a batch
    would be of one label where each device has one. The running variance is around the running mean. No
    gradient flows through statistics.
    """

    def forward(self, input: Tensor) -> Tensor:
        assert self.running_mean is not None, "it has statistics"
        assert self.running_var is not None, "it has statistics"
        assert self.momentum is not None, "a moving average"
        mean, var = self.running_mean.clone(), self.running_var.clone()
        if self.training:
            with torch.no_grad():
                centred = input - mean[:, None, None]
                self.running_mean.lerp_(input.mean((0, 2, 3)), self.momentum)
                self.running_var.lerp_(centred.square().mean((0, 2, 3)), self.momentum)
        return nn.functional.batch_norm(input, mean, var, self.weight, self.bias, eps=self.eps)


class SvhnShared(SvhnBN):
    """SvhnBN with SharedNorm2d in the place of BatchNorm; 40,500 parameters, 50 running statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *(
                SharedNorm2d(layer.num_features) if isinstance(layer, nn.BatchNorm2d) else layer
                for layer in self.layers
            )
        )


def top_5(outputs: Tensor, targets: Tensor) -> float:
    """Return the part of targets [n] among the five highest of outputs [n, classes]."""
    return (outputs.topk(5).indices == targets[:, None]).any(1).double().mean().item()

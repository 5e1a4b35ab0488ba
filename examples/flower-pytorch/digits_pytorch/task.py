"""The model and its data: a CNN with BatchNorm on scikit-learn's 8x8 digits, in PyTorch."""

from functools import cache

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    """Two convolutions and a linear layer: 6,122 parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1)
        self.norm = nn.BatchNorm2d(16)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1)
        self.fc = nn.Linear(32 * 2 * 2, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.max_pool2d(functional.relu(self.norm(self.conv1(x))), 2)
        x = functional.max_pool2d(functional.relu(self.conv2(x)), 2)
        return self.fc(x.flatten(1))


@cache
def _digits() -> tuple[np.ndarray, np.ndarray]:
    """A process that stays reads them once."""
    return load_digits(return_X_y=True)


def load_data(partition: int = 0, partitions: int = 1, batch: int = 32, *, test: bool = False) -> DataLoader:
    """Every `partitions`-th of the 1,437 training images, or the 360 held out."""
    x, y = _digits()
    order = np.random.default_rng(0).permutation(len(x))
    order = order[1437:] if test else order[:1437][partition::partitions]
    images = torch.tensor(x[order] / 16, dtype=torch.float32).reshape(-1, 1, 8, 8)
    return DataLoader(TensorDataset(images, torch.tensor(y[order])), batch, shuffle=not test)


def train(net: nn.Module, loader: DataLoader, epochs: int, rate: float) -> float:
    """Plain SGD. Returns the mean loss."""
    optimizer = torch.optim.SGD(net.parameters(), lr=rate)
    net.train()
    losses = []
    for _ in range(epochs):
        for x, y in loader:
            optimizer.zero_grad()
            loss = functional.cross_entropy(net(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return sum(losses) / len(losses)


def test(net: nn.Module, loader: DataLoader) -> tuple[float, float]:
    """(loss, accuracy)."""
    net.eval()
    loss, correct, count = 0.0, 0, 0
    with torch.no_grad():
        for x, y in loader:
            output = net(x)
            loss += functional.cross_entropy(output, y, reduction="sum").item()
            correct += int((output.argmax(1) == y).sum())
            count += len(y)
    return loss / count, correct / count


def evaluate(arrays: dict[str, np.ndarray]) -> tuple[float, float]:
    """(loss, accuracy) on the images held out: `model.evaluate` of edgeflock's server."""
    net = Net()
    net.load_state_dict({name: torch.from_numpy(np.array(array)) for name, array in arrays.items()})
    return test(net, load_data(test=True))

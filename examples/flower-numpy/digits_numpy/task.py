"""The model and its data: softmax regression on scikit-learn's 8x8 digits, in NumPy."""

from functools import cache

import numpy as np
from sklearn.datasets import load_digits

Arrays = list[np.ndarray]


def get_model() -> Arrays:
    """Weights and bias, all zero."""
    return [np.zeros((64, 10), np.float32), np.zeros(10, np.float32)]


@cache
def _digits() -> tuple[np.ndarray, np.ndarray]:
    """A process that stays reads them once."""
    return load_digits(return_X_y=True)


def load_data(
    partition: int = 0, partitions: int = 1, *, test: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Every `partitions`-th of the 1,437 training images, or the 360 held out."""
    x, y = _digits()
    order = np.random.default_rng(0).permutation(len(x))
    order = order[1437:] if test else order[:1437][partition::partitions]
    return (x[order] / 16).astype(np.float32), y[order]


def _probabilities(model: Arrays, x: np.ndarray) -> np.ndarray:
    logits = x @ model[0] + model[1]
    exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
    return exponentials / exponentials.sum(axis=1, keepdims=True)


def train(model: Arrays, x: np.ndarray, y: np.ndarray, epochs: int, rate: float) -> float:
    """SGD on batches of 32, in place. Returns the last epoch's mean loss."""
    rng = np.random.default_rng()
    loss = 0.0
    for _ in range(epochs):
        loss = 0.0
        for rows in np.array_split(rng.permutation(len(x)), max(1, len(x) // 32)):
            error = _probabilities(model, x[rows])
            loss -= float(np.log(error[np.arange(len(rows)), y[rows]] + 1e-9).sum()) / len(x)
            error[np.arange(len(rows)), y[rows]] -= 1
            model[0] -= rate * x[rows].T @ error / len(rows)
            model[1] -= rate * error.mean(axis=0)
    return loss


def test(model: Arrays, x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """(loss, accuracy)."""
    probabilities = _probabilities(model, x)
    loss = -np.log(probabilities[np.arange(len(y)), y] + 1e-9).mean()
    return float(loss), float((probabilities.argmax(axis=1) == y).mean())


def evaluate(arrays: dict[str, np.ndarray]) -> tuple[float, float]:
    """(loss, accuracy) on the images held out: `model.evaluate` of edgeflock's server."""
    return test(list(arrays.values()), *load_data(test=True))

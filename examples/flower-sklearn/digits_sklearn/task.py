"""The model and its data: scikit-learn's SGDClassifier on its 8x8 digits."""

from functools import cache

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier
from sklearn.metrics import log_loss


def get_arrays() -> list[np.ndarray]:
    """coef_ and intercept_, all zero."""
    return [np.zeros((10, 64), np.float32), np.zeros(10, np.float32)]


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


def train(
    arrays: list[np.ndarray], x: np.ndarray, y: np.ndarray, epochs: int, rate: float
) -> list[np.ndarray]:
    """The arrays after so many passes over the data, which hold all ten digits."""
    model = SGDClassifier(loss="log_loss", learning_rate="constant", eta0=rate, max_iter=epochs, tol=None)
    model.fit(x, y, coef_init=arrays[0].astype(np.float64), intercept_init=arrays[1].astype(np.float64))
    return [model.coef_.astype(np.float32), model.intercept_.astype(np.float32)]


def test(arrays: list[np.ndarray], x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """(loss, accuracy)."""
    model = SGDClassifier(loss="log_loss")
    model.coef_, model.intercept_, model.classes_ = arrays[0], arrays[1], np.arange(10)
    guesses = model.predict_proba(x)
    return float(log_loss(y, guesses, labels=np.arange(10))), float((guesses.argmax(axis=1) == y).mean())


def evaluate(arrays: dict[str, np.ndarray]) -> tuple[float, float]:
    """(loss, accuracy) on the images held out: `model.evaluate` of edgeflock's server."""
    return test(list(arrays.values()), *load_data(test=True))

"""The data as the fleets read them: images decoded or framed once, a treebank's words in windows of 20."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edgeflock.papers.easgd.settings import TASKS
from edgeflock.shared.data import datasets
from edgeflock.shared.errors import ConfigError

WINDOW = 20

Images = NDArray[np.uint8]


def prepare(folder: Path, out: Path, test: int, digits: bool) -> dict[str, str]:
    """Write archives of `test` held-out samples to `out`, 0 of all, and return task -> URI.

    They are made from those in `folder`; with `digits`, the MLP's from MNIST. Raises ConfigError.
    """
    out.mkdir(parents=True, exist_ok=True)
    images, words, framed = (out / f"{name}-{test}.npz" for name in ("images", "words", "digits"))
    if not images.exists():
        make_images(folder / "cifar10_jpgblob.npz", images, test)
    if not words.exists():
        make_words(folder / "pos_ud_ewt.npz", words, test)
    if digits and not framed.exists():
        make_digits(folder / "mnist.npz", framed, test)
    files = {"MLP": framed if digits else images, "CNN": images, "LSTM": words}
    return {task.name: f"npz:{files[task.name]}" for task in TASKS}


def make_images(source: Path, target: Path, test: int) -> None:
    """Leave x (uint8 [n, 3, 32, 32]) and y of both splits of `source` in `target`."""
    _make(source, target, test, lambda x: x)


def make_digits(source: Path, target: Path, test: int) -> None:
    """The same of images of [1, 28, 28]: in a frame two wide, and three times as a colour."""
    _make(source, target, test, lambda x: np.pad(x, ((0, 0), (0, 0), (2, 2), (2, 2))).repeat(3, axis=1))


def _make(source: Path, target: Path, test: int, shaped: Callable[[Images], Images]) -> None:
    train, held_out = (datasets.load(f"npz:{source}", split) for split in ("train", "test"))
    few = slice(test or None)
    np.savez(
        target,
        x_train=shaped(np.rint(train.x * 255).astype(np.uint8)),
        y_train=train.y,
        x_test=shaped(np.rint(held_out.x[few] * 255).astype(np.uint8)),
        y_test=held_out.y[few],
    )


def make_words(source: Path, target: Path, test: int) -> None:
    """Leave x (float32 [n, 20]) and y, the Penn tag of each word (int64 [n, 20]), of both splits in `target`.

    Sentences follow each other as in the text, windows go across them, what is left at the end is left out.
    """
    if not source.is_file():
        raise ConfigError(f"data 'npz:{source}': there is no such file")
    arrays = {}
    with np.load(source) as archive:
        for split, most in (("train", 0), ("test", test)):
            for name, key in (("x", "w"), ("y", "xpos")):
                if f"{key}_{split}" not in archive:
                    raise ConfigError(f"data 'npz:{source}': has no array {key}_{split}")
                words = archive[f"{key}_{split}"]
                windows = words[: words.size // WINDOW * WINDOW].reshape(-1, WINDOW)[: most or None]
                arrays[f"{name}_{split}"] = windows.astype(np.float32 if name == "x" else np.int64)
    np.savez(target, **arrays)

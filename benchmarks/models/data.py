"""Small data sets, one for each model: digits where pictures are wanted, made up otherwise."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

Arrays = dict[str, NDArray[Any]]
"""x, or each field by its name, and y."""

_SAMPLES = 2000


def _digits() -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    bunch = load_digits()
    return (bunch.images / 16).astype(np.float32)[:, None], bunch.target


def tabular(random: np.random.Generator) -> Arrays:
    numbers = random.standard_normal((_SAMPLES, 6), np.float32)
    town, kind = random.integers(0, 12, _SAMPLES), random.integers(0, 5, _SAMPLES)
    by_town, by_kind = random.standard_normal((12, 3)), random.standard_normal((5, 3))
    scores = numbers @ random.standard_normal((6, 3)) + 2 * by_town[town] + 2 * by_kind[kind]
    return {"numbers": numbers, "town": town, "kind": kind, "y": scores.argmax(1)}


def signal(random: np.random.Generator) -> Arrays:
    y = random.integers(0, 4, _SAMPLES)
    time = np.linspace(0, 1, 64)
    phase = random.random((_SAMPLES, 1))
    waves = np.sin(2 * np.pi * ((3 + 3 * y)[:, None] * time + phase))
    x = waves + 0.4 * random.standard_normal((_SAMPLES, 64))
    return {"x": x[:, None].astype(np.float32), "y": y}


def sequence(random: np.random.Generator) -> Arrays:
    """64 steps; the class is of how the first series follows the second."""
    y = random.integers(0, 3, _SAMPLES)
    drive = random.standard_normal((_SAMPLES, 64))
    follow = (y - 1)[:, None] * drive + 0.5 * random.standard_normal((_SAMPLES, 64))
    return {"x": np.stack((drive, follow), 2).astype(np.float32), "y": y}


def pictures(random: np.random.Generator) -> Arrays:
    x, y = _digits()
    return {"x": x, "y": y}


def segments(random: np.random.Generator) -> Arrays:
    """Where the discs are, among noise: 16 x 16."""
    rows, columns = np.mgrid[:16, :16]
    centre, radius = random.uniform(4, 12, (_SAMPLES, 2, 1, 1)), random.uniform(2, 5, (_SAMPLES, 1, 1))
    inside = (rows - centre[:, 0]) ** 2 + (columns - centre[:, 1]) ** 2 < radius**2
    x = inside + 0.5 * random.standard_normal(inside.shape)
    return {"x": x[:, None].astype(np.float32), "y": inside[:, None].astype(np.float32)}


def curves(random: np.random.Generator) -> Arrays:
    curve = random.standard_normal((_SAMPLES, 1, 16), np.float32)
    numbers = random.standard_normal((_SAMPLES, 3), np.float32)
    y = curve[:, 0, :8].mean(1) * 2 + numbers[:, 0] - 0.5 * numbers[:, 1] * (numbers[:, 2] > 0)
    return {"curve": curve, "numbers": numbers, "y": y[:, None].astype(np.float32)}


def tags(random: np.random.Generator) -> Arrays:
    x = random.standard_normal((_SAMPLES, 20), np.float32)
    return {"x": x, "y": (x @ random.standard_normal((20, 6)) > 0).astype(np.float32)}


def outliers(random: np.random.Generator) -> Arrays:
    x = random.standard_normal((_SAMPLES, 10), np.float32)
    y = x @ random.standard_normal(10) / 2 + np.abs(x[:, 0])
    return {"x": x, "y": (y + 0.1 * random.standard_t(3, _SAMPLES))[:, None].astype(np.float32)}


def blobs(random: np.random.Generator) -> Arrays:
    """Pictures of 8 x 8 by the place, height and width of one spot."""
    rows, columns = np.mgrid[:8, :8]
    x = random.uniform(-1, 1, (_SAMPLES, 4)).astype(np.float32)
    row, column = (3.5 + 2.5 * x[:, place, None, None] for place in (0, 1))
    high, wide = 0.8 + 0.4 * x[:, 2, None, None], 2 + x[:, 3, None, None]
    y = high * np.exp(-((rows - row) ** 2 + (columns - column) ** 2) / (2 * wide))
    return {"x": x, "y": y[:, None].astype(np.float32)}


def text(random: np.random.Generator) -> Arrays:
    """The letters of a language of which each depends on the two before it."""
    following = random.integers(0, 8, (8, 8))
    letters = random.integers(0, 8, (_SAMPLES, 33))
    for place in range(2, 33):
        sure = random.random(_SAMPLES) < 0.9
        next_one = following[letters[:, place - 2], letters[:, place - 1]]
        letters[:, place] = np.where(sure, next_one, letters[:, place])
    return {"text": letters[:, :-1], "y": letters[:, 1:]}


MAKERS: dict[str, Callable[[np.random.Generator], Arrays]] = {
    "Tabular": tabular,
    "Signal": signal,
    "Gru": sequence,
    "TiedAutoencoder": pictures,
    "UNet": segments,
    "ViT": pictures,
    "TwoInputs": curves,
    "Tagger": tags,
    "Huber": outliers,
    "Mobile": pictures,
    "Decoder": blobs,
    "Characters": text,
}
"""The model that each is for."""


def archive(arrays: Arrays) -> Arrays:
    """As npz: takes it, a fifth held out."""
    held_out = len(arrays["y"]) // 5
    parts = {"test": slice(held_out), "train": slice(held_out, None)}
    order = np.random.default_rng(1).permutation(len(arrays["y"]))
    return {
        f"{name}_{split}" if name in ("x", "y") else f"x_{split}.{name}": array[order][chosen]
        for split, chosen in parts.items()
        for name, array in arrays.items()
    }

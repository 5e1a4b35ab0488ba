"""The new domain: what eight devices hold of it, what is held out, and the pretrained model."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import save_file

from benchmarks.finetune import texts, tokens
from benchmarks.finetune.pretrain import SIZES
from edgeflock.shared.data.datasets import Dataset

DEVICES = 8
_HELD = 20
"""Every 20th chapter is held out."""


@dataclass(frozen=True, slots=True)
class Domain:
    """Texts of the new domain as samples of `context` tokens."""

    shares: list[Dataset]
    """Those of each device: an eighth of the chapters, in their order. So devices hold different books."""
    test: Dataset

    @property
    def train(self) -> Dataset:
        """Those of all devices."""
        x, y = (np.concatenate([getattr(share, name) for share in self.shares]) for name in ("x", "y"))
        return Dataset(x, y)


@cache
def domain(folder: Path, size: str, tested: int) -> Domain:
    """The chapters as samples; `tested` evenly spaced ones of those held out are evaluated on."""
    shape = SIZES[size]
    kept = folder / f"domain-{shape['vocabulary']}.npz"
    if not kept.exists():
        texts.unpack(folder)
        chapters = tokens.encode(texts.bible(folder), folder / f"vocabulary-{shape['vocabulary']}.json")
        train = [ids for place, ids in enumerate(chapters) if place % _HELD]
        arrays = {"train": np.concatenate(train), "held": np.concatenate(chapters[::_HELD])}
        np.savez(kept, **arrays)  # type: ignore[arg-type]
    with np.load(kept) as archive:
        parts = np.array_split(archive["train"], DEVICES)
        shares = [_samples(part, shape["context"]) for part in parts]
        test = _samples(archive["held"], shape["context"])
    chosen = np.linspace(0, len(test) - 1, min(tested, len(test))).astype(int)
    return Domain(shares, Dataset(test.x[chosen], test.y[chosen]))


def _samples(ids: NDArray[np.uint16], context: int) -> Dataset:
    return Dataset(*tokens.windows(ids, context))


def module(size: str) -> str:
    """The import string of the model."""
    return f"edgeflock.client.zoo:LanguageModel({', '.join(f'{k}={v}' for k, v in SIZES[size].items())})"


def weights(folder: Path, size: str) -> Path:
    """The pretrained weights as a file that model.weights takes, from the newest checkpoint."""
    path = folder / f"{size}.safetensors"
    if not path.exists():
        state = torch.load(folder / f"{size}.pt")
        arrays = {name: value.numpy() for name, value in state["model"].items()}
        save_file(arrays, path, {"step": str(state["step"])})
    return path

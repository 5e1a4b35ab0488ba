"""Which MLP did AdaComp's authors use? Table II with several: python -m benchmarks.paper_mlp --out FOLDER.

The paper describes its MLP in a technical report only. Each candidate runs without crashes on 60,000 images
and on 6,000, with the settings of `edgeflock reproduce adacomp`. FOLDER/paper-mlp.json has the figures.
"""

import argparse
import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from torch import Tensor, nn

from edgeflock.papers.adacomp import experiments
from edgeflock.papers.reproduce import Experiment, Reproduction, measure


class _Mlp(nn.Module):
    def __init__(self, *widths: int) -> None:
        super().__init__()
        sizes = (784, *widths)
        hidden = [part for pair in zip(sizes, widths, strict=False) for part in (nn.Linear(*pair), nn.ReLU())]
        self.layers = nn.Sequential(nn.Flatten(), *hidden, nn.Linear(widths[-1], 10))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layers(x)
        return out


class Shokri(_Mlp):
    """The MLP of the paper's reference 11, which it takes its selection from: hidden layers of 128 and 64."""

    def __init__(self) -> None:
        super().__init__(128, 64)


class Keras(_Mlp):
    """The MLP of Keras' examples, which the paper takes its CNN from, without dropout: two layers of 512."""

    def __init__(self) -> None:
        super().__init__(512, 512)


class McMahan(_Mlp):
    """The 2NN of the FedAvg paper: two hidden layers of 200."""

    def __init__(self) -> None:
        super().__init__(200, 200)


CANDIDATES = (experiments.MLP, *(f"benchmarks.paper_mlp:{one.__name__}" for one in (Shokri, McMahan, Keras)))


def runs(data: str, updates: int) -> Iterator[Experiment]:
    """Table II without crashes, on all images and on a tenth, for each candidate."""
    scale = replace(experiments.FULL, updates=updates)
    for module in CANDIDATES:
        table = [*experiments.table_2(data, 60_000, scale, experiments.ADACOMP)]
        for one in (table[0], table[-1]):
            file = one.file.model_copy(update={"model": one.file.model.model_copy(update={"module": module})})
            yield replace(one, name=f"{module.rpartition(':')[2]}, {one.name}", file=file)


def main() -> None:
    reader = argparse.ArgumentParser("benchmarks.paper_mlp", description=__doc__)
    reader.add_argument("--out", type=Path, required=True)
    reader.add_argument("--updates", type=int, default=250_000)
    reader.add_argument(
        "--finished", action="store_true", help="report the runs that have ended, and run none"
    )
    asked = reader.parse_args()
    data = f"npz:{os.environ.get('EDGEFLOCK_DATA', '.')}/mnist.npz"
    command = f"python -m benchmarks.paper_mlp --updates {asked.updates}"
    options = Reproduction(command, asked.out, data, finished=asked.finished)
    rows = {}
    print("| MLP, setting | best | last ten | averaged: best | last ten |\n|---|--:|--:|--:|--:|")
    for one in measure(options, runs(data, asked.updates), (0,)):
        newest, averaged = one.setting.unaveraged, one.setting
        figures = [
            fmean(each) for each in (newest.best(), newest.last_ten(), averaged.best(), averaged.last_ten())
        ]
        rows[one.experiment.name] = [round(figure, 5) for figure in figures]
        print(f"| {one.experiment.name} | {' | '.join(f'{figure:.2%}' for figure in figures)} |")
    (asked.out / "paper-mlp.json").write_text(
        json.dumps({**options.about, "seeds": 1, "rows": rows}, indent=1) + "\n"
    )


if __name__ == "__main__":
    main()

"""Stored data, read as the run that a device takes part in reads data."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from edgeflock.client.data.batcher import RawBatches
from edgeflock.shared.data import datasets
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.model.description import Description
from edgeflock.shared.model.gradient import Gradient
from tests.client.training.fakes import WELCOME, FakeBackend


class Of(FakeBackend):
    """A model of some classes."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.classes = classes

    def gradient(
        self, theta: NDArray[np.float32], x: NDArray[np.float32], y: NDArray[np.generic]
    ) -> Gradient:
        if y.max() >= self.classes:
            raise ConfigError("ScatterElements: idx out of bounds")
        return super().gradient(theta, x, y)


def kept(path: Path, rows: str) -> RawBatches:
    path.write_text(f"age,height,state\n{rows}")
    return RawBatches(datasets.read(f"csv:{path}?label=state", "train"), np.random.default_rng(0))


def test_columns_units_and_classes_are_the_runs(tmp_path: Path) -> None:
    batches = kept(tmp_path / "a.csv", "30,2,well\n20,4,ill\n")
    run = replace(WELCOME, input=(1,), data=Description(("height",), (2.0,), (0.5,), ("ill", "well")))
    batches.begin(run, Of(2))
    x, y = batches.take(2)
    assert sorted(zip(x.ravel().tolist(), y.tolist(), strict=True)) == [(0.0, 1), (4.0, 0)]
    batches.begin(replace(run, data=Description(("age",), (), (), ("well", "ill"))), Of(2))  # another run
    x, y = batches.take(2)
    assert sorted(zip(x.ravel().tolist(), y.tolist(), strict=True)) == [(20.0, 1), (30.0, 0)]


def test_a_class_that_the_model_lacks_is_told_by_its_line(tmp_path: Path) -> None:
    batches = kept(tmp_path / "a.csv", "30,2,0\n20,4,1\n10,4,7\n")
    batches.begin(WELCOME, Of(8))
    with pytest.raises(ConfigError, match="line 4: the label is class 7, and .* has none such"):
        batches.begin(WELCOME, Of(3))


def test_data_of_another_shape_are_told(tmp_path: Path) -> None:
    batches = kept(tmp_path / "a.csv", "30,2,0\n")
    with pytest.raises(ConfigError, match=r"samples have the shape \[2\], and those of the run \[1, 8, 8\]"):
        batches.begin(replace(WELCOME, input=(1, 8, 8)), Of(3))

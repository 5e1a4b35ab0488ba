"""Stored samples -> mini-batches, each pass over the data in a new order."""

import numpy as np
import pytest

from edgeflock.client.data.batcher import Shuffled
from edgeflock.shared.data.datasets import Dataset


def numbered(count: int) -> Dataset:
    return Dataset(np.arange(2 * count, dtype=np.float32).reshape(count, 2), np.arange(count))


@pytest.mark.parametrize(("count", "size"), [(1, 1), (7, 1), (7, 2), (7, 3), (7, 7), (10, 5), (64, 10)])
def test_each_pass_takes_every_sample_once(count: int, size: int) -> None:
    batches = Shuffled(numbered(count), np.random.default_rng(0))
    taken: list[int] = []
    for _ in range(4 * count):
        x, y = batches.take(size)
        assert x.dtype == np.float32
        assert x.tolist() == [[2 * i, 2 * i + 1] for i in y.tolist()]
        assert len(y) == size
        taken += y.tolist()
    passes = [taken[start : start + count] for start in range(0, len(taken) - count + 1, count)]
    assert len(passes) == 4 * size
    assert all(sorted(one) == list(range(count)) for one in passes)
    if count > 6:
        assert passes[0] != passes[1]


def test_more_than_there_is_gives_all_there_is() -> None:
    batches = Shuffled(numbered(3), np.random.default_rng(0))
    for _ in range(3):
        assert sorted(batches.take(10)[1].tolist()) == [0, 1, 2]


def test_the_order_is_that_of_the_generator() -> None:
    def orders(seed: int) -> list[list[int]]:
        batches = Shuffled(numbered(20), np.random.default_rng(seed))
        return [batches.take(6)[1].tolist() for _ in range(8)]

    assert orders(1) == orders(1)
    assert orders(1) != orders(2)

"""What is right of each class, as counting one prediction after the other has it."""

import numpy as np
import pytest
from numpy.typing import NDArray

from edgeflock.server.evaluation.class_counts import ClassCounts
from edgeflock.shared.protocol.frames import MAX_CLASSES

RANDOM = np.random.default_rng(3)


def counted(
    target: NDArray[np.generic], right: NDArray[np.bool_] | None, batch: int = 7
) -> tuple[tuple[int, int], ...]:
    counts = ClassCounts()
    for start in range(0, len(target), batch):
        part = slice(start, start + batch)
        counts.update(target[part], None if right is None else right[part])
    return counts.counts


@pytest.mark.parametrize("shape", [(60,), (20, 6)])
def test_each_prediction_counts_for_its_class(shape: tuple[int, ...]) -> None:
    target, right = RANDOM.integers(-1, 5, shape), RANDOM.random(shape) < 0.5
    target[target == 3] = 2  # a class in the middle that does not occur
    each = list(zip(target.flat, right.flat, strict=True))
    expected = [(sum(r for y, r in each if y == c), sum(y == c for y, _ in each)) for c in range(5)]
    assert counted(target, right) == tuple(expected)
    assert expected[3] == (0, 0)


def test_one_number_a_sample_that_is_0_or_1_is_a_class() -> None:
    target = np.array([[0.0], [1.0], [1.0], [0.0], [1.0]], np.float32)
    right = np.array([[True], [False], [True], [True], [False]])
    assert counted(target, right, 2) == ((2, 2), (1, 3))


@pytest.mark.parametrize(
    ("target", "right"),
    [
        (np.ones(9, np.float32), None),  # a regression
        (np.full(9, 0.5, np.float32), np.ones(9, bool)),  # no class, but the probability of one
        (np.ones((9, 3), np.float32), np.ones((9, 3), bool)),  # labels that exclude no other
        (np.ones((9, 3), np.float32), np.ones(9, bool)),  # probabilities of classes
        (np.full(9, MAX_CLASSES), np.ones(9, bool)),
    ],
)
def test_what_is_no_class_is_not_counted(
    target: NDArray[np.generic], right: NDArray[np.bool_] | None
) -> None:
    assert counted(target, right) == ()


def test_one_batch_that_is_no_classes_spoils_all_until_it_begins_anew() -> None:
    counts = ClassCounts()
    counts.update(np.array([0, 1]), np.array([True, False]))
    counts.update(np.array([0, MAX_CLASSES]), np.array([True, False]))
    assert counts.counts == ()
    counts.reset()
    counts.update(np.array([0, 1]), np.array([True, False]))
    assert [*counts.counts] == [(1, 1), (0, 1)]

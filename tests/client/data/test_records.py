"""What is fit for training."""

import numpy as np

from edgeflock.client.data.records import Checks, Chunk, Skipped


def chunk(x: object, y: object) -> Chunk:
    targets = np.array(y)
    samples = np.array(x, np.float32)
    if targets.dtype.kind == "f":
        return Chunk(samples, targets.astype(np.float32))
    return Chunk(samples, targets.astype(np.int64))


def test_what_is_not_finite_is_left_out() -> None:
    tally = Skipped()
    good = Checks().admit(chunk([[1, 2], [np.nan, 2], [3, np.inf], [4, 5]], [1, 2, 3, 4]), tally)
    assert (good.x.tolist(), good.y.tolist()) == ([[1, 2], [4, 5]], [1, 4])
    assert tally.counts == {"not finite": 2}


def test_the_first_good_sample_settles_the_shape() -> None:
    checks, tally = Checks(), Skipped()
    assert len(checks.admit(chunk([[np.nan]], [0]), tally)) == 0
    assert len(checks.admit(chunk([[1, 2]], [0]), tally)) == 1
    assert len(checks.admit(chunk([[1, 2, 3]] * 3, [0] * 3), tally)) == 0
    assert len(checks.admit(chunk([[1, 2]], [[0, 1]]), tally)) == 0
    assert tally.counts == {"not finite": 1, "of another shape": 4}


def test_a_shape_may_be_demanded() -> None:
    checks, tally = Checks(shape=(3,)), Skipped()
    assert len(checks.admit(chunk([[1, 2]], [0]), tally)) == 0
    assert len(checks.admit(chunk([[1, 2, 3]], [0]), tally)) == 1


def test_classes_are_whole_and_below_their_number() -> None:
    tally = Skipped()
    good = Checks(classes=3).admit(chunk([[0]] * 5, [0.0, 2.0, 3.0, -1.0, 0.5]), tally)
    assert good.y.dtype == np.int64
    assert good.y.tolist() == [0, 2]
    assert tally.counts == {"of another target": 3}


def test_numbers_may_be_whole() -> None:
    checks, tally = Checks(targets="numbers"), Skipped()
    assert checks.admit(chunk([[0]], [3]), tally).y.dtype == np.float32
    assert checks.admit(chunk([[0]], [3.5]), tally).y.tolist() == [3.5]
    assert tally.total == 0


def test_keys_stay_with_their_samples() -> None:
    named = Chunk(np.array([[1], [np.nan], [3]], np.float32), np.array([0, 1, 2]), ("a", None, "c"))
    assert Checks().admit(named, Skipped()).keys == ("a", "c")
    assert Checks().admit(chunk([[1], [2]], [0, 1]), Skipped()).keys == ()

"""The first step of a model on data."""

import numpy as np
import pytest

from edgeflock.shared.errors import ConfigError
from edgeflock.shared.model.gradient import Gradient, trial

X, Y, THETA = np.full((8, 3), 7, np.float32), np.zeros(8, np.int64), np.zeros(4, np.float32)


def test_a_step_is_told_with_the_time_of_a_second_one() -> None:
    times = iter([1.0, 1.25])
    found = trial(
        lambda *_: Gradient(0.5, np.ones(4, np.float32), THETA[:0]), THETA, X, Y, lambda: next(times)
    )
    assert (found.samples, found.shape, found.loss, found.milliseconds) == (8, "[3]", 0.5, 250)
    assert str(found) == "a step on 8 samples of [3]: loss 0.5, 250 ms"


@pytest.mark.parametrize(("loss", "entry"), [(float("nan"), 1.0), (0.5, float("inf"))])
def test_what_is_not_finite_is_no_beginning(loss: float, entry: float) -> None:
    gradient = Gradient(loss, np.full(4, entry, np.float32), THETA[:0])
    with pytest.raises(ConfigError, match="not finite: inputs reach 7 and should be about 1; scale them"):
        trial(lambda *_: gradient, THETA, X, Y)

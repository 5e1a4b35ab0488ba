"""What gateways are told of the model is all that has changed."""

import numpy as np

from edgeflock.server.publication import ChangeRecorder


def test_each_version_is_told_and_the_values_are_those_of_now() -> None:
    theta = np.arange(12, dtype=np.float32)
    touches = ChangeRecorder(10)
    assert touches.take(theta) is None
    touches.add(np.array([1, 4]))
    touches.add(np.array([], np.int64))
    touches.add(np.array([4]))
    theta[4] = 40
    reported = touches.take(theta)
    assert reported is not None
    assert reported.counts == [2, 0, 1]
    assert reported.indices.tolist() == [1, 4, 4]
    assert reported.values.tolist() == [1, 40, 40, 10, 11], "the running statistics move with every update"
    assert touches.take(theta) is None, "it was told"


def test_what_changes_all_of_it_is_told_whole() -> None:
    theta = np.arange(3, dtype=np.float32)
    touches = ChangeRecorder(3)
    touches.add(np.array([1]))
    touches.add(slice(None))
    touches.add(np.array([2]))
    reported = touches.take(theta)
    assert reported is not None
    assert (reported.counts, reported.is_reset) == (None, False)
    assert reported.values.tolist() == [0, 1, 2]
    touches.reset()
    reported = touches.take(theta)
    assert reported is not None
    assert reported.is_reset

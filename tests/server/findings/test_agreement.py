"""How a device's updates go with those of the others."""

import math
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from edgeflock.server.descent import Step
from edgeflock.server.findings import AgreementTracker
from edgeflock.server.findings.agreement import TRACKED, AgreementAverages


def step(where: list[int], delta: list[float], time: float) -> Step:
    return Step(0, np.array(where, np.int64), np.array(delta, np.float32), time=time)


def said(agreement: AgreementTracker, device: int) -> AgreementAverages:
    seen = agreement.averages(device)
    assert seen is not None
    return seen


def test_it_is_the_cosine_with_the_votes_of_the_others_where_it_touches() -> None:
    agreement = AgreementTracker(8)
    agreement.observe(1, 0.5, step([0, 1], [3.0, 4.0], 0.0))
    assert said(agreement, 1) == AgreementAverages(1, None, 0.5, 0.0, 0.0, 0.5), "there are no others yet"
    agreement.observe(2, 0.5, step([1, 2], [5.0, 5.0], 1.0))
    assert said(agreement, 2).agreement == pytest.approx(math.sqrt(0.5)), "at 1 and 2 they say (0.8, 0)"
    agreement.observe(3, 0.5, step([0, 1], [-300.0, 0.0], 2.0))
    older, newer = 0.99 * np.array([0.6, 0.8]), np.array([0.0, math.sqrt(0.5)])
    votes = older + newer
    assert said(agreement, 3).agreement == pytest.approx(-votes[0] / math.hypot(*votes), abs=1e-6)


def test_one_device_alone_agrees_with_nobody() -> None:
    agreement = AgreementTracker(4)
    for second in range(2000):
        agreement.observe(5, 1.0, step([0, 3], [1.0, -1.0], second))
    assert said(agreement, 5)[:3] == (2000, None, 1.0)
    assert said(agreement, 5).norm == 0.0, "its own size is the usual one"


def test_size_and_loss_are_against_what_is_usual_at_their_time() -> None:
    agreement = AgreementTracker(4)
    for second in range(200):
        size, loss = math.exp(-second / 40), 2.0 - second / 100  # all learn: updates and losses fall
        for device in (1, 2, 3, 4):
            agreement.observe(device, loss, step([0], [size], second))
        if not second % 40:  # a slow one, whose average reaches farther back, and one whose updates are large
            agreement.observe(5, loss, step([0], [size], second + 0.5))
            agreement.observe(6, loss + 1.0, step([0], [20.0 * size], second + 0.5))
    assert said(agreement, 5).norm == pytest.approx(0.0, abs=0.05)
    assert said(agreement, 5).excess == pytest.approx(0.0, abs=0.05)
    assert said(agreement, 6).norm == pytest.approx(math.log(20.0), abs=0.05)
    assert said(agreement, 6).excess == pytest.approx(1.0, abs=0.05)


def test_what_is_usual_is_asked_of_those_who_send() -> None:
    agreement = AgreementTracker(4)
    for device in range(10):  # of an hour ago, when the model was new
        agreement.observe(device, 5.0, step([0], [100.0], device))
    for second in range(3600, 3700):
        for device in (10, 11, 12, 13):
            agreement.observe(device, 0.5, step([0], [1.0], second))
    assert said(agreement, 13).norm == pytest.approx(0.0, abs=0.1)


def test_a_large_update_weighs_no_more_than_a_small_one() -> None:
    agreement = AgreementTracker(2)
    agreement.observe(1, 0.0, step([0, 1], [1e6, 0.0], 0.0))
    agreement.observe(2, 0.0, step([0, 1], [0.0, 1e-6], 0.0))
    agreement.observe(3, 0.0, step([0, 1], [1.0, 1.0], 0.0))
    assert said(agreement, 3).agreement == pytest.approx(1.0, abs=1e-4)


@pytest.mark.parametrize("dense", [False, True])
def test_of_a_large_model_the_end_counts(dense: bool) -> None:
    size = TRACKED + 1000
    agreement = AgreementTracker(size)
    for device, sign in ((1, 1.0), (2, 1.0), (3, -1.0)):
        whole: NDArray[np.float32] = np.full(size, 1.0, np.float32)
        whole[-100:] = sign
        where = slice(None) if dense else np.arange(0, size, 7, dtype=np.int64)
        agreement.observe(device, 0.0, Step(0, where, whole[where], time=0.0))
    assert said(agreement, 2).agreement == pytest.approx(1.0, abs=1e-4)
    assert 0.9 < (said(agreement, 3).agreement or 0) < 1.0


def test_a_device_counts_so_often_and_not_more() -> None:
    agreement = AgreementTracker(4)
    for tick in range(100):
        agreement.observe(1, 0.0, step([0], [1.0], tick * 0.01))
    assert 15 <= said(agreement, 1).updates <= 21
    for device in range(2, 1000):  # of many devices each counts more rarely
        agreement.observe(device, 0.0, step([0], [1.0], 2.0))
    agreement.observe(2, 0.0, step([0], [1.0], 6.0))
    assert said(agreement, 2).updates == 1


@pytest.mark.parametrize(("loss", "delta"), [(math.nan, [1.0]), (1.0, [0.0]), (math.inf, [math.inf])])
def test_what_is_no_number_is_left_out(loss: float, delta: list[float]) -> None:
    agreement = AgreementTracker(1)
    agreement.observe(1, loss, step([0], delta, 0.0))
    seen = agreement.averages(1)
    assert seen is None or seen.loss is None


def test_statistics_that_no_batch_has_are_counted_once_most_are_sound() -> None:
    """At first, while the server's own are those of an untrained model, all are far away from them."""
    agreement = AgreementTracker(2)
    for second in range(40):
        for device in range(4):
            agreement.observe(device, 0.5, replace(step([0], [1.0], second), excess=1e4))
    assert {said(agreement, device).absurd_share for device in range(4)} == {0.0}
    for second in range(40, 200):
        for device in range(4):
            beyond = {2: 1e4, 3: 99.0}.get(device, 0.0)
            agreement.observe(device, 0.5, replace(step([0], [1.0], second), excess=beyond))
    assert [said(agreement, device).absurd_share > 0.8 for device in range(4)] == [False, False, True, False]
    assert said(agreement, 3).absurd_share == 0

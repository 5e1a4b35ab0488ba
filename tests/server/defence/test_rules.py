"""What part of an update counts, from what is seen of it."""

import math

import numpy as np
import pytest

from edgeflock.server.choices import CHOICES
from edgeflock.server.defence import DEFENCES, Guard, Kind, Seen, Trusted
from edgeflock.server.defence.norms import LATEST, Norms
from edgeflock.server.defence.rules import LEAST, MOST, clip, score
from edgeflock.server.descent import Step
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.settings.config import parse

WHERE = np.array([1, 3], np.int64)
DELTA = np.array([3, -4], np.float32)
"""Of norm 5."""


def seen(norm: float, usual: float, standing: float | None = None) -> Seen:
    return Seen(WHERE, DELTA, norm, usual, standing, standing)


def step(delta: np.ndarray = DELTA) -> Step:
    return Step(0, WHERE, delta)


@pytest.mark.parametrize(
    ("norm", "usual", "share"),
    [
        (5.0, 5.0, 1.0),
        (15.0, 5.0, 1.0),
        (30.0, 5.0, 0.5),
        (5.0, 0.0, 1.0),
        (0.0, 0.0, 1.0),
        (3e300, 1.0, 1e-300),
    ],
)
def test_clip_is_the_most_over_the_norm(norm: float, usual: float, share: float) -> None:
    assert MOST == 3
    assert clip(seen(norm, usual)) == share


@pytest.mark.parametrize(
    ("standing", "share"),
    [(None, 0.5), (0.3, 0.5), (LEAST, 0.5), (math.nextafter(LEAST, -1), 0.0), (-1.0, 0.0)],
)
def test_score_drops_whose_updates_disagree_and_clips_the_others(
    standing: float | None, share: float
) -> None:
    assert score(seen(30.0, 5.0, standing)) == share


def test_the_usual_norm_is_the_median_of_the_latest() -> None:
    norms = Norms(float(norm) for norm in range(1, 17))
    assert norms.usual == 9
    for _ in range(LATEST):
        norms.add(2.0)
    assert norms.usual == 2, "the first ones are forgotten"


def test_of_a_few_updates_the_smallest_is_usual() -> None:
    norms = Norms()
    assert norms.usual == 0
    norms.add(0.0)
    assert norms.usual == 0, "what changes nothing does not count"
    for norm in (500.0, 3.0, 700.0):
        norms.add(norm)
    assert norms.usual == 3


def test_those_who_send_more_do_not_drive_the_median_up() -> None:
    """Three of ten send updates that are a hundred times as large: what is usual stays below thrice the
    honest norm, whose share is all."""
    guard = Guard("clip", [1.0] * 50)
    for number in range(3000):
        device = number % 10
        delta = DELTA / 5 * np.float32(100 if device < 3 else 1)
        decision = guard.decide(device, step(delta), 1.0)
        assert (decision.share == 1) == (device >= 3)
        assert decision.norm <= 3.0001
        guard.took(device, decision)
    assert guard.counts == {"clipped": 900}
    assert guard.records[0].clipped == 300
    assert 5 not in guard.records


def test_the_samples_that_a_device_tells_of_are_in_the_norm() -> None:
    guard = Guard("clip", [5.0] * 20)
    assert guard.decide(1, step(), 1.0).share == 1
    assert guard.decide(1, step(), 300.0).share == pytest.approx(0.01)


def test_the_largest_numbers_there_are_come_to_a_finite_step() -> None:
    guard, huge = Guard("clip", [5.0] * 20), np.full(2, np.finfo(np.float32).max)
    decision = guard.decide(1, step(huge), 65_536.0)
    part = step(huge).part(decision.share)
    assert np.isfinite(part.delta).all()
    assert float(np.linalg.norm(part.delta.astype(np.float64))) * 65_536 <= 3.001 * 5


def test_a_standing_is_the_average_of_agreements_and_a_pardon_ends_it() -> None:
    guard = Guard("score", [5.0] * 20)
    assert guard.decide(1, step(), 1.0).standing is None, "nothing to go by yet"
    guard.trust(Trusted(0, np.array([[0], [3], [0], [-4]], np.float32)))
    assert guard.decide(1, step(), 1.0).standing == pytest.approx(0.03)
    assert guard.decide(1, step(), 1.0).standing == pytest.approx(0.03), "to decide changes nothing"
    against = step(-DELTA)
    decision = guard.decide(1, against, 1.0)
    guard.took(1, decision)
    assert decision.share == 0.0
    assert decision.standing == pytest.approx(-0.03)
    assert guard.decide(1, step(), 1.0).standing == pytest.approx(0.97 * -0.03 + 0.03)
    assert guard.decide(2, against, 1.0).standing == pytest.approx(-0.03), "each has its own"
    assert guard.pardon(1)
    assert not guard.pardon(1)
    assert guard.decide(1, step(), 1.0).standing == pytest.approx(0.03)
    assert guard.counts == {"dropped": 1}


def test_it_wants_another_gradient_after_so_many_updates() -> None:
    guard = Guard("score")
    assert guard.wants(0, 100)
    guard.trust(Trusted(7, np.ones((4, 1), np.float32)))
    assert (guard.wants(106, 100), guard.wants(107, 100)) == (False, True)
    assert not Guard("clip").wants(1000, 100)


def test_no_finite_number_makes_a_standing_none_at_all() -> None:
    """It would be below nothing, and whoever has it never dropped."""
    huge = np.array([np.finfo(np.float32).max, -np.finfo(np.float32).max], np.float32)
    trusted = Trusted(0, np.array([[0], [-1], [0], [1]], np.float32))
    assert trusted.agreement(WHERE, huge) == pytest.approx(-1)
    overflowing = Trusted(0, np.full((4, 2), np.finfo(np.float32).max))
    assert np.isfinite(overflowing.agreement(WHERE, huge))


def test_agreement_is_of_the_groups_that_agree_most_and_least() -> None:
    """Of the touched entries alone: what the gradient is elsewhere says nothing."""
    gradients = np.array([[9, 9, 9], [1, 0, -1], [9, 9, 9], [0, 1, 0]], np.float32)
    trusted = Trusted(0, gradients)
    one, other = trusted.agreement(WHERE, np.array([1, 0], np.float32)), 0.5
    assert one == 0  # cosines 1, 0 and -1
    assert trusted.agreement(WHERE, np.array([0, 2], np.float32)) == other  # 0, 1 and 0
    assert trusted.agreement(slice(None), np.zeros(4, np.float32)) == 0
    assert trusted.agreement(np.zeros(0, np.int64), np.zeros(0, np.float32)) == 0


@pytest.mark.parametrize(
    ("said", "share"), [(math.nan, 0.0), (math.inf, 0.0), (-3.0, 0.0), (7.0, 1.0), (0.25, 0.25)]
)
def test_what_a_defence_says_is_a_part(said: float, share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DEFENCES, "mine", Kind(lambda seen: said))
    assert Guard("mine").decide(1, step(), 1.0).share == share


def test_an_unknown_one_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"defence\.mode = 'x' must be one of none, clip, score"):
        Guard("x")
    with pytest.raises(ConfigError, match=r"defence\.mode = 'clipp': must be .*did you mean 'clip'"):
        parse(overrides=["defence.mode=clipp"], tables=CHOICES)

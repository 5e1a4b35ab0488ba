"""What part of an update counts, from what is seen of it."""

import math
from collections import Counter
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeflock.server.defence import (
    DEFENCES,
    AdmittedUpdate,
    Decision,
    DefenceDecision,
    DefenceGuard,
    DefenceKind,
    Trusted,
)
from edgeflock.server.defence.guard import RecentUpdates
from edgeflock.server.defence.norms import LATEST, MIN_NORMS, UsualNorms
from edgeflock.server.defence.rules import WORST, clip, norm_limit, score
from edgeflock.server.defence.standing import (
    HALF_LIFE,
    MAX_STANDING,
    MIN_STANDING,
    Agreements,
    Cosines,
    decay_standing,
)
from edgeflock.server.descent import Step
from edgeflock.server.hosting.choices import CHOICES
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.settings.config import parse
from tests.server.agreements import USUAL, acquaint, alike

WHERE = np.array([1, 3], np.int64)
DELTA = np.array([3, -4], np.float32)
"""Of norm 5."""


def seen(norm: float, usual: float, standing: float | None = None) -> AdmittedUpdate:
    return AdmittedUpdate(WHERE, DELTA, norm, usual, 1.0, None, standing)


def step(delta: np.ndarray = DELTA) -> Step:
    return Step(0, WHERE, delta)


@pytest.mark.parametrize(
    ("norm", "usual", "share"),
    [
        (5.0, 5.0, 1.0),
        (15.0, 5.0, 1.0),
        (20.0, 5.0, 0.25),
        (5.0, 0.0, 0.0),  # nothing is usual yet
        (5.0, math.inf, 1.0),
        (0.0, 5.0, 1.0),
        (1e300, 1.0, 1e-300),
    ],
)
def test_what_is_too_large_counts_as_a_usual_one(norm: float, usual: float, share: float) -> None:
    assert clip(seen(norm, usual)) == share


@pytest.mark.parametrize(
    ("spread", "times"),
    [
        (1.0, 3.0),
        (1.2, 3.0),  # 1.2 ** 4.4478 is 2.25
        (1.4, 4.466),
        (1.5, 5.0),  # 6.07
        (math.inf, 5.0),
    ],
)
def test_the_more_honest_norms_differ_the_larger_one_may_be(spread: float, times: float) -> None:
    assert norm_limit(2.0, spread) == pytest.approx(2 * times, rel=1e-3)


@pytest.mark.parametrize(
    ("standing", "share"),
    [(None, 0.25), (0.3, 0.25), (WORST, 0.25), (math.nextafter(WORST, -9), 0.0), (MIN_STANDING, 0.0)],
)
def test_score_drops_whose_updates_disagree_and_clips_the_others(
    standing: float | None, share: float
) -> None:
    assert score(seen(20.0, 5.0, standing)) == share


def known_norms(*sizes: float) -> UsualNorms:
    norms = UsualNorms()
    for norm in sizes:
        norms.add(norm)
    return norms


def test_the_usual_norm_is_the_median_of_the_latest() -> None:
    norms = known_norms(*(float(norm) for norm in range(1, 17)))
    assert norms.usual == 9
    for _ in range(LATEST):
        norms.add(2.0)
    assert norms.usual == 2, "the first ones are forgotten"


def test_of_a_few_updates_the_smallest_is_usual() -> None:
    norms = UsualNorms(min_norms=0)
    assert norms.usual == math.inf
    norms.add(0.0)
    assert norms.usual == math.inf, "what changes nothing does not count"
    for norm in (500.0, 3.0, 700.0):
        norms.add(norm)
    assert norms.usual == 3


def test_the_first_updates_tell_what_is_usual_and_count_nothing() -> None:
    """They may be anybody's: one that was a hundred times as large would be all that the model ever saw."""
    guard, shares = DefenceGuard("clip"), []
    for number in range(12):
        delta = DELTA * np.float32(1 if number % 3 else 100)
        decision = guard.decide(number, number, step(delta), 1.0)
        guard.add_decision(number + 1, number, decision)
        shares.append(decision.share)
    assert shares[:MIN_NORMS] == [0.0] * MIN_NORMS
    assert shares[MIN_NORMS:] == [1.0, pytest.approx(0.01), 1.0, 1.0]
    assert DefenceGuard("clip", norms=0).decide(0, 1, step(), 1.0).share == 1, "a round may be all there is"


@given(
    norms=st.lists(st.floats(1e-3, 1e3), min_size=16, max_size=LATEST),
    values=st.sampled_from([None, 1.0]),
)
def test_a_spread_is_the_median_absolute_deviation_of_logarithms(
    norms: list[float], values: float | None
) -> None:
    """Also where many are alike."""
    kept = [values if values and number % 3 else norm for number, norm in enumerate(norms)]
    known = known_norms(*kept)
    ratios = sorted(max(norm / known.usual, known.usual / norm) for norm in kept)
    assert known.spread == pytest.approx(ratios[len(kept) // 2], rel=1e-12)


def test_of_a_few_updates_no_spread_is_known() -> None:
    assert UsualNorms().spread == 1
    assert known_norms(*[1.0, 50.0, 3.0] * 5).spread == 1


def test_those_who_send_more_do_not_drive_the_median_up() -> None:
    """Three of ten send updates that are a hundred times as large: what is usual stays below thrice the
    honest norm, whose share is all."""
    guard = acquainted("clip", [1.0] * 50)
    for number in range(3000):
        device = number % 10
        delta = DELTA / 5 * np.float32(100 if device < 3 else 1)
        decision = guard.decide(number, device, step(delta), 1.0)
        assert (decision.share == 1) == (device >= 3)
        assert decision.norm <= 3.0001
        guard.add_decision(number + 1, device, decision)
    assert guard.counts == {"clipped": 900}
    assert guard.records[0].clipped == 300
    assert 5 not in guard.records


def test_what_is_usual_grows_with_what_is_sent() -> None:
    """The first updates were a hundredth of what all send from then on."""
    guard, shares = acquainted("clip", [0.05] * 16), []
    for number in range(400):
        decision = guard.decide(number, number % 5, step(), 1.0)
        guard.add_decision(number + 1, number % 5, decision)
        shares.append(decision.share)
    assert shares[0] == pytest.approx(0.01)
    assert shares[-100:] == [1.0] * 100


@pytest.mark.parametrize("place", range(10))
def test_a_tiny_update_among_the_first_makes_no_other_too_large(place: int) -> None:
    guard = DefenceGuard("clip")
    for number in range(200):
        delta = DELTA * np.float32(1e-12 if number == place else 1)
        decision = guard.decide(number, number % 10, step(delta), 1.0)
        guard.add_decision(number + 1, number % 10, decision)
        assert (decision.share == 1) == (number >= MIN_NORMS)


def test_one_who_sends_many_tiny_updates_does_not_stop_the_others() -> None:
    """Twice as many as ten others together: what is usual goes down by a step at times, and comes back."""
    guard, rng, shares = DefenceGuard("clip"), np.random.default_rng(0), []
    devices = [*range(10)] * 30 + ([99] * 20 + [*range(10)]) * 60
    for version, device in enumerate(devices):
        delta = rng.uniform(0.5, 1.5, 2) * (1e-12 if device == 99 else 1)
        decision = guard.decide(version, device, step(delta.astype(np.float32)), 1.0)
        guard.add_decision(version + 1, device, decision)
        if version >= 300 and device != 99:
            shares.append(decision.share)
    assert min(shares) > 0.2
    assert np.mean(shares) > 0.9


def test_the_samples_that_a_device_tells_of_are_in_the_norm() -> None:
    guard = acquainted("clip", [5.0] * 20)
    assert guard.decide(0, 1, step(), 1.0).share == 1
    assert guard.decide(0, 1, step(), 200.0).share == pytest.approx(0.005)


def test_the_largest_numbers_there_are_come_to_a_finite_step() -> None:
    guard, huge = acquainted("clip", [5.0] * 20), np.full(2, np.finfo(np.float32).max)
    decision = guard.decide(0, 1, step(huge), 65_536.0)
    part = step(huge).scaled(decision.share)
    assert np.isfinite(part.delta).all()
    assert float(np.linalg.norm(part.delta.astype(np.float64))) * 65_536 <= 1.001 * 5


def acquainted(name: str, norms: list[float], held: int = MIN_NORMS) -> DefenceGuard:
    """One that has seen updates of these norms, of ten devices."""
    guard = DefenceGuard(name, norms=held)
    for number, norm in enumerate(norms):
        guard.add_decision(number - len(norms), 2000 + number % 10, Decision(1.0, norm))
    return guard


def known_agreements(*agreements: float) -> Agreements:
    agree = Agreements()
    for number, agreement in enumerate(agreements, 1 - len(agreements)):
        agree.add(number, alike(agreement))
    return agree


def test_evidence_is_the_logarithm_of_a_ratio_of_likelihoods() -> None:
    """Of agreements of mean 0.1 and deviation 0.2: N(0.1, 0.2) against N(-0.1, 0.2)."""
    agree = known_agreements(*USUAL)
    with_them, against = NormalDist(0.1, 0.2), NormalDist(-0.1, 0.2)
    for agreement in (-0.5, 0.0, 0.07, 0.6):
        expected = math.log(with_them.pdf(agreement) / against.pdf(agreement))
        assert agree.standing(0.0, alike(agreement)) == pytest.approx(expected)
    assert agree.standing(0.0, alike(-1.0)) == pytest.approx(-3.0), "beyond three deviations it is no more"
    assert agree.standing(MAX_STANDING, alike(0.5)) == MAX_STANDING
    assert agree.standing(MIN_STANDING, alike(-0.5)) == MIN_STANDING


@pytest.mark.parametrize(
    "agreements",
    [[0.3, -0.1] * 7, [0.2, -0.3] * 32, [0.1] * 64, [0.0] * 64],
    ids=["few", "disagreeing", "all alike", "nothing"],
)
def test_where_agreements_say_nothing_all_stand_as_they_did(agreements: list[float]) -> None:
    agree = known_agreements(*agreements)
    assert [agree.standing(before, alike(-0.9)) for before in (-4.0, 0.0, 2.0)] == [-4, 0, 2]


def test_who_opposes_only_the_movement_of_the_model_stands_as_before() -> None:
    """Bad devices that move the model agree with its movement, and honest ones oppose it."""
    agree = Agreements()
    for number in range(64):
        noise = 0.2 * (-1) ** number
        agree.add(number - 63, Cosines(noise - 0.01, noise - 0.01, 0.3 + noise))
    assert agree.standing(0.0, Cosines(0.1, 0.1, -0.3)) == 0


@pytest.mark.parametrize("part", [0.1, 0.3])
def test_devices_that_pull_against_the_others_are_found_out(part: float) -> None:
    """Of twenty, whose agreements are of mean 0.4 and deviation 1 in some unit, a few send the opposite; and
    one more does so from its hundredth update on."""
    random, guard = np.random.default_rng(7), acquainted("score", [5.0] * 20)
    guard.set_trusted(Trusted(0, UNIT))
    bad, dropped = round(20 * part), Counter[tuple[int, int]]()
    for turn in range(200):
        for device in range(20):
            opposite = device < bad or (device == 19 and turn >= 100)
            agreement = (-1 if opposite else 1) * random.normal(0.04, 0.1)
            version = 20 * turn + device
            decision = guard.decide(version, device, step(of_agreement(agreement)), 1.0)
            guard.add_decision(version + 1, device, decision)
            dropped[device, turn // 50] += not decision.share
    assert all(dropped[device, 3] >= 45 for device in (*range(bad), 19))
    assert all(dropped[device, 1] >= 40 for device in range(bad))
    honest = sum(dropped[device, part] for device in range(bad, 19) for part in range(4))
    assert honest < 0.04 * 200 * (19 - bad)


UNIT = np.array([[0, 0], [0.6, 0], [0, 0], [-0.8, 0]], np.float32)
"""DELTA's direction, and a model that stands."""


def of_agreement(agreement: float) -> np.ndarray:
    """Of DELTA's norm."""
    across = np.array([4, 3], np.float32)
    return np.float32(agreement) * DELTA + np.float32(math.sqrt(1 - agreement**2)) * across


def test_a_standing_is_of_each_device_and_a_pardon_ends_it() -> None:
    guard = acquainted("score", [5.0] * 20)
    assert guard.decide(0, 1, step(), 1.0).standing is None, "nothing to go by yet"
    guard.set_trusted(Trusted(0, UNIT))
    acquaint(guard)
    against = step(of_agreement(-0.3))
    first = guard.decide(0, 1, against, 1.0)
    assert first == guard.decide(0, 1, against, 1.0), "to decide changes nothing"
    assert first.share == 0
    assert first.agreement == pytest.approx((-0.3, -0.3, 0))
    assert first.standing == pytest.approx(-1.5, rel=1e-3)
    guard.add_decision(1, 1, first)
    second = guard.decide(1, 1, against, 1.0)
    assert second.standing == pytest.approx(-3.0, rel=1e-3), "what was dropped is no measure"
    assert guard.decide(1, 2, against, 1.0).standing == first.standing, "each has its own"
    assert guard.pardon(1)
    assert not guard.pardon(1)
    assert guard.decide(1, 1, against, 1.0).standing == first.standing
    assert guard.counts == {"dropped": 1}


def test_what_speaks_for_a_device_is_forgotten_and_what_speaks_against_it_is_not() -> None:
    assert decay_standing(2.0, round(HALF_LIFE)) == pytest.approx(1.0)
    assert decay_standing(2.0, 0) == 2
    assert decay_standing(-7.0, 100_000) == -7
    guard = acquainted("score", [5.0] * 20)
    guard.set_trusted(Trusted(0, UNIT))
    acquaint(guard)
    guard.add_decision(1, 1, guard.decide(0, 1, step(of_agreement(0.3)), 1.0))
    later = guard.decide(1 + round(HALF_LIFE), 1, step(of_agreement(0.0)), 1.0)
    assert later.standing == pytest.approx(1.5 / 2, rel=1e-3)


@pytest.mark.parametrize(("times", "left"), [(1.9, 1.5), (2.1, -1.5)])
def test_who_sends_much_more_than_it_did_has_no_credit(times: float, left: float) -> None:
    """Then an update that disagrees by 1.5 is enough, however good the device was."""
    guard = acquainted("score", [5.0] * 20)
    guard.set_trusted(Trusted(0, UNIT))
    acquaint(guard, version=0)
    for version in range(8):
        guard.add_decision(version + 1, 1, guard.decide(version, 1, step(of_agreement(0.5)), 1.0))
    assert guard.record(1).standing == MAX_STANDING
    decision = guard.decide(8, 1, step(np.float32(times) * of_agreement(-0.3)), 1.0)
    assert decision.standing == pytest.approx(left, abs=0.02)
    assert decision.share == (left > 0)


def test_no_device_makes_more_than_four_times_its_share_of_the_latest_updates() -> None:
    """Of eight, one sends as many as all others together; once those have left it may send all."""
    recent, counted = RecentUpdates(), []
    for version in range(1, 4001):
        device = 1 if version % 2 or version > 2000 else 2 + version // 2 % 7
        counted.append(recent.may_count(device, False))
        recent.add(version, device, counted[-1], False)
    assert all(counted[1:2000:2]), "nobody else is kept from anything"
    busy = counted[1000:2000:2]
    made = sum(busy) / (sum(busy) + 500)
    assert 0.4 < made <= 0.5
    assert all(counted[2600:])


def test_new_devices_together_are_a_quarter_of_what_counts() -> None:
    """Names with an update each, beside ten devices that are known; before those are, all count."""
    recent, counted = RecentUpdates(), []
    assert all(recent.may_count(number, True) for number in range(10))
    for version in range(1, 3001):
        new = version > 500 and version % 11 > 0
        device = 100 + version if new else version % 10
        counted.append(recent.may_count(device, new))
        recent.add(version, device, counted[-1], new)
    assert all(one for number, one in enumerate(counted, 1) if number <= 500 or number % 11 == 0)
    known = sum(number % 11 == 0 for number in range(1001, 3001))
    assert sum(counted[1000:]) - known <= known / 3 + 4


def test_a_guard_is_what_the_journal_has_of_its_decisions() -> None:
    """Restarted anywhere it decides the same, as long as it trusts the same."""
    random, past = np.random.default_rng(5), list[DefenceDecision]()
    guard = DefenceGuard("score")
    guard.set_trusted(Trusted(0, UNIT))
    for version in range(900):
        device = int(random.integers(12))
        agreement = (-1 if device < 2 and version > 400 else 1) * random.normal(0.06, 0.1)
        sent = step(np.float32(random.lognormal()) * of_agreement(agreement))
        if version in (1, 300, 700):
            guard = DefenceGuard("score", past)
            guard.set_trusted(Trusted(0, UNIT))
        decision = guard.decide(version, device, sent, 1.0)
        guard.add_decision(version + 1, device, decision)
        past.append(DefenceDecision(version + 1, device, decision.share, decision.pack()))
        assert past[-1].decision() == decision
    once = DefenceGuard("score")
    once.set_trusted(Trusted(0, UNIT))
    random = np.random.default_rng(5)
    for version in range(900):
        device = int(random.integers(12))
        agreement = (-1 if device < 2 and version > 400 else 1) * random.normal(0.06, 0.1)
        sent = step(np.float32(random.lognormal()) * of_agreement(agreement))
        decision = once.decide(version, device, sent, 1.0)
        once.add_decision(version + 1, device, decision)
        assert past[version] == DefenceDecision(version + 1, device, decision.share, decision.pack())
    assert {one.share for one in past if one.device < 2 and one.version > 800} == {0.0}


def test_it_wants_to_know_anew_each_so_many_updates() -> None:
    guard = DefenceGuard("score")
    assert guard.lacks_trusted
    assert guard.needs_refresh(0)
    guard.set_trusted(Trusted(107, np.ones((4, 2), np.float32)))
    assert (guard.needs_refresh(119), guard.needs_refresh(120), guard.lacks_trusted) == (
        False,
        True,
        False,
    )
    assert not DefenceGuard("clip").needs_refresh(1000)


def test_no_finite_number_makes_a_standing_none_at_all() -> None:
    """It would be below nothing, and whoever has it never dropped."""
    huge = np.array([np.finfo(np.float32).max, -np.finfo(np.float32).max], np.float32)
    trusted = Trusted(0, np.array([[0, 0], [-0.6, 0], [0, 0], [0.8, 0]], np.float32))
    assert trusted.agreement(WHERE, huge).extremes == pytest.approx(-1.4 / math.sqrt(2))


def test_agreement_is_of_the_groups_that_agree_most_and_least_of_all_and_with_the_movement() -> None:
    directions = np.array([[0, 0, 0.8, 0], [1, 0, -0.6, 0.5], [0, 0, 0, 0], [0, 1, 0, -0.5]], np.float32)
    trusted = Trusted(0, directions)
    first = trusted.agreement(WHERE, np.array([1, 0], np.float32))  # cosines 1, 0, -0.6
    assert first == pytest.approx((0.2, 0.4 / 3, 0.5))
    second = trusted.agreement(WHERE, np.array([0, 2], np.float32))  # 0, 1 and 0
    assert second == pytest.approx((0.5, 1 / 3, -0.5))
    assert trusted.agreement(slice(None), np.zeros(4, np.float32)) == (0, 0, 0)
    assert trusted.agreement(np.zeros(0, np.int64), np.zeros(0, np.float32)) == (0, 0, 0)


@pytest.mark.parametrize(
    ("said", "share"), [(math.nan, 0.0), (math.inf, 0.0), (-3.0, 0.0), (7.0, 1.0), (0.25, 0.25)]
)
def test_what_a_defence_says_is_a_part(said: float, share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DEFENCES, "mine", DefenceKind(lambda seen: said))
    assert DefenceGuard("mine").decide(0, 1, step(), 1.0).share == share


def test_an_unknown_one_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"defence\.mode = 'x' must be one of none, clip, score"):
        DefenceGuard("x")
    with pytest.raises(ConfigError, match=r"defence\.mode = 'clipp': must be .*did you mean 'clip'"):
        parse(overrides=["defence.mode=clipp"], tables=CHOICES)

"""Thresholds find the fraction that they are asked for, and more where that takes too little away."""

import numpy as np
import pytest
from numpy.typing import NDArray

from edgeflock.server.publication.copies import Copies
from edgeflock.server.publication.lossy import Lossy
from edgeflock.server.publication.modes import lag_of, publication_of
from edgeflock.server.publication.spill import Spill
from edgeflock.server.publication.thresholds import Thresholds
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.settings.config import Config
from edgeflock.shared.settings.traffic import DownlinkSettings

LAYOUT = Layout.from_shapes([("kernel", (100, 90)), ("bias", (1000,)), ("scale", (1,))])


def steps(thresholds: Thresholds, turns: int, lost: float = 0.0) -> list[NDArray[np.int64]]:
    """The counts of so many steps of normal differences; each leaves the part `lost` of what it lacks."""
    random, counts = np.random.default_rng(3), []
    for _ in range(turns):
        theta = random.standard_normal(LAYOUT.size).astype(np.float32)
        lacks = np.abs(theta)
        thresholds.begin(LAYOUT.counts(np.flatnonzero(lacks)), theta, np.zeros_like(theta))
        beyond = lacks > np.repeat(thresholds.values, np.diff(LAYOUT.bounds))
        counts.append(LAYOUT.counts(np.flatnonzero(beyond)))
        thresholds.adapt(counts[-1], 1.0, lost)
    return counts


@pytest.mark.parametrize("fraction", [0.001, 0.02, 0.3])
def test_tensors_share_the_fraction_by_the_root_of_their_sizes(fraction: float) -> None:
    counts = np.mean(steps(Thresholds(LAYOUT, fraction, 0.0), 2000)[500:], axis=0)
    assert counts.sum() == pytest.approx(fraction * LAYOUT.size, rel=0.15)
    if fraction < 0.3:
        assert counts[0] / counts[1] == pytest.approx(3, rel=0.2)


def test_the_first_step_has_the_fraction_too() -> None:
    (first,) = steps(Thresholds(LAYOUT, 0.02, 0.0), 1)
    assert first.sum() == pytest.approx(0.02 * LAYOUT.size, rel=0.05)


def test_more_if_too_little_is_taken_away_and_no_less_than_asked_if_much_is() -> None:
    def last(lost: float, share: float) -> float:
        counts = steps(Thresholds(LAYOUT, 0.01, share), 300, lost)
        return float(np.mean(counts[250:], axis=0).sum() / LAYOUT.size)

    assert last(lost=0.95, share=0.1) > 0.05
    assert last(lost=0.5, share=0.1) == pytest.approx(0.01, rel=0.2)
    assert last(lost=0.95, share=0.0) == pytest.approx(0.01, rel=0.2)
    assert last(lost=1.0, share=0.9) < 0.3, "but never most of the model"


def test_a_leap_of_the_model_does_not_last() -> None:
    thresholds = Thresholds(LAYOUT, 0.01, 0.0)
    steps(thresholds, 100)
    before = thresholds.values.copy()
    for _ in range(50):
        thresholds.rise()
    assert (thresholds.values > 100 * before)[:2].all()
    assert np.mean(steps(thresholds, 400)[300:], axis=0).sum() == pytest.approx(0.01 * LAYOUT.size, rel=0.2)


def test_what_differs_little_needs_no_threshold_until_it_does() -> None:
    """The first steps of a run differ where the first updates were."""
    thresholds = Thresholds(LAYOUT, 0.02, 0.0)
    theta, held = np.zeros(LAYOUT.size, np.float32), np.zeros(LAYOUT.size, np.float32)
    theta[:100] = 0.001
    assert not thresholds.begin(LAYOUT.counts(np.arange(100)), theta, held)
    thresholds.adapt(LAYOUT.counts(np.arange(100)), 1.0, 0.5)
    (first,) = steps(thresholds, 1)
    assert first.sum() == pytest.approx(0.02 * LAYOUT.size, rel=0.05)


def test_a_tensor_that_never_changes_costs_nothing() -> None:
    thresholds = Thresholds(LAYOUT, 0.01, 0.0)
    still, none = np.zeros(LAYOUT.size, np.float32), np.zeros(3, np.int64)
    assert not thresholds.begin(none, still, still)
    steps(thresholds, 1)
    for _ in range(3000):
        thresholds.adapt(none, 0.0, 0.0)
    assert np.isfinite(thresholds.values).all()
    assert np.mean(steps(thresholds, 3000)[2000:], axis=0).sum() < 0.02 * LAYOUT.size, "should it ever again"


def used_to(interval: int, share: float = 0.3) -> Thresholds:
    """Thresholds for a lag of 100 versions, after steps of this interval."""
    thresholds = Thresholds(LAYOUT, 0.01, share, 100)
    for _ in range(400):
        thresholds.adapt(np.ones(3, np.int64), 1.0, 0.5, interval, 10**6)
    return thresholds


@pytest.mark.parametrize(
    ("interval", "share"), [(4, 4 / 104), (10, 10 / 110), (30, 30 / 130), (200, 0.3), (10**9, 0.3)]
)
def test_the_share_follows_from_how_far_a_copy_may_lag(interval: int, share: float) -> None:
    """(1 - s) / s steps of `interval` versions each are 100 versions, unless that is more than is allowed."""
    assert used_to(interval).target(10**6) == pytest.approx(share, rel=0.01)


@pytest.mark.parametrize(("version", "share"), [(0, 0.3), (10, 0.3), (400, 0.2), (900, 0.1), (1000, 1 / 11)])
def test_early_copies_lag_a_tenth_of_all_versions(version: int, share: float) -> None:
    thresholds = used_to(10)
    assert thresholds.target(version) == pytest.approx(share)
    thresholds.reset()
    assert thresholds.target(version) == 0, "no step has been counted"
    assert used_to(10, share=0.02).target(version) == 0.02, "never more than is allowed"


def test_the_first_interval_is_the_average() -> None:
    thresholds = Thresholds(LAYOUT, 0.01, 0.3, 100)
    thresholds.follow(10)
    assert thresholds.target(10**6) == pytest.approx(10 / 110)


def test_the_fraction_changes_fast_at_first_and_slowly_later() -> None:
    thresholds = Thresholds(LAYOUT, 0.001, 0.3, 100)

    def grown(steps: int, remaining: float) -> float:
        before = thresholds.quota
        for _ in range(steps):
            thresholds.adapt(np.ones(3, np.int64), 1.0, remaining, 10)
        return thresholds.quota / before

    assert grown(10, remaining=1.0) == pytest.approx(np.e)
    grown(240, remaining=0.0)
    assert grown(50, remaining=1.0) == pytest.approx(np.e)


def test_where_labels_differ_copies_may_lag_less() -> None:
    lossy = Lossy(LAYOUT, 0, Copies(LAYOUT, None, 3, Spill(None, LAYOUT.size, 0)), DownlinkSettings(), 0, 100)
    thresholds = lossy._thresholds
    for overlap, lag in ((1.0, 100), (0.5, 50), (0.1, 30), (0.9, 90)):
        lossy.set_overlap(overlap)
        assert thresholds.lag == lag
    unbounded = Lossy(LAYOUT, 0, Copies(LAYOUT, None, 3, Spill(None, LAYOUT.size, 0)), DownlinkSettings())
    unbounded.set_overlap(0.1)
    assert unbounded._thresholds.lag == 0


def test_without_a_bound_on_the_lag_the_share_is_what_is_given() -> None:
    thresholds = Thresholds(LAYOUT, 0.01, 0.3)
    thresholds.adapt(np.ones(3, np.int64), 1.0, 0.5, 4)
    assert thresholds.target(0) == 0.3


@pytest.mark.parametrize(("batch", "lag"), [(1, 100), (10, 100), (32, 50), (100, 25), (1000, 25)])
def test_a_replica_lags_fewer_versions_of_larger_batches(batch: int, lag: int) -> None:
    assert lag_of(Config.model_validate({"local": {"batch": batch}})) == lag
    text = {"local": {"batch": batch}, "model": {"loss": "next_token"}}
    assert lag_of(Config.model_validate(text)) == min(lag, 50), "a text has many predictions"
    rounds = {"local": {"batch": batch}, "coordination": {"mode": "rounds"}}
    assert lag_of(Config.model_validate(rounds)) == 0


def test_an_interval_of_more_than_five_times_the_average_is_rare() -> None:
    thresholds, unbounded = Thresholds(LAYOUT, 0.01, 0.3, 100), Thresholds(LAYOUT, 0.01, 0.3)
    assert not thresholds.is_rare(1000), "nothing has been counted yet"
    for _ in range(20):
        thresholds.follow(10)
        unbounded.follow(10)
    assert not thresholds.is_rare(49)
    assert thresholds.is_rare(51)
    assert not unbounded.is_rare(51)


@pytest.mark.parametrize(("loss", "entries"), [("cross_entropy", 100), ("next_token", 404)])
def test_differences_have_more_entries_if_the_loss_is_per_token(loss: str, entries: int) -> None:
    layout = Layout.from_shapes([("a", (100, 100))])
    lossy = publication_of(Config.model_validate({"model": {"loss": loss}}), layout, 0, None)
    assert isinstance(lossy, Lossy)
    assert round(lossy._thresholds.quota) == entries
    chosen = {"model": {"loss": loss}, "downlink": {"select": 0.5}}
    lossy = publication_of(Config.model_validate(chosen), layout, 0, None)
    assert isinstance(lossy, Lossy)
    assert lossy._thresholds.quota == 5000

"""A model that has lost what it had learned goes back, and the learning rate is halved."""

from pathlib import Path

import pytest

from edgeflock.server.engine.judging import LossMonitor
from edgeflock.server.engine.steering import Recovery
from edgeflock.server.ledger import verify
from tests.server.engine.test_judging import evaluation, opened, pushed

LEARNED = [(2.3, 0.1), (1.5, 0.4), (1.0, 0.6)]
"""(loss, accuracy) of a run that learns."""


def is_lost(*found: tuple[float | None, float | None]) -> bool:
    rising = LossMonitor()
    for version, (loss, accuracy) in enumerate(found):
        rising.take(evaluation(version, accuracy, loss))
    return rising.is_lost


@pytest.mark.parametrize(
    ("after", "lost"),
    [
        ([], False),
        ([(2.4, 0.1)], False),  # a spike
        ([(2.4, 0.1), (2.3, 0.1)], True),
        ([(2.295, 0.1), (2.295, 0.1)], True),  # the same answer to everything: just below the first model
        ([(2.4, 0.1), (1.9, 0.1)], False),  # it comes back
        ([(2.4, None), (2.4, None)], False),
        ([(7.0, None), (7.0, None)], True),
        ([(2.4, 0.4), (2.5, 0.4)], False),  # overconfident: most is still right
        ([(1.9, 0.1), (2.0, 0.1)], False),
        ([(None, 0.1)], True),
        ([(2301.0, 0.1)], True),
    ],
)
def test_what_counts_as_lost(after: list[tuple[float | None, float | None]], lost: bool) -> None:
    assert is_lost(*LEARNED, *after) == lost


def test_a_run_that_has_learned_nothing_yet() -> None:
    assert not is_lost((2.3, 0.1), (2.4, 0.1), (2.5, 0.1))
    assert is_lost((2.3, 0.1), (7.0, 0.1), (7.0, 0.1))
    assert is_lost((None, 0.1))


@pytest.mark.parametrize(
    "found",
    [
        [(0.30, 0.90), (0.28, 0.92), (0.95, 0.93), (0.95, 0.94)],  # fine-tuning, overconfident
        [(0.010, None), (0.007, None), (0.0101, None), (0.0102, None)],  # a regression, nearly perfect
        [(-1.0, None), (-0.99, None), (-0.98, None)],
        [(0.0, None), (0.0, None), (0.0, None)],
    ],
)
def test_what_only_looks_like_it(found: list[tuple[float | None, float | None]]) -> None:
    assert not is_lost(*found)


def record(path: Path, *found: tuple[float, float], settings: str = "") -> list[Recovery | None]:
    """What each evaluation came to, each after ten updates, or none where the run is over."""
    engine = opened(path, "coordination.learning_rate=0.1", *settings.split())
    recoveries = []
    for loss, accuracy in found:
        for _ in range(10):
            pushed(engine, engine.receipts.last_sequence(engine.device_id("a")) + 1)
        now = evaluation(engine.published.version, accuracy, loss)
        recoveries.append(engine.steering.record(now, [], may_recover=True))
    return recoveries


LOST = [(2.4, 0.1), (2.4, 0.1)]


def test_it_goes_back_to_the_best_with_half_the_rate(tmp_path: Path) -> None:
    *before, recovery = record(tmp_path, *LEARNED, *LOST)
    assert before == [None] * 4
    assert recovery == Recovery(2.4, restored=30, version=51, previous_rate=0.1, rate=0.05)
    assert "the learning rate falls from 0.1 to 0.05" in str(recovery)
    again = opened(tmp_path, "coordination.learning_rate=0.1")
    assert (again.published.version, again.published.learning_rate) == (51, 0.05)
    assert verify(tmp_path / "journal.sqlite").damage == []


def test_after_a_restart_it_comes_to_the_same(tmp_path: Path) -> None:
    """An evaluation of before the recovery counts no more; two of after it do."""
    record(tmp_path, *LEARNED, *LOST)
    assert record(tmp_path, LOST[0]) == [None]
    (recovery,) = record(tmp_path, LOST[1])
    assert recovery is not None
    assert (recovery.restored, recovery.previous_rate, recovery.rate) == (30, 0.05, 0.025)


def test_it_gives_up_where_the_rate_is_not_what_is_wrong(tmp_path: Path) -> None:
    found = record(tmp_path, *LEARNED, *LOST * 8)
    assert sum(one is not None for one in found) == 6
    assert opened(tmp_path, "coordination.learning_rate=0.1").published.learning_rate == 0.1 / 64


def test_not_without_leave(tmp_path: Path) -> None:
    assert not any(record(tmp_path, *LEARNED, *LOST, settings="evaluation.recover=false"))


def test_a_run_that_is_over_stays_so(tmp_path: Path) -> None:
    assert not any(record(tmp_path, *LEARNED, *LOST, settings="end.updates=50"))
    assert opened(tmp_path, "end.updates=50").published.complete


@pytest.mark.parametrize(("window", "of"), [(2, 0), (100, 30)])
def test_without_kept_updates_it_goes_back_as_far_as_it_must(window: int, of: int, tmp_path: Path) -> None:
    """To the best, if the journal has what led there: the recovery makes no snapshot before it looks."""
    settings = f"journal.keep_updates=false journal.snapshot_every=20 coordination.window={window}"
    *_, recovery = record(tmp_path, *LEARNED, *LOST, settings=settings)
    assert recovery is not None
    assert recovery.restored == of


def test_not_before_an_update_was_made(tmp_path: Path) -> None:
    """Held-out data that give no number say nothing of the rate."""
    engine = opened(tmp_path)
    for _ in range(3):
        assert engine.steering.record(evaluation(0, None, None), [], may_recover=True) is None
    assert engine.published.version == 0

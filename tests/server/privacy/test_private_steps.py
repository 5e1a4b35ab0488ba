"""Steps of a private run: clipping, noise on every entry, restarts, rollbacks, and what is refused."""

from pathlib import Path

import numpy as np
import pytest

from edgeflock.server.ledger.recovery import replay
from edgeflock.shared.errors import BaseExpired, ConfigError, RunComplete
from edgeflock.shared.protocol.messages import Receipt
from tests.server.privacy.private_runs import BUFFER, ROUNDS, begin, gradient, send
from tests.server.pushes import (
    DEADLINE,
    LAYOUT,
    THETA,
    commit,
    copy_as_killed,
    dense_update,
    push,
    sparse_update,
)

QUIET = "privacy.noise=1e-6"


def test_a_hostile_device_moves_the_model_no_further_than_the_bound(tmp_path: Path) -> None:
    _, engine = begin(tmp_path, QUIET, "privacy.clip=0.25")
    send(engine, 1, 1, gradient(1, norm=1e6))
    send(engine, 2, 1, np.zeros(LAYOUT.size, np.float32))
    assert np.linalg.norm(engine.parameters.theta - THETA) == pytest.approx(0.25 / 2, rel=1e-3)


def test_an_honest_step_is_the_mean(tmp_path: Path) -> None:
    _, engine = begin(tmp_path, QUIET, "privacy.clip=10")
    for device in (1, 2):
        assert isinstance(send(engine, device, 1, gradient(device)), Receipt)
    mean = (gradient(1) + gradient(2)) / 2
    np.testing.assert_allclose(engine.parameters.theta, THETA - mean, atol=1e-4)


def test_all_entries_get_noise_whichever_were_sent(tmp_path: Path) -> None:
    _, engine = begin(tmp_path)
    for device in (1, 2):
        commit(engine, [push(device, sparse_update(1, engine.parameters.version, {3: 0.1}))])
    assert (engine.parameters.theta != THETA).all()
    model = engine.outlet.model(0, 0, 1)
    assert model.base is None or model.count == LAYOUT.size  # devices get all that changed


def test_a_round_divides_by_its_quorum(tmp_path: Path) -> None:
    _, engine = begin(tmp_path, QUIET, "privacy.clip=10", "coordination.quorum=3", settings=ROUNDS)
    for device in (1, 2):
        assert send(engine, device, 1, gradient(device)) is None
    commit(engine, [])
    engine.commit([], DEADLINE + 1)
    np.testing.assert_allclose(engine.parameters.theta, THETA - (gradient(1) + gradient(2)) / 3, atol=1e-4)


@pytest.mark.parametrize("tree", [1, 4])
def test_kill_9_forgets_and_repeats_no_noise(tmp_path: Path, tree: int) -> None:
    """A copy of the journal at any moment goes on with the same bits as the run that was not killed."""
    settings = (f"privacy.tree={tree}",)
    (tmp_path / "whole").mkdir()
    _, whole = begin(tmp_path / "whole", *settings)
    for update in range(1, 15):
        killed = copy_as_killed(tmp_path / "whole", tmp_path / f"killed{update}")
        _, again = begin(killed, *settings)
        np.testing.assert_array_equal(again.parameters.theta, whole.parameters.theta)
        again.abandon()
        send(whole, update, 1, gradient(update))
    _, again = begin(copy_as_killed(tmp_path / "whole", tmp_path / "last"), *settings)
    for engine in (whole, again):
        for device in (101, 102):
            send(engine, device, 1, gradient(device))
    np.testing.assert_array_equal(again.parameters.theta, whole.parameters.theta)


def test_a_replay_from_the_first_version_gives_the_same_bits(tmp_path: Path) -> None:
    journal, engine = begin(tmp_path, "privacy.tree=4")
    for device in range(1, 8):
        send(engine, device, 1, gradient(device))
    engine.steering.roll_back(4, 1.8e9)
    for device in range(1, 6):
        send(engine, device, 2, gradient(device))
    for newest in (False, True):
        np.testing.assert_array_equal(replay(journal, LAYOUT, newest=newest).theta, engine.parameters.theta)


def test_a_rollback_drops_updates_that_waited_and_have_counted_since(tmp_path: Path) -> None:
    _, engine = begin(tmp_path, QUIET, "privacy.clip=10", "privacy.tree=4")
    for device in (1, 2):
        send(engine, device, 1, gradient(device))
    restored = engine.parameters.theta.copy()
    for device in (3, 4):
        send(engine, device, 1, gradient(device))
    engine.steering.roll_back(3, 1.8e9)  # update 3 waited then, and is in version 4
    np.testing.assert_array_equal(engine.parameters.theta, restored)
    for device in (5, 1):  # a new tree has begun, in which 1 has not taken part
        assert isinstance(send(engine, device, 2, gradient(device)), Receipt)
    np.testing.assert_allclose(engine.parameters.theta, restored - (gradient(5) + gradient(1)) / 2, atol=1e-4)


def test_a_device_takes_part_once_in_a_tree(tmp_path: Path) -> None:
    _, engine = begin(tmp_path, "privacy.tree=2")
    for device in range(1, 6):
        engine.add_device(device)
    send(engine, 1, 1, gradient(1))
    assert not engine.eligibility.has_turn(1)
    refusal = send(engine, 1, 2, gradient(1))
    assert isinstance(refusal, BaseExpired)
    assert "counts in the present steps already (privacy.tree)" in str(refusal)
    for device in (2, 3, 4):
        send(engine, device, 1, gradient(device))
    assert engine.eligibility.has_turn(1)
    assert isinstance(send(engine, 1, 2, gradient(1)), Receipt)


def test_a_tree_ends_early_if_every_connected_device_has_taken_part(tmp_path: Path) -> None:
    journal, engine = begin(tmp_path, "privacy.tree=16")
    for device in (1, 2, 3):
        engine.add_device(device)
    for device in (1, 2, 3):
        send(engine, device, 1, gradient(device))
    assert [turn.kind for turn in journal.regimes()] == ["settings", "tree"]
    turns = [engine.eligibility.has_turn(device) for device in (1, 2, 3)]
    assert turns == [True, True, False]  # 3 waits for a step
    send(engine, 1, 2, gradient(1))
    assert [engine.eligibility.has_turn(device) for device in (1, 2, 3)] == [False, True, False]
    copy = copy_as_killed(tmp_path, tmp_path / "copy")
    _, again = begin(copy, "privacy.tree=16")
    np.testing.assert_array_equal(again.parameters.theta, engine.parameters.theta)
    np.testing.assert_array_equal(replay(journal, LAYOUT).theta, engine.parameters.theta)


@pytest.mark.parametrize("mode", ["buffer", "rounds"])
def test_the_run_ends_at_its_budget_and_stays_ended(tmp_path: Path, mode: str) -> None:
    settings = ROUNDS if mode == "rounds" else BUFFER
    budget = ("privacy.epsilon=30", "privacy.participations=2")
    _, engine = begin(tmp_path, *budget, settings=settings)
    for device in (1, 2):
        engine.add_device(device)
    for sequence in (1, 2):
        assert engine.published.end_reason is None
        for device in (1, 2):
            send(engine, device, sequence, gradient(device))
    reason = engine.published.end_reason
    assert reason is not None
    assert reason.startswith("its privacy budget is spent: epsilon = ")
    assert isinstance(send(engine, 3, 1, gradient(3)), RunComplete)
    engine.close()
    _, again = begin(tmp_path, *budget, settings=settings)
    assert again.published.end_reason == reason


def test_a_device_without_budget_is_told_so_and_others_go_on(tmp_path: Path) -> None:
    _, engine = begin(tmp_path, "privacy.participations=1")
    for device in (1, 2, 3, 4, 5):
        engine.add_device(device)
    for device in (1, 2):
        send(engine, device, 1, gradient(device))
    refusal = send(engine, 1, 2, gradient(1))
    assert isinstance(refusal, RunComplete)
    assert "its 1 update spent its privacy budget" in str(refusal)
    assert engine.published.end_reason is None
    assert isinstance(send(engine, 3, 1, gradient(3)), Receipt)


LOCAL = (
    "coordination.mode=rounds", "coordination.quorum=2", "coordination.rule=none", "privacy.mode=local",
    "privacy.noise=1", "privacy.delta=1e-5", "privacy.examples=1000", "privacy.participations=2",
)  # fmt: skip


@pytest.mark.parametrize(
    "change", ["privacy.noise=9", "privacy.clip=3", "privacy.examples=5000", "local.batch=1", "local.steps=2"]
)
def test_what_an_update_cost_does_not_change(tmp_path: Path, change: str) -> None:
    """Epsilon of past updates would follow from noise that they have not had."""
    _, engine = begin(tmp_path, settings=LOCAL)
    for device in (1, 2):
        send(engine, device, 1, gradient(device))
    engine.close()
    with pytest.raises(ConfigError, match="set these again, or begin a new run"):
        begin(tmp_path, change, settings=LOCAL)
    begin(tmp_path, "privacy.participations=9", settings=LOCAL)[1].close()


def test_late_updates_cost_privacy_where_examples_are_hidden_from_the_server(tmp_path: Path) -> None:
    _, engine = begin(tmp_path, settings=LOCAL)
    for device in (1, 2):
        send(engine, device, 1, gradient(device))
    late = push(3, dense_update(1, 0, gradient(3)))
    assert isinstance(commit(engine, [late])[0], BaseExpired)
    assert engine.eligibility.farewell(3) is None
    assert isinstance(commit(engine, [late])[0], BaseExpired)
    assert engine.eligibility.farewell(3) is not None
    assert engine.eligibility.privacy_spent is not None
    assert engine.eligibility.privacy_spent.participations == 2
    assert isinstance(send(engine, 3, 1, gradient(3)), RunComplete)
    assert engine.eligibility.privacy_spent.participations == 2


def test_the_noise_of_a_run_does_not_change(tmp_path: Path) -> None:
    _, engine = begin(tmp_path)
    send(engine, 1, 1, gradient(1))
    engine.close()
    for change in ("privacy.noise=0.4", "privacy.tree=2", "privacy.clip=2"):
        with pytest.raises(ConfigError, match="begin a new run"):
            begin(tmp_path, change)
    _, engine = begin(tmp_path, "coordination.learning_rate=0.5")
    assert engine.parameters.regime.learning_rate == 0.5

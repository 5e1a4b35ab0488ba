"""Secure sums with differential privacy, at the engine: noise, restarts, and whose participations count."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from edgeflock.server.coordination import Push
from edgeflock.server.engine import Engine
from edgeflock.server.journal.journal import Journal
from edgeflock.server.journal.records import SUM_DEVICE
from edgeflock.server.ledger.recovery import replay
from edgeflock.shared.errors import RunComplete
from edgeflock.shared.protocol import wire
from tests.server.privacy.private_runs import begin as begin_any
from tests.server.privacy.private_runs import gradient
from tests.server.privacy.private_runs import send as send_alone
from tests.server.pushes import DEADLINE, LAYOUT, THETA, copy_as_killed, sparse_update

SUMS = (
    "coordination.mode=private", "coordination.cohort=4", "coordination.learning_rate=1",
    "privacy.mode=server", "privacy.noise=0.5", "privacy.devices=100",
)  # fmt: skip
QUIET = "privacy.noise=1e-6"
SUM = 20
"""The number of the device that sums come from."""


def begin(directory: Path, *overrides: str) -> tuple[Journal, Engine]:
    journal, engine = begin_any(directory, *overrides, settings=SUMS)
    assert engine.device_id(SUM_DEVICE) == SUM
    return journal, engine


def send(engine: Engine, entries: Mapping[int, float], *devices: int) -> object:
    """Push the sum of these devices from the present version; return what becomes of it."""
    sequence = engine.receipts.last_sequence(SUM) + 1
    update = sparse_update(sequence, engine.parameters.version, entries)
    settled = engine.commit([Push(SUM, 1_700_000_000.0, update, wire.encode(update), devices)], 0.0)
    settled = settled or engine.commit([], DEADLINE)
    return settled[0][1]


def test_noise_is_on_the_entries_of_the_round_and_on_all_of_them(tmp_path: Path) -> None:
    _, engine = begin(tmp_path)
    send(engine, {3: 0.1, 7: 0.0, 8: 0.2}, 1, 2, 3)
    changed = np.flatnonzero(engine.parameters.theta != THETA)
    assert changed.tolist() == [3, 7, 8]
    model = engine.outlet.model(0, 0, 1)
    assert model.base is None or model.count == 3


def test_nobody_observes_what_has_no_noise_yet(tmp_path: Path) -> None:
    """What findings say of updates, such as the cosines between them, is shown to all who may see the run."""
    seen: list[Push] = []
    _, engine = begin(tmp_path)
    engine.observe = lambda push, step: seen.append(push)
    send(engine, {3: 0.1}, 1, 2, 3)
    (tmp_path / "single").mkdir()
    _, engine = begin_any(tmp_path / "single")
    engine.observe = lambda push, step: seen.append(push)
    for device in range(4):
        send_alone(engine, device + 1, 1, gradient(device))
    assert engine.parameters.version >= 4
    assert not seen


def test_the_step_is_the_sum_over_the_seats(tmp_path: Path) -> None:
    """Not over the devices that came, since their number is not for all to know."""
    _, engine = begin(tmp_path, QUIET)
    send(engine, {3: 1.0, 8: -2.0}, 1, 2, 3)
    moved = THETA - engine.parameters.theta
    np.testing.assert_allclose(moved[[3, 8]], [0.25, -0.5], atol=1e-4)


def test_a_sum_is_no_longer_than_its_devices_may_make_it(tmp_path: Path) -> None:
    """A device that breaks its bound moves the model no further than a full round of honest ones."""
    _, engine = begin(tmp_path, QUIET, "privacy.clip=0.5")
    send(engine, {3: 3e6, 8: 4e6}, 1, 2, 3)
    np.testing.assert_allclose((THETA - engine.parameters.theta)[[3, 8]], [0.3, 0.4], rtol=1e-3)


def test_kill_9_repeats_no_noise_and_forgets_no_participation(tmp_path: Path) -> None:
    (tmp_path / "whole").mkdir()
    _, whole = begin(tmp_path / "whole")
    steps = []
    for number in range(6):
        before = whole.parameters.theta.copy()
        send(whole, {1: 0.3, 2: 0.3}, 1, 2, 3 + number)
        steps.append((whole.parameters.theta - before)[[1, 2]])
        journal, again = begin(copy_as_killed(tmp_path / "whole", tmp_path / f"killed{number}"))
        np.testing.assert_array_equal(again.parameters.theta, whole.parameters.theta)
        np.testing.assert_array_equal(replay(journal, LAYOUT).theta, whole.parameters.theta)
        assert again.eligibility.privacy_spent == whole.eligibility.privacy_spent
        again.abandon()
    assert len({one.tobytes() for one in steps}) == 6
    spent = whole.eligibility.privacy_spent
    assert spent is not None
    assert (spent.participations, spent.unit) == (6, "device")

    # Another history after a restart: a round that no journal has gets noise of its own.
    _, again = begin(copy_as_killed(tmp_path / "whole", tmp_path / "other"))
    before = again.parameters.theta.copy()
    send(whole, {1: 0.3, 2: 0.3}, 1, 2, 3)
    send(again, {1: 0.3, 2: 0.30001}, 1, 2, 3)
    differ = np.abs(again.parameters.theta - whole.parameters.theta)[[1, 2]]
    assert (differ > 1e-3).all()


def test_dropped_records_keep_their_participations(tmp_path: Path) -> None:
    """With journal.keep_updates = false the records of old sums go, and the accountant must not forget."""
    journal, engine = begin(tmp_path)
    for _ in range(3):
        send(engine, {1: 0.3}, 1, 2, 3)
    journal.drop_frames(3)
    engine.close()
    _, again = begin(tmp_path)
    assert again.eligibility.privacy_spent is not None
    assert again.eligibility.privacy_spent.participations == 3


def test_devices_of_sums_spend_their_budgets_and_the_run_ends(tmp_path: Path) -> None:
    budget = ("privacy.participations=2", "privacy.epsilon=30")
    _, engine = begin(tmp_path, *budget)
    for device in (1, 2, 3, 4):
        engine.add_device(device)
    send(engine, {1: 0.3}, 1, 2, 3)
    send(engine, {1: 0.3}, 1, 2, 4)
    assert [engine.eligibility.farewell(device) is None for device in (1, 2, 3, 4, SUM)] == [
        False,
        False,
        True,
        True,
        True,
    ]
    assert engine.published.end_reason is not None  # two are left, and a sum is of three at least
    assert engine.published.end_reason.startswith("its privacy budget is spent: epsilon = ")
    assert isinstance(send(engine, {1: 0.3}, 3, 4, 5), RunComplete)
    engine.close()
    _, again = begin(tmp_path, *budget)
    assert again.published.end_reason == engine.published.end_reason


@pytest.mark.parametrize("devices", [(1, 2, 3), (1, 2)])
def test_who_drops_out_spends_nothing(tmp_path: Path, devices: tuple[int, ...]) -> None:
    _, engine = begin(tmp_path, "privacy.participations=1")
    for device in (1, 2, 3, 4, 5, 6):
        engine.add_device(device)
    send(engine, {1: 0.3}, *devices)
    spent = [device for device in range(1, 7) if engine.eligibility.farewell(device) is not None]
    assert spent == list(devices)


def test_decisions_of_a_defence_are_no_devices(tmp_path: Path) -> None:
    """Both are in one column of the journal, and with privacy.mode = "local" a run may have a defence."""
    local = ("privacy.mode=local", "privacy.delta=1e-5", "privacy.examples=1000", "privacy.devices=0")
    rounds = (
        "coordination.mode=rounds",
        "coordination.cohort=0",
        "coordination.quorum=2",
        "defence.mode=clip",
    )
    settings = (*SUMS, *rounds, *local)
    for sequence in (1, 2):
        _, engine = begin_any(tmp_path, settings=settings)
        for device in (1, 2):
            send_alone(engine, device, sequence, gradient(device))
        assert engine.eligibility.privacy_spent is not None
        assert engine.eligibility.privacy_spent.participations == sequence
        engine.close()

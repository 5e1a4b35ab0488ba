"""Going on after the ServerApp died."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, MetricRecord

from edgeflock.server.flower import AsyncAdaComp, ScaDLES
from edgeflock.server.journal.journal import Journal
from edgeflock.server.ledger.recovery import replay
from edgeflock.shared.errors import ConfigError
from tests.flower.apps import MODEL, PLAIN, app, numbers, plus, record
from tests.flower.grid import Clock, FakeGrid


def journaled(directory: Path) -> list[tuple[Any, ...]]:
    """(device, sequence) of every update in the checkpoint, in order."""
    journal = Journal(directory / "journal.sqlite")
    rows = [*journal.db.rows("SELECT device, sequence FROM updates ORDER BY version")]
    journal.close()
    return rows


class Killed(BaseException):
    """As `kill -9`: nothing that runs afterwards may write."""


@pytest.mark.parametrize("kind", [AsyncAdaComp, ScaDLES])
def test_a_killed_run_goes_on_from_its_checkpoint(
    clock: Clock, tmp_path: Path, kind: type[AsyncAdaComp] | type[ScaDLES]
) -> None:
    """Killed between two commits, with updates under way: no round is lost, none counts twice."""
    grid = FakeGrid(clock)
    for node in (1, 2, 3):
        grid.add(node, app(plus(1), mod=node == 2), seconds=node)

    def kill(number: int, arrays: ArrayRecord) -> MetricRecord:
        if number == 3:
            raise Killed
        return MetricRecord({"accuracy": number / 10})

    options = {"checkpoint": tmp_path, "keep_updates": True, "min_available_nodes": 3, "select": 1.0}
    with pytest.raises(Killed):
        kind(**options).start(grid, record(PLAIN), num_rounds=5, evaluate_fn=kill)  # type: ignore[arg-type]

    strategy = kind(**options)  # type: ignore[arg-type]
    seen: list[int] = []

    def evaluate(number: int, arrays: ArrayRecord) -> MetricRecord:
        seen.append(number)
        return MetricRecord({"accuracy": number / 10})

    clock.sleep(10)
    result = strategy.start(grid, record(PLAIN), num_rounds=5, evaluate_fn=evaluate)
    assert seen == [3, 4, 5], "the round that was not evaluated is, first"
    assert result.evaluate_metrics_serverapp[2]["accuracy"] == 0.2, "from before the crash"
    rows = journaled(tmp_path)
    assert len(rows) == len(set(rows))
    assert len(rows) == 15
    journal = Journal(tmp_path / "journal.sqlite")
    known = journal.run()
    assert known is not None
    replayed = replay(journal, known.layout)
    journal.close()
    theta = np.concatenate([a.ravel() for a in numbers(result.arrays).values()])
    np.testing.assert_array_equal(replayed.theta, theta, "bit for bit what the journal says")
    assert replayed.version == len(rows)


def test_a_finished_run_is_not_trained_further(grid: FakeGrid, tmp_path: Path) -> None:
    grid.add(1, app(plus(1)))
    grid.add(2, app(plus(1)))
    first = ScaDLES(checkpoint=tmp_path).start(grid, record(PLAIN), num_rounds=2)
    pushed = len(grid.log)
    again = ScaDLES(checkpoint=tmp_path).start(grid, record(PLAIN), num_rounds=2)
    assert len(grid.log) == pushed
    np.testing.assert_array_equal(numbers(again.arrays)["w"], numbers(first.arrays)["w"])


def test_a_checkpoint_of_another_model_is_refused(grid: FakeGrid, tmp_path: Path) -> None:
    grid.add(1, app(plus(1)))
    grid.add(2, app(plus(1)))
    ScaDLES(checkpoint=tmp_path).start(grid, record(PLAIN), num_rounds=1)
    with pytest.raises(ConfigError, match="checkpoint"):
        ScaDLES(checkpoint=tmp_path).start(grid, record(MODEL), num_rounds=2)


def test_one_checkpoint_serves_one_run_at_a_time(grid: FakeGrid, tmp_path: Path) -> None:
    def again(number: int, arrays: ArrayRecord) -> MetricRecord | None:
        with pytest.raises(ConfigError, match="checkpoint"):
            ScaDLES(checkpoint=tmp_path).start(grid, record(PLAIN), num_rounds=1)
        return None

    grid.add(1, app(plus(1)))
    grid.add(2, app(plus(1)))
    ScaDLES(checkpoint=tmp_path).start(grid, record(PLAIN), num_rounds=1, evaluate_fn=again)


def test_the_nodes_at_work_are_in_the_checkpoint(grid: FakeGrid, tmp_path: Path) -> None:
    """Two nodes, then five: how much each reply counted is replayed to the same bits, and not forgotten."""
    for node in (1, 2):
        grid.add(node, app(plus(0.1)), seconds=node)
    for node in (3, 4, 5):
        grid.clock.at(3.5, lambda node=node: grid.add(node, app(plus(0.1)), seconds=node))  # type: ignore[misc]
    options = {
        "checkpoint": tmp_path,
        "keep_updates": True,
        "fraction_evaluate": 0.0,
        "updates_per_round": 10,
    }
    AsyncAdaComp(**options).start(grid, record(PLAIN), num_rounds=2)  # type: ignore[arg-type]
    result = AsyncAdaComp(**options).start(grid, record(PLAIN), num_rounds=3)  # type: ignore[arg-type]
    journal = Journal(tmp_path / "journal.sqlite")
    known, regimes = journal.run(), journal.regimes()
    assert known is not None
    replayed = replay(journal, known.layout)
    journal.close()
    counted = [turn.regime.method.nodes for turn in regimes]
    assert counted[-2:] == [2, 5], "the second start found them as they were"
    theta = np.concatenate([a.ravel() for a in numbers(result.arrays).values()])
    np.testing.assert_array_equal(replayed.theta, theta)


def test_the_log_counts_the_updates_of_this_start_and_says_when_nothing_is_left(
    clock: Clock, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    grid = FakeGrid(clock)
    for node in (1, 2, 3):
        grid.add(node, app(plus(1)), seconds=node)

    def kill() -> None:
        raise Killed

    clock.at(4.1, kill)
    logging.getLogger("flwr").addHandler(caplog.handler)
    options = {"checkpoint": tmp_path, "min_available_nodes": 3, "fraction_evaluate": 0.0}
    with pytest.raises(Killed):
        AsyncAdaComp(**options).start(grid, record(PLAIN), num_rounds=4)  # type: ignore[arg-type]
    caplog.clear()
    again = FakeGrid(clock)
    for node in (1, 2, 3):
        again.add(node, app(plus(1)), seconds=node)
    strategy = AsyncAdaComp(**options)  # type: ignore[arg-type]
    strategy.start(again, record(PLAIN), num_rounds=4)
    (begin,) = {line for line in caplog.messages if line.startswith("Going on at version ")}
    assert begin.split()[4] not in ("0,", "3,", "6,", "9,"), "between two rounds, or the test shows nothing"
    (end,) = {line for line in caplog.messages if line.startswith("Training is over")}
    assert f"at version 12; updates: {strategy.outcomes['applied']} in " in end
    assert not any("nothing is left to do" in line for line in caplog.messages)
    AsyncAdaComp(**options).start(again, record(PLAIN), num_rounds=3)  # type: ignore[arg-type]
    logging.getLogger("flwr").removeHandler(caplog.handler)
    assert (
        "The checkpoint has 4 rounds, and num_rounds = 3 counts these: nothing is left to do" in caplog.text
    )

"""The bench itself: order, resume, failures, shares, one toy cell of each arm, the report."""

import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks.learning import cells, runner
from benchmarks.learning.__main__ import main
from benchmarks.learning.arms import GRIDS, PRODUCT, VARIANTS, grid, parsed
from benchmarks.learning.cells import FLEETS, SEEDS, Cell, Results, best
from benchmarks.learning.data import Data, of_classes
from benchmarks.learning.lines import best_rival, lines_of
from benchmarks.learning.measuring import Score
from benchmarks.learning.play import play, prepared_of
from benchmarks.learning.report import markdown, write
from benchmarks.learning.shares import SPLITS, deal
from benchmarks.learning.tasks import TASKS, Task
from edgeflock.devices.emulation.fleet import run_fleet
from edgeflock.server.monitoring.listeners import Applied, Callbacks
from tests.library.command_line import PROCESSES


def digits() -> Data:
    return of_classes("digits:")


TOY = {
    "toy": Task("toy", "digits, softmax", "edgeflock.client.zoo:DigitsLinear", digits, 10, 200, evaluations=4)
}


def toy(cell: Cell) -> dict[str, Any]:
    """What workers run here."""
    return play(cell, TOY)


def odd(cell: Cell) -> dict[str, Any]:
    """One arm fails, one dies, the others are quick."""
    if cell.seed == 1:
        raise ValueError(f"{cell.arm} is odd")
    if cell.seed == 2:
        os._exit(7)
    return figures(0.5)


def figures(value: float, groups: dict[str, float] | None = None) -> dict[str, Any]:
    curve = [{"gradients": 10, "accuracy": value, "seconds": 1.0, "ingress": 5, "egress": 5, "loss": 1.0}]
    known = groups or {"a": value, "b": value}
    numbers = {"seconds": 1.0, "ingress": 500, "egress": 500, "dense": 100_000, "cpu_s": 1.0}
    return {
        "accuracy": value,
        "mean_of_last": value,
        "worst": min(known.values()),
        "groups": known,
        "curve": curve,
    } | numbers


def record(value: float, **more: Any) -> dict[str, Any]:
    return {"figures": figures(value, **more), "machine": "m", "commit": "c"}


def collect(path: Path, planned: list[Cell], play: runner.Play = odd, **more: Any) -> list[str]:
    said: list[str] = []
    runner.run(path, lambda results: iter(planned), play, 1, {"commit": "c"}, tell=said.append, **more)
    return said


def test_seed_0_and_ten_devices_with_even_data_come_first() -> None:
    planned = list(cells.plan({}))
    assert len(set(planned)) == len(planned)
    assert planned[0] == Cell("digits", 10, "even", PRODUCT, 0)
    assert [cell.seed for cell in planned] == sorted(cell.seed for cell in planned)
    first = planned[: len(TASKS) * (1 + len(VARIANTS) + sum(map(len, GRIDS.values())))]
    assert {(cell.n, cell.data) for cell in first} == {(10, "even"), (1, "even")}
    tasks = [cell.task for cell in first]
    assert list(dict.fromkeys(tasks)) == list(TASKS)
    assert {(cell.n, cell.data) for cell in planned} == {*FLEETS, (1, "even")}


def test_elsewhere_a_rival_runs_with_its_best_setting_alone() -> None:
    tried = grid("FedProx")
    results = {
        Cell("mnist", 10, "even", arm, 0): record(0.5 + place / 100) for place, arm in enumerate(tried)
    }
    planned = [
        cell for cell in cells.plan(results) if cell.task == "mnist" and cell.arm.startswith("FedProx ")
    ]
    others = [cell for cell in planned if (cell.n, cell.data, cell.seed) != (10, "even", 0)]
    assert {cell.arm for cell in others} == {tried[-1]}
    assert len(others) == len(FLEETS) * len(SEEDS) - 1
    assert {cell.arm for cell in planned} == {*tried, tried[-1] + " average=8"}

    results[Cell("mnist", 10, "even", tried[-1] + " average=8", 0)] = record(0.9)
    planned = [cell for cell in cells.plan(results) if cell.task == "mnist" and cell.n == 50]
    assert {cell.arm for cell in planned if cell.arm.startswith("FedProx ")} == {tried[-1] + " average=8"}


def test_what_has_all_data_is_one_cell_for_all_fleets() -> None:
    results = {Cell("mnist", 1, "even", "Adam rate=0.001", 0): record(0.9)}
    planned = [cell for cell in cells.plan(results) if cell.task == "mnist" and cell.arm.startswith("Adam ")]
    assert {(cell.n, cell.data) for cell in planned} == {(1, "even")}
    assert [cell.seed for cell in planned if cell.arm == "Adam rate=0.001"] == list(SEEDS)


@pytest.mark.parametrize(
    "name", ["FedAvg", "Sgd rate", "Sgd pace=3", "Nobody rate=1", "product nothing", "Sgd average="]
)
def test_an_arm_that_is_none_says_why(name: str) -> None:
    with pytest.raises(ValueError, match="arm"):
        parsed(name)


@pytest.fixture
def forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers are forked from a process that has imported torch."""
    monkeypatch.setattr(runner, "multiprocessing", SimpleNamespace(get_context=lambda _: PROCESSES))


@pytest.mark.slow
def test_a_cell_that_stands_there_is_not_run_again(tmp_path: Path, forked: None) -> None:
    path = tmp_path / "results.jsonl"
    one, two = (Cell("toy", n, "even", PRODUCT, 0) for n in (4, 10))
    for cell in (one, two):
        cells.append(path, cell, record(0.9))
    path.write_text(path.read_text()[:-20])  # the end of a line was lost
    assert list(cells.read(path)) == [one]
    assert len(collect(path, [one, two])) == 1
    found = cells.read(path)
    assert [found[cell]["figures"]["accuracy"] for cell in (one, two)] == [0.9, 0.5]
    assert collect(path, [one, two]) == []


@pytest.mark.slow
def test_a_cell_that_fails_or_dies_is_recorded_and_the_next_one_runs(tmp_path: Path, forked: None) -> None:
    path = tmp_path / "results.jsonl"
    planned = [Cell("toy", 4, "even", PRODUCT, seed) for seed in (1, 2, 0)]
    collect(path, planned)
    found = cells.read(path)
    assert found[planned[0]]["failed"] == "ValueError: product is odd"
    assert found[planned[1]]["failed"] == "its process ended with exit code 7"
    assert found[planned[2]]["figures"]["accuracy"] == 0.5
    assert collect(path, planned) == []
    assert [runner.failed(cell, found[cell]) for cell in planned] == [True, True, False]


def test_the_product_is_run_anew_when_its_code_has_changed() -> None:
    product, rival = (Cell("toy", 4, "even", arm, 0) for arm in (PRODUCT, "FedAvg rate=0.1"))
    assert runner.outdated(product, {"product": "another"})
    assert not runner.outdated(product, {"product": runner.product()})
    assert not runner.outdated(rival, {"product": "another"})


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("devices", [4, 10, 50])
def test_shares_are_apart_and_large_enough(split: str, devices: int) -> None:
    groups = np.random.default_rng(3).integers(0, 10, 2_000)
    shares = deal(split, groups, devices, 10, 0)
    held = np.concatenate(shares.of)
    assert len(shares.of) == devices
    assert len(np.unique(held)) == held.size
    assert min(part.size for part in shares.of) >= 10
    if split != "label" or devices >= 10:
        assert held.size == groups.size
    if split == "label":
        assert all(len(np.unique(groups[part])) == 1 for part in shares.of)
    if split == "two-labels" and devices >= 10:  # a part of the sorted samples has one border at most
        assert all(len(np.unique(groups[part])) <= 4 for part in shares.of)
    assert bool(shares.slow) == (split == "slow-label")
    assert shares.crash(1_000) == (devices / 2_000 if split == "crashes" else 0)
    for device, part in enumerate(shares.of):
        if shares.slow:
            assert set(groups[part]) <= ({8, 9} if device in shares.slow else set(range(8)))
    again = deal(split, groups, devices, 10, 0)
    assert all(np.array_equal(a, b) for a, b in zip(shares.of, again.of, strict=True))


def test_the_slow_devices_of_the_product_hold_the_rare_labels() -> None:
    data, task = digits(), TOY["toy"]
    shares = deal("slow-label", data.train_groups, 10, 10, 1)
    prepared = prepared_of(task, parsed(PRODUCT), data, shares, 1, Score(None, 0))
    counts: dict[str, int] = {}

    def count(applied: Applied) -> None:
        counts[str(applied.device)] = counts.get(str(applied.device), 0) + 1

    run_fleet(prepared, 1, Callbacks(on_update=count))
    (slow,) = [name for name in counts if name.startswith("slow-")]
    own = prepared.shares[int(slow.partition("-")[2])]
    assert set(own.y) == {8, 9}
    assert counts[slow] < min(count for name, count in counts.items() if name != slow)


ARMS = [
    PRODUCT,
    "product exact-downlink",
    "Sgd rate=0.5",
    "Adam rate=0.01",
    "SyncSgd rate=0.5",
    "FedAvg rate=0.5 steps=5 cohort=2",
    "FedAvg rate=0.5 epochs=1 cohort=1",
    "FedAvgM rate=0.3 steps=5 cohort=2 server_rate=0.3",
    "FedAdam rate=0.5 steps=5 cohort=2",
    "FedBuff rate=0.5 steps=2 buffer=2",
    "Scaffold rate=0.3 steps=2 cohort=2",
    "DiLoCo rate=0.01 steps=5",
    "SparseLoCo rate=0.01 steps=5",
    "FedAsync rate=0.5 steps=2",
    "HeavyBall rate=0.02",
]


@pytest.mark.parametrize("arm", ARMS)
def test_a_toy_cell_from_end_to_end(arm: str) -> None:
    n = 1 if parsed(arm).central else 4
    found = toy(Cell("toy", n, "even", arm, 0))
    assert found["ended"] == "complete"
    assert 200 <= found["gradients"] < 200 + 120  # a round may go beyond
    assert found["accuracy"] > 0.4
    assert found["curve"][-1]["gradients"] == found["gradients"]
    assert found["curve"][-1]["accuracy"] == pytest.approx(found["accuracy"])
    assert len(found["groups"]) == 10
    assert found["worst"] == min(found["groups"].values())
    assert found["dense"] == 8 * found["size"] * found["gradients"]
    assert (found["ingress"] == 0) == parsed(arm).central
    assert json.loads(json.dumps(found)) == found


@pytest.mark.slow
def test_a_cell_is_a_function_of_its_seed() -> None:
    cell = Cell("toy", 4, "dirichlet", PRODUCT, 1)
    one, two = toy(cell), toy(cell)
    one["cpu_s"] = two["cpu_s"] = 0.0
    assert one == two
    assert toy(Cell("toy", 4, "dirichlet", PRODUCT, 2))["curve"] != one["curve"]


@pytest.mark.slow
def test_a_worker_plays_a_toy_cell(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    cell = Cell("toy", 4, "slow-label", "FedBuff rate=0.5 steps=2 buffer=2", 0)
    collect(path, [cell], toy)
    assert cells.read(path)[cell]["figures"]["ended"] == "complete"


def results() -> Results:
    found: dict[Cell, dict[str, Any]] = {}
    for seed in (0, 1):
        found[Cell("mnist", 10, "even", PRODUCT, seed)] = record(0.89 + seed / 100)
        found[Cell("mnist", 10, "even", "FedAvg rate=0.1", seed)] = record(0.88)
        found[Cell("mnist", 50, "even", PRODUCT, seed)] = record(0.80)
        found[Cell("mnist", 50, "even", "FedBuff rate=0.1", seed)] = record(0.85)
    found[Cell("mnist", 10, "even", "FedAvg rate=0.2", 0)] = record(0.90)  # the best, if of one seed
    found[Cell("mnist", 1, "even", "Adam rate=0.001", 0)] = record(0.97)
    found[Cell("mnist", 10, "slow-label", PRODUCT, 0)] = record(0.9, groups={"a": 0.9, "b": 0.4, "c": 0.2})
    found[Cell("mnist", 4, "even", PRODUCT, 0)] = {"failed": "ValueError: why", "machine": "m", "commit": "c"}
    return found


def rows(text: str, start: str) -> Iterator[str]:
    return (line for line in text.splitlines() if line.startswith(start))


def test_the_report_says_held_lost_and_not_run() -> None:
    text = markdown(results())
    product = list(rows(text, "| product | 2 |"))
    assert "level: -0.5 to FedAvg" in product[0]
    assert "| 89.5 | 89.5 |" in product[0]
    assert "1.0 kB (100x)" in product[0]
    assert "**lost**: -5.0 to FedBuff" in product[1]
    assert next(rows(text, "| FedAvg rate=0.2 (best of 2) | 1 |")).endswith("| best rival |")
    assert "| product | 1 | 90.0 | 90.0 | 20.0 | 30.0 |" in text
    assert "no rival was run" in text
    assert next(rows(text, "| Scaffold |")).count(" - ") == len(FLEETS)
    assert sum("Scaffold" in line for line in rows(text, "Not run:")) == 3
    assert "- mnist n=4 even seed 0: product: ValueError: why" in text
    assert next(rows(text, "| Adam |")).count("97.0 (1)") == len(FLEETS)


def test_a_setting_that_diverged_is_never_the_best() -> None:
    found = {
        Cell("mnist", 10, "even", "FedAvg rate=0.1", 0): record(math.nan),
        Cell("mnist", 10, "even", "FedAvg rate=0.2", 0): record(0.8),
        Cell("mnist", 10, "even", "FedAvg rate=0.05", 0): record(math.nan),
        Cell("mnist", 10, "even", "Scaffold rate=0.1", 0): record(math.nan),
    }
    assert best(found, "mnist", 10, "even", "FedAvg") == "FedAvg rate=0.2"
    lines = [*lines_of(found, "mnist", 10, "even")]
    assert lines[0].arm == "FedAvg rate=0.2"
    rival = best_rival(lines)
    assert rival is not None
    assert rival.family == "FedAvg"


def test_the_report_of_nothing() -> None:
    assert markdown({}).count("Not run.") == len(TASKS)


def test_report_leaves_the_figure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "learning.jsonl"
    cells.append(path, Cell("cifar", 10, "even", PRODUCT, 0), record(0.5))
    cells.append(path, Cell("cifar", 1, "even", "Adam rate=0.001", 0), record(0.6))
    write(path, tmp_path)
    assert (tmp_path / "learning-cifar.png").exists()
    assert "Edgeflock" in (tmp_path / "learning-cifar.svg").read_text()
    assert "learning-cifar.svg" in (tmp_path / "learning.md").read_text()
    main(
        ["--results", str(path), "list", "--task", "cifar", "--n", "10", "--data", "even", "--arm", "product"]
    )
    listed = capsys.readouterr().out.splitlines()
    assert len(listed) == len(SEEDS)
    assert listed[0].startswith("cifar n=10 even seed 0: product: 50.0")
    assert listed[1].endswith("not run")

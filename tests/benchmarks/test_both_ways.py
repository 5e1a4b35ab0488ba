"""The table of every method: its rows, what is kept, the choice of settings, the ratios, and who wins."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.both_ways import OURS, RECORDS, Scale, chosen, main, rows
from benchmarks.both_ways_report import (
    Figures,
    Measured,
    best_of,
    figures_of,
    grid_of,
    joined,
    markdown,
    summarise,
)
from edgeflock.results.outcomes import Outcome, Setting
from edgeflock.shared.errors import ConfigError
from tests.library.papers.adacomp.runs import row_of


def run_of(*reached: tuple[int, float, int, int], seed: int = 0, gradients: int = 1) -> Outcome:
    """An evaluation for each (updates, accuracy, up, down)."""
    names = ("updates", "accuracy", "ingress", "egress")
    ended = {"seed": seed, "ended": "complete", "gradients_per_update": gradients}
    return Outcome([dict(zip(names, row, strict=True)) for row in reached], ended)


def measured(method: str, setting: str, *runs: Outcome) -> Measured:
    return Measured(method, setting, Setting(method, runs))


SMALL = (
    run_of((100, 0.91, 10, 100), (200, 0.96, 20, 200), (300, 0.98, 30, 300), (400, 0.975, 40, 400)),
    run_of((100, 0.90, 10, 100), (200, 0.95, 20, 200), (300, 0.96, 30, 300), (400, 0.97, 40, 400), seed=1),
)
DENSE = measured("dense", "rate 0.1", run_of((50, 0.90, 5000, 5000), (400, 0.975, 40_000, 40_000)))
ROUNDS = measured("rounds", "rate 0.1", run_of((2, 0.96, 50, 40), (4, 0.965, 99, 80), gradients=30))


def summary() -> dict[str, Any]:
    return summarise(
        grid_of([DENSE, ROUNDS, measured(OURS, "rate 0.1", *SMALL)]), OURS, "npz:/a/mnist.npz", "it"
    )


def test_ours_is_the_mean_of_its_seeds() -> None:
    found = summary()
    assert found["both_ways_bytes_at_97"] == (330 + 440) / 2
    assert found["data"] == "mnist.npz"
    ours = found["methods"][OURS]
    assert ours["at"]["0.95"] == {"both_ways": 220, "up": 20, "down": 200, "gradients": 200, "updates": 200}
    assert ours["accuracy"]["best"] == {"mean": pytest.approx(0.975), "min": 0.97, "max": 0.98}
    assert ours["accuracy"]["last"]["mean"] == pytest.approx((0.975 + 0.97) / 2)
    means = [np.mean([0.91, 0.96, 0.98, 0.975]), np.mean([0.90, 0.95, 0.96, 0.97])]
    assert ours["accuracy"]["last_five"]["mean"] == pytest.approx(np.mean(means))


def test_ratios_and_who_wins_come_from_the_numbers() -> None:
    found = summary()
    assert found["ratios"]["dense"]["0.97"]["both_ways"] == pytest.approx(80_000 / 385)
    assert found["ratios"]["dense"]["0.90"]["gradients"] == pytest.approx(0.5)
    assert found["ratios"]["rounds"]["0.97"] is None, "it did not get there"
    assert found["rivals_win"] == {
        "dense": [
            "fewer gradients to 90% (50 against 100)",
            "fewer updates to 90% (50 against 100)",
            "higher accuracy, last (97.50% against 97.25%)",
        ],
        "rounds": [
            "fewer bytes both ways to 90% (90 B against 110 B)",
            "fewer bytes down to 90% (40 B against 100 B)",
            "fewer gradients to 90% (60 against 100)",
            "fewer updates to 90% (2 against 100)",
            "fewer bytes both ways to 95% (90 B against 220 B)",
            "fewer bytes down to 95% (40 B against 200 B)",
            "fewer gradients to 95% (60 against 200)",
            "fewer updates to 95% (2 against 200)",
            "higher accuracy, mean of the last 5 (96.25% against 95.06%)",
        ],
    }


def test_who_reaches_what_we_do_not_wins() -> None:
    short = measured(OURS, "rate 0.1", run_of((100, 0.96, 1, 1)))
    found = summarise(grid_of([DENSE, short]), OURS, "npz:mnist.npz", "it")
    assert found["both_ways_bytes_at_97"] is None
    assert "reaches 97% in every run, and ours does not" in found["rivals_win"]["dense"]


def test_the_page() -> None:
    page = markdown(summary())
    assert row_of(page, OURS) == [
        *("rate 0.1", "2", "35 B", "350 B", "385 B", "350", "350"),
        *("110 B", "100", "220 B", "200", "97.50%", "97.25%", "95.06%"),
    ]
    assert "- dense: fewer gradients to 90% (50 against 100); fewer updates" in page
    assert "| rounds | 0.82x | 0.41x | - | - | - | 0.60x | 0.30x | - |" in page
    assert "nothing to compare" in markdown(summarise(grid_of([DENSE]), OURS, "npz:mnist.npz", "it"))


def test_the_best_setting_is_one_of_those_with_the_most_seeds() -> None:
    def figures(*runs: Outcome) -> Figures:
        return figures_of(measured("a", "", *runs))

    cheap, dear = figures(run_of((1, 0.97, 9, 9))), figures(run_of((1, 0.99, 10, 9)))
    far, farther = figures(run_of((1, 0.96, 1, 1))), figures(run_of((1, 0.965, 5, 5)))
    assert best_of([dear, cheap, far]) is cheap
    assert best_of([far, farther]) is farther
    both = figures(run_of((1, 0.98, 20, 9)), run_of((1, 0.97, 20, 9), seed=1))
    assert best_of([cheap, both]) is both


def test_the_seeds_of_an_earlier_report_count_too() -> None:
    whole = grid_of([measured("a", "1", *SMALL), DENSE])
    first, second = (grid_of([measured("a", "1", run)]) for run in SMALL)
    assert joined(second, {**first, **grid_of([DENSE])}) == whole
    assert joined(first, first)["a"] == first["a"], "run anew"
    assert joined(first, whole)["a"] == whole["a"], "which has that seed, too"
    assert joined(whole, first)["a"] == whole["a"]
    assert joined(grid_of([ROUNDS]), whole) == {**whole, **grid_of([ROUNDS])}
    never = grid_of([measured("a", "1", run_of((1, 0.5, 9, 9), seed=2))])
    assert joined(never, whole)["a"]["1"]["at"]["0.90"] is None, "one run of three did not come so far"


def test_the_rows() -> None:
    every = list(rows(Scale("npz:mnist.npz", 40_000, 500)))
    assert len({row.job(0, Path()).directory for row in every}) == len(every)
    fleets = {row.name: row.file for row in every}
    assert fleets["dense ASGD, rate 0.4"].coordination.learning_rate == 0.4
    assert fleets["dense ASGD, averaged model, rate 0.1"].coordination.average == 8
    turns = fleets[f"{OURS}, rate 0.5"]
    assert (turns.coordination.cohort, turns.local.steps, turns.end.updates) == (20, 30, 2_666)
    ours, record = (fleets[f"{name}, rate 0.1"] for name in (RECORDS, "record"))
    assert ours.end.updates == record.end.updates == 40_000
    assert (ours.downlink.mode, record.downlink.mode) == ("lossy", "exact")
    assert (ours.local.steps, record.local.steps) == (2, 1)
    assert ours.compression == record.compression
    assert {file.fleet.devices for file in fleets.values()} == {200}
    assert [row.setting for row in chosen(every, ["FedAvg E=5", "record"])] == [
        *("rate 0.1", "rate 0.05", "rate 0.1", "rate 0.2")
    ]
    with pytest.raises(ConfigError, match=r"--only 'FedProx' is no row; there are: dense ASGD, rate 0\.05; "):
        chosen(every, ["FedProx"])


@pytest.mark.long
def test_it_runs_keeps_and_reports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (400, 28, 28)).astype(np.uint8)
    labels = random.integers(0, 10, 400).astype(np.uint8)
    np.savez(tmp_path / "tiny.npz", x_train=images, y_train=labels, x_test=images[:20], y_test=labels[:20])
    common = ["--data", f"npz:{tmp_path}/tiny.npz", "--seeds", "1", "--updates", "20", "--every", "10"]
    common += ["--output", str(tmp_path / "runs"), "--report", str(tmp_path), "--processes", "1"]
    only = ["--only", "record", "--only", "FedAvg E=1, 8 bits, rate 0.1"]
    main([*common, *only])
    found = json.loads((tmp_path / "both-ways.json").read_text())
    assert list(found["methods"]) == ["record", "FedAvg E=1, 8 bits"]
    assert found["methods"]["record"]["end"]["updates"] == 20
    assert found["methods"]["FedAvg E=1, 8 bits"]["end"]["gradients"] == 20
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").glob("*/seed-0.jsonl")}
    assert len(kept) == 2
    capsys.readouterr()
    main([*common, *only])
    main([*common, "--finished", "--with", str(tmp_path / "both-ways.json")])
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    assert json.loads((tmp_path / "both-ways.json").read_text())["methods"] == found["methods"]
    assert capsys.readouterr().out.count("| FedAvg E=1, 8 bits | rate 0.1 | 1 |") == 2

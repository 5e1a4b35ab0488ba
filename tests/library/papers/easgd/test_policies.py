"""Workers that learn by acting: what is asked for, and the whole reproduction with runs that are made up."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from edgeflock.papers import reproduce
from edgeflock.papers.easgd import reproduce_easgd_rl
from edgeflock.papers.easgd.policies import (
    ACROBOT,
    AGENTS,
    ASP,
    CARTPOLE,
    DEFAULT,
    EASGD,
    FULL,
    PPO,
    QBERT,
    QUICK,
    STAGGERED,
    Agent,
    learning,
    qbert,
)
from edgeflock.papers.reproduce import Reproduction
from edgeflock.results.sweep import Job
from edgeflock.shared.errors import ConfigError


@pytest.fixture
def swept(monkeypatch: pytest.MonkeyPatch) -> list[Job]:
    """What was asked of sweep; every run ends at a return of 480, or -90, after two seconds."""
    asked: list[Job] = []

    def sweep(jobs: Sequence[Job]) -> None:
        asked.extend(jobs)
        for job in jobs:
            best = -90.0 if "Acrobot" in job.file.model.data else 480.0 + job.seed
            row = {"updates": 9, "loss": 1.0, "accuracy": None, "ingress": 1000, "egress": 2000}
            rows = [
                {
                    **row,
                    "seconds": float(second),
                    "metrics": {"return": best - 20 * (2 - second), "length": 9},
                }
                for second in (1, 2)
            ]
            end = {"ended": "out of time", "seed": job.seed, "classes": {"worker": {"samples": 4800}}}
            job.directory.mkdir(parents=True, exist_ok=True)
            job.path.write_text("".join(json.dumps(line) + "\n" for line in (*rows, end)))

    monkeypatch.setattr(reproduce, "sweep", sweep)
    return asked


def run(out: Path, *, quick: bool = False, finished: bool = False) -> None:
    reproduce_easgd_rl(Reproduction("this", out, quick=quick, finished=finished))


@pytest.mark.slow
def test_the_whole_reproduction(tmp_path: Path, swept: list[Job]) -> None:
    run(tmp_path)
    panels = json.loads((tmp_path / "easgd-rl.json").read_text())["panels"]
    assert len({job.path for job in swept}) == len(AGENTS) * 2 * (2 * 3 + 1)
    cartpole = panels["CartPole, 3 x 5 workers"]
    assert cartpole["A3C"]["last"] == [480.0, 481.0, 482.0]
    assert cartpole["A3C"]["solved"] == [{"seconds": 2.0, "traffic": 3000}] * 3
    assert cartpole["A3C"]["steps_per_second"] == 2400
    assert cartpole["PPO"]["steps_per_second"] == 600, "PPO learns four times from each step"
    text = (tmp_path / "easgd-rl.md").read_text()
    assert "| 10 | EASGD | 3 | 481 (480) | 471 (470) | 481 | 3 of 3 | 2.0 s | 3.0 kB |" in text
    assert "| 5 | ASP | 3 | -90 (-90) | -100 (-100) | -90 | 3 of 3 | 2.0 s | 3.0 kB |" in text
    for name in ("easgd-rl-figure4", "easgd-rl-figure5"):
        assert (tmp_path / f"{name}.png").stat().st_size > 10_000
        assert "mean return of episodes" in (tmp_path / "easgd-rl-figure4.svg").read_text()


@pytest.mark.slow
def test_quick_is_one_seed_of_five_workers(tmp_path: Path, swept: list[Job]) -> None:
    run(tmp_path, quick=True)
    assert {(job.seed, job.file.fleet.devices) for job in swept} == {(0, 15)}


def test_nothing_finished_is_nothing_to_report(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no run has ended yet"):
        run(tmp_path, finished=True)


def test_every_fleet_is_as_the_paper_has_it() -> None:
    for one in [*learning(FULL), *qbert(FULL)]:
        file = one.file
        (worker,) = file.devices.values()
        assert file.fleet.devices in (15, 30)
        assert worker.uplink_mbps == pytest.approx(3000 / file.fleet.devices)
        if one.method is not DEFAULT.method:
            assert (file.downlink.mode, file.compression.values) == ("exact", "f32")
        if one.method in (EASGD.method, STAGGERED.method):
            assert file.coordination.moving_rate == pytest.approx(0.9 / file.fleet.devices)
            assert (file.coordination.chunk > 0) == (one.method is STAGGERED.method)
    asp = next(one.file for one in learning(QUICK) if one.method is ASP.method)
    assert (asp.coordination.gate, asp.compression.selection) == ("asp", "significance")


@pytest.mark.parametrize(
    ("agent", "updates"),
    [(EASGD, 857), (STAGGERED, 14 * 857), (PPO, 13846)],
    ids=["EASGD", "staggered", "PPO"],
)
def test_evaluations_follow_how_many_updates_a_method_makes(agent: Agent, updates: int) -> None:
    assert agent.updates(CARTPOLE, 15, 12.0) == pytest.approx(updates, abs=14)


def test_a_game_of_pictures_is_opened_once_a_worker() -> None:
    assert {one.file.fleet.data for one in qbert(QUICK)} == {f"gym:{QBERT.environment}?envs=1"}
    assert {one.file.model.module for one in learning(QUICK)} == {ACROBOT.policy, CARTPOLE.policy}

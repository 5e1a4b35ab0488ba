"""Real runs of the parts that are cheap."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edgeflock.papers.reproduce import Experiment, Measured, by_part
from edgeflock.papers.scadles import experiments
from edgeflock.papers.scadles.results import learnt, summarise
from edgeflock.papers.scadles.settings import PAIRS, QUICK
from edgeflock.results.outcomes import Setting
from edgeflock.results.sweep import outcome
from edgeflock.results.sweep import run as run_job
from tests.library.papers.scadles.runs import ASKED

TINY = replace(QUICK, buffered=0.005, injected=15)


def done(one: Experiment, out: Path) -> Measured:
    (job,) = one.jobs(out, (0,))
    job.directory.mkdir(parents=True)
    run_job(job)
    found = outcome(job)
    assert found is not None
    return Measured(one, Setting(one.name, [found]))


@pytest.mark.slow
def test_buffers_grow_by_equation_2_or_not_at_all(tmp_path: Path) -> None:
    """S1': each device has (t S - S) T + S samples after T iterations, or at most a second of them."""
    parts = [one for one in experiments.buffers(TINY) if one.name.startswith("S1' ResNet152")]
    kept, short = (done(one, tmp_path) for one in parts)
    streams = kept.setting.outcomes[0].end["streams"].values()
    assert len(streams) == 16
    rounds = kept.experiment.file.end.updates / 16
    assert rounds == 15
    for stream in streams:
        assert stream["depth"] == pytest.approx((1.2 - 1) * stream["rate"] * rounds + stream["rate"], rel=0.2)
        assert stream["drops"] == 0
    for stream in short.setting.outcomes[0].end["streams"].values():
        # A tenth beyond a second, and what came before training first asked.
        assert stream["deepest"] <= 1.3 * stream["rate"] + 1
        assert stream["drops"] > 0
    summary = summarise(by_part([kept, short]), ASKED)["buffers"]["S1' ResNet152"]
    sums = sum(stream["depth"] for stream in streams)
    assert summary["persisted"]["sum"] == sums
    truncated = summary["truncated"]
    assert truncated["sum"] > 8 * truncated["largest"]
    assert summary["reduction"]["sum_over_sum"] == pytest.approx(sums / truncated["sum"])
    assert summary["reduction"]["sum_over_largest"] == pytest.approx(sums / truncated["largest"])


def test_samples_shared_a_round_are_alpha_beta_of_what_streams_in(tmp_path: Path) -> None:
    (one,) = (one for one in experiments.injection_traffic(TINY) if one.name == "S2' (0.5, 0.5)")
    found = done(one, tmp_path)
    kilobytes = summarise(by_part([found]), ASKED)["injected"]["S2' (0.5, 0.5)"]
    assert kilobytes == pytest.approx(0.5 * 0.5 * 10 * 256 * 3, rel=0.3)


def test_a_run_measures_top_5_as_well(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    x, y = random.integers(0, 255, (200, 28, 28), np.uint8), random.integers(0, 10, 200)
    np.savez(tmp_path / "mnist.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    scale = replace(TINY, rounds=dict.fromkeys(TINY.rounds, 2))
    listed = experiments.speed_up(str(tmp_path), scale, {})
    (one,) = (one for one in listed if one.part.endswith(PAIRS.name) and one.name == "S1 ScaDLES")
    found = learnt(done(one, tmp_path).setting)
    assert found["top_5"] is not None
    assert 0 <= (found["last_accuracy"] or 0) <= found["top_5"] < 0.5

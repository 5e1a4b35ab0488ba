"""Many runs: what is done stays done, other settings do not mix with it, and failures come out."""

import json
import multiprocessing
import re
from dataclasses import asdict
from pathlib import Path

import pytest

from edgeflock.results.sweep import Job, outcome, run, sweep
from edgeflock.shared.errors import ConfigError
from tests.devices.emulation.fleets import ONE, fleet_of
from tests.devices.emulation.fleets import run as run_watched


def job(directory: Path, *settings: str, seed: int = 0) -> Job:
    return Job("one", fleet_of(ONE, *settings), seed, directory)


def test_a_run_s_file_holds_its_rows_and_its_end(tmp_path: Path) -> None:
    one = job(tmp_path)
    assert outcome(one) is None
    run(one)
    expected = run_watched(one.file)
    assert one.path == tmp_path / "seed-0.jsonl"
    assert len(one.path.read_text().splitlines()) == 21
    done = outcome(one)
    assert done is not None
    columns = ("updates", "seconds", "loss", "accuracy", "ingress", "egress")
    assert done.rows == [dict(zip(columns, row[:6], strict=True)) for row in expected.rows]
    times = {"gradient_s", "evaluation_s", "total_s"}
    assert {key: value for key, value in done.end.items() if key not in times} == {
        key: value for key, value in asdict(expected.result).items() if key not in times
    }
    assert all(done.end[key] > 0 for key in times)
    assert not (tmp_path / "seed-0").exists(), "its journal is no longer needed"


@pytest.mark.parametrize("left", ["nothing", "a row", "half a row", "half an end", "no line at all"])
def test_a_file_without_a_whole_end_is_not_finished(left: str, tmp_path: Path) -> None:
    one = job(tmp_path)
    run(one)
    assert outcome(one) is not None
    lines = one.path.read_text().splitlines(keepends=True)
    parts = {
        "nothing": "",
        "a row": "".join(lines[:3]),
        "half a row": "".join(lines[:3]) + lines[3][:30],
        "half an end": "".join(lines[:-1]) + lines[-1][:-2],
        "no line at all": lines[0][:1],
    }
    one.path.write_text(parts[left])
    assert outcome(one) is None
    run(one)
    assert outcome(one) is not None


def test_finished_runs_are_not_run_again(tmp_path: Path) -> None:
    jobs = [job(tmp_path, seed=seed) for seed in (3, 4)]
    for one in jobs:
        run(one)
    before = [one.path.read_bytes() for one in jobs]
    results = sweep(jobs)
    assert [result.end["seed"] for result in results] == [3, 4]
    assert [one.path.read_bytes() for one in jobs] == before
    assert sweep(jobs) == results
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize(
    "setting", ["local.batch=7", "fleet.evaluate_every=3", "devices.pi.rate=5", "devices.jet.step_ms=5"]
)
def test_other_settings_do_not_mix_with_what_is_there(setting: str, tmp_path: Path) -> None:
    several = "fleet.devices=2"
    first, second = job(tmp_path, several), job(tmp_path, several, setting)
    run(first)
    sweep([first])
    before = first.path.read_bytes()
    with pytest.raises(
        ConfigError, match=r"holds runs with other settings \((.*)\); remove it or choose another"
    ) as caught:
        sweep([second])
    assert setting.partition("=")[0].startswith(re.search(r"\((.*)\)", str(caught.value))[1])  # type: ignore[index]
    assert first.path.read_bytes() == before
    assert len(sweep([first])) == 1


def test_a_folder_of_another_version_is_continued(tmp_path: Path) -> None:
    """That version had a setting that this one lacks, and lacks one that has its default here."""
    one = job(tmp_path, "fleet.devices=2", "optimizer.kind=adam")
    run(one)
    sweep([one])
    path = tmp_path / "settings.json"
    kept = json.loads(path.read_text())
    kept["optimizer"]["patience"] = 5
    del kept["local"]["momentum"], kept["injection"]
    path.write_text(json.dumps(kept))
    assert len(sweep([one])) == 1
    del kept["optimizer"]["kind"]
    path.write_text(json.dumps(kept))
    with pytest.raises(ConfigError, match=r"other settings \(optimizer\.kind\)"):
        sweep([one])
    path.write_text("{")
    with pytest.raises(ConfigError, match=r"settings\.json is damaged"):
        sweep([one])


@pytest.mark.slow
def test_a_refused_run_does_not_block_its_folder(tmp_path: Path) -> None:
    wrong, right = (
        job(tmp_path, "fleet.devices=2", "model.personal=nowhere"),
        job(tmp_path, "fleet.devices=2"),
    )
    with pytest.raises(ConfigError, match=r"nowhere"):
        sweep([wrong])
    assert len(sweep([right])) == 1


@pytest.mark.slow
def test_a_run_that_fails_says_why(tmp_path: Path) -> None:
    """In another process; what waits behind it is not begun."""
    broken = job(tmp_path / "broken", "model.module=tests.devices.emulation.fleets:Missing")
    waiting = job(tmp_path / "waiting")
    with pytest.raises(ConfigError, match=r"model\.module 'tests\.devices\.emulation\.fleets:Missing': Attr"):
        sweep([broken, waiting], workers=1)
    assert multiprocessing.active_children() == []
    assert outcome(broken) is None
    assert outcome(waiting) is None

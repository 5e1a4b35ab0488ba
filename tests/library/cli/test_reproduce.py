"""`edgeflock reproduce`: what it refuses, and where it looks for data."""

from pathlib import Path

import pytest

from tests.library.command_line import edgeflock


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["hogwild"], ["'hogwild'", "must be adacomp, easgd, easgd-rl, scadles, scheduling or all"]),
        (["adacomp"], ["mnist.npz", "there is no such file"]),
        (["adacomp", "--finished"], ["mnist.npz", "there is no such file"]),
        (["adacomp", "--quick", "--data", "npz:nowhere.npz"], ["npz:nowhere.npz", "there is no such file"]),
        (["adacomp", "--data", "mnist"], ["data 'mnist'", "npz:"]),
        (["adacomp", "--updates", "7"], ["--updates 7"]),
        (["scadles", "--updates", "7"], ["--updates 7", "--quick"]),
        (["scheduling", "--updates", "7"], ["--updates", "--quick"]),
        (["scheduling", "--data", "mnist"], ["--data mnist", "does not apply to scheduling"]),
        (["easgd-rl", "--updates", "7"], ["--updates", "--quick"]),
        (["adacomp", "--check"], ["--check", "reproduce all --check"]),
        (["all", "--check"], ["docs/results/check.json", "checkout"]),
        (["all", "--check", "--seeds", "2"], ["--seeds 2", "use --quick"]),
        (["scadles"], ["cifar10_jpgblob.npz", "there is no such file"]),
        (["adacomp", "--seeds", "-1"], ["--seeds"]),
        ([], ["PAPER"]),
    ],
    ids=[
        "unknown paper",
        "no data",
        "no data to report on",
        "no such data",
        "no URI",
        "too short",
        "no updates there",
        "no updates in scheduling",
        "no data in scheduling",
        "no updates of policies",
        "check of one paper",
        "no committed figures",
        "seeds of a check",
        "no folder of data",
        "seeds",
        "no paper",
    ],
)
def test_what_cannot_work_is_refused(
    arguments: list[str], named: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("EDGEFLOCK_DATA", raising=False)
    done = edgeflock("reproduce", *arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    for part in named:
        assert part in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_data_are_where_the_environment_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEFLOCK_DATA", str(tmp_path / "elsewhere"))
    done = edgeflock("reproduce", "adacomp", cwd=tmp_path)
    assert done.returncode == 2
    assert f"npz:{tmp_path}/elsewhere/mnist.npz" in done.stderr

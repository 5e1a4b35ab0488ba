"""`edgeflock capacity`: words and JSON of the same figures."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.library.command_line import edgeflock


def reported(cwd: Path, *asked: str) -> dict[str, Any]:
    parts: dict[str, Any] = json.loads(edgeflock("capacity", *asked, "--json", cwd=cwd).stdout)
    return parts


def test_a_million_devices_are_more_than_one_sequencer_takes(tmp_path: Path) -> None:
    asked = ("--devices", "1000000", "--period", "60", "--days", "0")
    figures = reported(tmp_path, *asked)
    assert figures["updates_per_second"] == 1_000_000 / 60
    leads, gateway = figures["parts"]
    assert (leads["part"], gateway["part"]) == ("leader", "gateway")
    assert gateway["count"] > 10
    assert figures["ends_first"] == ["leader", max(leads["shares"], key=leads["shares"].get)]
    assert not figures["fits"]
    assert figures["ends_at_devices"] < 100_000
    words = edgeflock("capacity", *asked, cwd=tmp_path).stdout
    assert f"{gateway['count']} gateways" in words
    assert f"these parts suffice for {figures['ends_at_devices']:,} devices" in words
    assert f"exceeded    leader: window {leads['shares']['window']:.0%}" in words
    assert "separate runs with these parts" in words


def test_parts_that_are_asked_for(tmp_path: Path) -> None:
    asked = ("--devices", "100", "--period", "10", "--gateways", "3", "--shards", "2")
    figures = reported(tmp_path, *asked, "--journal", "synchronous")
    counts = {part["part"]: part["count"] for part in figures["parts"]}
    assert counts == {"leader": 1, "gateway": 3, "shard": 2, "database": 2}
    assert figures["processes"] == 8


@pytest.mark.parametrize(
    ("asked", "code", "named"),
    [
        (["--devices", "0", "--period", "1"], 2, "devices"),
        (["--devices", "1"], 2, "period"),
        (
            ["--devices", "1000", "--period", "1", "--cohort", "2000"],
            2,
            "--cohort 2000 is more than --devices 1000",
        ),
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, asked: list[str], code: int, named: str) -> None:
    done = edgeflock("capacity", *asked, cwd=tmp_path)
    assert done.returncode == code
    assert named in done.stderr

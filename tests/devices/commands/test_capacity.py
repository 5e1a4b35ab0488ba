"""`edgeflock capacity`: words and JSON of the same figures."""

import json
from pathlib import Path

from tests.devices.command_line import edgeflock


def test_a_million_devices_are_more_than_one_server_takes(tmp_path: Path) -> None:
    asked = (
        "capacity",
        "--devices",
        "1000000",
        "--period",
        "60",
        "--egress-price",
        "0.05",
        "--core-price",
        "20",
    )
    told = json.loads(edgeflock(*asked, "--json", cwd=tmp_path).stdout)
    assert told["updates_per_second"] == 1_000_000 / 60
    assert told["ends_first"] == max(told["shares"], key=told["shares"].get)
    assert told["ends_at_devices"] < 1_000_000
    price = 20 * told["cores"] + 0.05 * told["egress_bytes_a_month"] / 1e9
    assert abs(told["price_a_month"] - price) < 0.01
    words = edgeflock(*asked, cwd=tmp_path).stdout
    assert f"one server ends at {told['ends_at_devices']:,} such devices" in words
    assert f"{price:,.2f}" in words
    assert "separate runs" in words


def test_what_is_no_fleet_is_refused(tmp_path: Path) -> None:
    for asked, named in ((["--devices", "0", "--period", "1"], "devices"), (["--devices", "1"], "period")):
        done = edgeflock("capacity", *asked, cwd=tmp_path)
        assert done.returncode == 2
        assert named in done.stderr

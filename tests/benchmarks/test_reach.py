"""Connected devices for a moment, and the curve of how far they reach."""

from pathlib import Path

import pytest

from benchmarks import reach_curve
from benchmarks.reach import Reached, reach


def point(gateways: int, offered: float, receipts: float) -> Reached:
    names = ["leader", *(f"gateway {number}" for number in range(1, gateways + 1))]
    return Reached(
        *(round(3 * offered), gateways, offered, 1.0, dict.fromkeys(names, 1.5), 14.0, receipts, 0, 2),
        *(0.0123, 0.1, {name: 10.0 + place for place, name in enumerate(names)}, {"up": 44.0}, 600.0),
        *(dict.fromkeys(names, 250), {name: [255, 270 + place] for place, name in enumerate(names)}),
    )


def test_a_curve_ends_where_devices_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []

    def bears(devices: int, gateways: int, period: float, *_: object, **__: object) -> Reached:
        asked.append((devices, gateways))
        return point(gateways, devices / period, min(devices / period, 150.0 * (gateways + 1)))

    monkeypatch.setattr(reach_curve, "reach", bears)
    points = list(reach_curve.measured([0, 1], [100, 1000, 200], 2.0, 1.0, tls=True, pull=True))
    assert asked == [(200, 0), (400, 0), (200, 1), (400, 1), (2000, 1)]
    assert [one.receipts_per_second for one in points] == [100, 150, 100, 200, 300]


def test_a_curve_as_a_table_and_as_a_figure(tmp_path: Path) -> None:
    points = [point(0, 30, 30), point(0, 100, 60), point(2, 30, 30)]
    rows = reach_curve.table(points).split("\n")[2:]
    assert rows[1] == "| 0 | 300 | 100 | 60 | 10.0% |  | 12.3 ms | 2 | 270 |"
    assert rows[2] == "| 2 | 90 | 30 | 30 | 10.0% | 12.0% | 12.3 ms | 2 | 270, 272 |"
    reach_curve.draw(points, tmp_path / "gateways", "a caption")
    drawn = (tmp_path / "gateways.svg").read_text()
    assert all(text in drawn for text in ("direct", "2 gateways", "a caption"))
    assert (tmp_path / "gateways.png").stat().st_size > 10_000


@pytest.mark.long
@pytest.mark.parametrize("gateways", [0, 1])
def test_devices_reach_a_server(gateways: int) -> None:
    found = reach(8, gateways, 0.2, 4, tls=True, pull=True)
    assert (found.devices, found.lost_connections, found.refused) == (8, 0, 0)
    assert found.receipts_per_second > 0
    assert found.cpu_percent.keys() == found.rss_mb.keys()
    assert len(found.cpu_percent) == 1 + gateways
    assert found.bytes_an_update["up"] > 30
    assert (found.bytes_an_update["to gateways"] > 0) == bool(gateways)

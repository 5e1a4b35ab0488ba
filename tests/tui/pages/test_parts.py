"""Gateways and shards below the numbers, as lines."""

import pytest

from edgeflock.tui.pages.overview import overview
from edgeflock.tui.pages.parts import parts
from edgeflock.tui.pages.printed import summary
from edgeflock.tui.sources.state import MonitorState, reduce
from edgeflock.tui.text.lines import line_width, plain_text
from tests.tui.runs import frames, spread


def of(gateways: int, shards: int = 0, restored: int = 0) -> MonitorState:
    reported = (spread(frame, gateways, shards, restored) for frame in frames(14, 60))
    made = reduce(None, next(reported))
    for frame in reported:
        made = reduce(made, frame)
    return made


def test_a_run_of_one_process_shows_none() -> None:
    assert parts(of(0), 80, 9) == []
    assert "Gateways" not in plain_text(overview(of(0), "time", 80, 40))


@pytest.mark.parametrize("width", [80, 120])
def test_each_gateway_has_a_line(width: int) -> None:
    lines = parts(of(2, 4, 1), width, 9)
    assert all(line_width(line) == width for line in lines)
    title, head, first, second, shards = plain_text(lines).split("\n")
    assert title.startswith("Gateways ─")
    assert title.endswith("2 with 9,999 devices, 996 updates/s, 4 MB waiting")
    assert head.split() == ["devices", "updates/s", "received/s", "sent/s", "waiting", "up"]
    assert first.split() == ["gateway-0", "5,000", "498", "91.3", "kB", "·", "0", "B", "1h"]
    assert second.split()[0] == "gateway-1"
    assert shards.strip() == ("Shards 4 on 2 nodes, 3.17 GB, the largest 793 MB, made again 1 time")
    ink = next(ink for text, ink in lines[3] if "4 MB" in text)
    assert ink == "warn"


def test_many_gateways_leave_room_for_the_rest() -> None:
    lines = parts(of(40), 80, 6)
    assert len(lines) == 6
    assert plain_text(lines).rstrip().endswith("and 37 more with fewer devices")
    assert len(parts(of(4), 80, 6)) == 6


def test_a_low_screen_has_a_line_each() -> None:
    shown = plain_text(overview(of(2, 4), "time", 80, 24))
    assert "Gateways 2 with 9,999 devices" in shown
    assert "Shards 4 on 2 nodes" in shown
    assert "gateway-0" not in shown
    assert "gateway-0" in plain_text(overview(of(2, 4), "time", 80, 40))


def test_shards_that_are_made_again() -> None:
    (line,) = parts(of(0, 0, 2), 80, 3)
    assert plain_text([line]).strip() == "Shards are being made again from the journal, made again 2 times"


def test_without_a_screen() -> None:
    summed = summary(of(12, 2))
    assert [row["name"] for row in summed["gateways"]] == [f"gateway-{number}" for number in range(12)]
    assert summed["gateways"][1]["waiting"] == 4_000_000
    assert summed["shards"] == [{"node": "one", "nbytes": 793_000_000}] * 2
    assert not {"gateways", "shards"} & summed["overview"].keys()

"""What the screen shows, as JSON."""

from edgeflock.shared.protocol.frames import Delta
from edgeflock.tui.pages.printed import summary
from edgeflock.tui.sources.state import reduce
from tests.tui.runs import frames


def test_the_summary_says_all_that_a_screen_shows() -> None:
    first, second, *_ = frames(3, 2)
    assert isinstance(second, Delta)
    told = summary(reduce(reduce(None, first), second))
    assert told["overview"]["version"] == second.overview.version
    moved = [sum(row[key] for row in told["devices"]) for key in ("ingress", "egress")]
    assert [told["device_ingress"], told["device_egress"]] == moved
    dense = second.overview.dense_bytes
    assert told["reduction_both_ways"] == 2 * dense / sum(moved)
    assert told["devices"][0]["class"] == second.devices[0].class_
    assert told["config"]["coordination"]["learning_rate"] == 0.05
    assert [event["kind"] for event in told["events"]] == ["joined"] * 3

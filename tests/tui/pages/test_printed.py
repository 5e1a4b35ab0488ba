"""What the screen shows, as JSON."""

from edgeflock.shared.protocol.frames import Delta
from edgeflock.tui.pages.printed import summary
from edgeflock.tui.sources.state import reduce
from tests.tui.runs import frames


def test_the_summary_says_all_that_a_screen_shows() -> None:
    first, second, *_ = frames(3, 2)
    assert isinstance(second, Delta)
    reported = summary(reduce(reduce(None, first), second))
    assert reported["overview"]["version"] == second.overview.version
    moved = [sum(row[key] for row in reported["devices"]) for key in ("ingress", "egress")]
    assert [reported["device_ingress"], reported["device_egress"]] == moved
    dense = second.overview.dense_bytes
    assert reported["reduction_both_ways"] == 2 * dense / sum(moved)
    assert reported["devices"][0]["class"] == second.devices[0].class_
    assert reported["config"]["coordination"]["learning_rate"] == 0.05
    assert [event["kind"] for event in reported["events"]] == ["joined"] * 3

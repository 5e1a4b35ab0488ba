"""What of a line is painted again."""

from edgeflock.tui.screen.line_widget import changed_spans
from edgeflock.tui.text.lines import Line


def test_only_cells_that_differ_are_repainted() -> None:
    before: Line = [("loss ", "dim"), ("0.123", "text"), ("            ok", "good")]
    after: Line = [("loss ", "dim"), ("0.1", "text"), ("24            ", "text"), ("up", "good")]
    assert changed_spans(before, before) == []
    assert changed_spans(before, after) == [(9, 10), (22, 24)]
    assert changed_spans([("0.12 0.30", "text")], [("0.13 0.31", "text")]) == [
        (3, 9)
    ]  # near enough for one go
    assert changed_spans([("a日b", "text")], [("a本b", "text")]) == [(1, 3)]
    assert changed_spans([("a日b", "text")], [("a日b", "dim")]) == [(0, 4)]

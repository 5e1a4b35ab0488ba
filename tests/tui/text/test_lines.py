"""Lines of exactly their width."""

from hypothesis import given
from hypothesis import strategies as st

from edgeflock.tui.text.lines import (
    Line,
    columns,
    crop,
    fit,
    heading,
    join_blocks,
    justify,
    line_width,
    notice,
    plain_text,
)

texts = st.text(st.characters(codec="utf-8", categories=["L", "N", "P", "S", "Lo"]), max_size=20)


@given(texts, st.integers(1, 30))
def test_what_is_fitted_fits(text: str, width: int) -> None:
    assert line_width([(fit(text, width), "text")]) == width
    assert line_width([(fit(text, width, "right"), "text")]) == width


@given(st.lists(texts, max_size=5), st.integers(0, 40))
def test_what_is_cropped_has_its_width(spans: list[str], width: int) -> None:
    assert line_width(crop([(text, "text") for text in spans], width)) == width


def test_blocks_side_by_side() -> None:
    left: list[Line] = [[("ab", "text")], []]
    right: list[Line] = [[("c", "dim")], [("d", "dim")]]
    assert plain_text(join_blocks([(left, 3), (right, 2)])) == "ab   c\n     d"
    assert columns(80, 3) == [26, 25, 25]
    assert sum(columns(80, 3)) + 4 == 80
    assert plain_text([justify([("name", "text")], [("12", "text")], 9)]) == "name   12"
    assert plain_text([justify([("a long name", "text")], [("12", "text")], 9)]) == "a long 12"
    assert plain_text([heading("Loss", [("0.1", "first")], 14)]) == "Loss ───── 0.1"


def test_a_notice_that_is_too_long_goes_over_several_lines() -> None:
    sentence: Line = [("what is wrong and what to do about it", "bad")]
    shown = notice([sentence, [], [("trying again", "dim")]], 22, 6)
    assert plain_text(shown).split("\n") == [
        "",
        " what is wrong and",
        " what to do about it",
        "",
        " trying again",
        "",
    ]
    assert shown[2][1] == ("what to do about it", "bad")
    assert {line_width(line) for line in shown} == {22}

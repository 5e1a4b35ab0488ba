"""Numbers, lines and charts."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeflock.tui import numbers
from edgeflock.tui.chart import Axis, Series, around, bars, ceiling, chart, duration_ceiling
from edgeflock.tui.lines import Line, apart, beside, columns, crop, fit, heading, notice, text_of, width_of
from edgeflock.tui.painted import changed


@pytest.mark.parametrize(
    ("form", "value", "shown"),
    [
        (numbers.count, 7214, "7,214"),
        (numbers.count, 1_250_000, "1.25M"),
        (numbers.count, None, "·"),
        (numbers.size, 900, "900 B"),
        (numbers.size, 999.7, "1 kB"),
        (numbers.size, 12_340, "12.3 kB"),
        (numbers.size, 21_200_000_000, "21.2 GB"),
        (numbers.rate, 0.416, "0.42"),
        (numbers.rate, 214.3, "214"),
        (numbers.decimal, 0.0839, "0.084"),
        (numbers.decimal, 12.34, "12.34"),
        (numbers.decimal, 4_100_000.0, "4.1e+06"),
        (numbers.reduction, 15723.4, "15,723x"),
        (numbers.age, 89, "89s"),
        (numbers.age, 91, "2m"),
        (numbers.age, 86_400 * 12, "12d"),
        (numbers.age, -3, "0s"),
        (numbers.duration, 41, "0:41"),
        (numbers.duration, 11_220, "3:07:00"),
        (numbers.span, 300, "5m"),
        (numbers.short, 12_000, "12k"),
        (numbers.plain, "pi\x1b[31m\u202e", "pi?[31m?"),
    ],
)
def test_numbers_as_people_read_them(form: object, value: object, shown: str) -> None:
    assert callable(form)
    assert form(value) == shown


texts = st.text(st.characters(codec="utf-8", categories=["L", "N", "P", "S", "Lo"]), max_size=20)


@given(texts, st.integers(1, 30))
def test_what_is_fitted_fits(text: str, width: int) -> None:
    assert width_of([(fit(text, width), "text")]) == width
    assert width_of([(fit(text, width, "right"), "text")]) == width


@given(st.lists(texts, max_size=5), st.integers(0, 40))
def test_what_is_cropped_has_its_width(spans: list[str], width: int) -> None:
    assert width_of(crop([(text, "text") for text in spans], width)) == width


def test_blocks_side_by_side() -> None:
    left: list[Line] = [[("ab", "text")], []]
    right: list[Line] = [[("c", "dim")], [("d", "dim")]]
    assert text_of(beside([(left, 3), (right, 2)])) == "ab   c\n     d"
    assert columns(80, 3) == [26, 25, 25]
    assert sum(columns(80, 3)) + 4 == 80
    assert text_of([apart([("name", "text")], [("12", "text")], 9)]) == "name   12"
    assert text_of([apart([("a long name", "text")], [("12", "text")], 9)]) == "a long 12"
    assert text_of([heading("Loss", [("0.1", "first")], 14)]) == "Loss ───── 0.1"


@given(st.floats(1e-9, 1e15))
def test_ceilings_are_round_and_near(value: float) -> None:
    assert value * (1 - 1e-6) <= ceiling(value) <= 1.34 * value
    assert value <= duration_ceiling(value) * (1 + 1e-6)
    assert f"{ceiling(value):.1e}" == f"{float(f'{ceiling(value):.1e}'):.1e}"


def test_an_axis_holds_its_values() -> None:
    axis = around([0.93, 0.97], str, zero=False, top=1.0)
    assert axis.low <= 0.93
    assert 0.97 <= axis.high <= 1.0
    assert around([3.0, 8.5], str, zero=True) == Axis(0.0, 10.0, str)
    assert around([5.0, 5.0], str, zero=False).low < around([5.0, 5.0], str, zero=False).high


def test_a_straight_line_is_drawn_straight() -> None:
    """From the lower left dot to the upper right one: 20 x 20 dots in 10 x 5 cells."""
    lines = chart([Series([0, 19], [0, 19], "first")], Axis(0, 19, str), Axis(0, 19, str), 14, 6)
    dots = set()
    for y, line in enumerate(lines[:-1]):
        text = "".join(span for span, _ in line)[4:]
        for x, char in enumerate(text):
            bits = ord(char) - 0x2800 if char != " " else 0
            for bit, (dx, dy) in enumerate([(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (0, 3), (1, 3)]):
                if bits >> bit & 1:
                    dots.add((2 * x + dx, 19 - (4 * y + dy)))
    assert {(n, n) for n in range(20)} <= dots
    assert all(abs(x - y) <= 1 for x, y in dots)
    assert text_of(lines[-1:]).split() == ["0", "19"]


def test_charts_have_exactly_their_size_whatever_there_is_to_draw() -> None:
    for x, y in (([], []), ([3.0], [1.0]), ([0.0, 0.0, 0.0], [1.0, 5.0, 2.0]), ([0.0, 1e9], [-1.0, math.pi])):
        for width, height in ((12, 2), (40, 9), (79, 20)):
            lines = chart(
                [Series(x, y, "first")], Axis(0, 10, str), around(y, str, zero=False), width, height
            )
            assert [width_of(crop(line, width)) for line in lines] == [width] * height
            assert all(width_of(line) <= width for line in lines)


def test_bars_are_as_tall_as_their_values() -> None:
    lines = bars(["0", "1", "2"], [8, 4, 0], "third", 9, 5)
    assert text_of(lines) == "██\n██\n██ ██\n██ ██\n0  1  2"


def test_only_cells_that_differ_are_repainted() -> None:
    before: Line = [("loss ", "dim"), ("0.123", "text"), ("            ok", "good")]
    after: Line = [("loss ", "dim"), ("0.1", "text"), ("24            ", "text"), ("up", "good")]
    assert changed(before, before) == []
    assert changed(before, after) == [(9, 10), (22, 24)]
    assert changed([("0.12 0.30", "text")], [("0.13 0.31", "text")]) == [(3, 9)]  # near enough for one go
    assert changed([("a日b", "text")], [("a本b", "text")]) == [(1, 3)]
    assert changed([("a日b", "text")], [("a日b", "dim")]) == [(0, 4)]


def test_a_notice_that_is_too_long_goes_over_several_lines() -> None:
    sentence: Line = [("what is wrong and what to do about it", "bad")]
    shown = notice([sentence, [], [("trying again", "dim")]], 22, 6)
    assert text_of(shown).split("\n") == [
        "",
        " what is wrong and",
        " what to do about it",
        "",
        " trying again",
        "",
    ]
    assert shown[2][1] == ("what to do about it", "bad")
    assert {width_of(line) for line in shown} == {22}

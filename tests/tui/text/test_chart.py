"""Charts: axes that are round, dots where the values are."""

import math

from hypothesis import given
from hypothesis import strategies as st

from edgeflock.tui.text.chart import (
    Axis,
    Series,
    bars,
    ceiling,
    chart,
    duration_ceiling,
    fit_axis,
    label_width,
    round_times,
)
from edgeflock.tui.text.lines import crop, line_width, plain_text


@given(st.floats(1e-9, 1e15))
def test_ceilings_are_round_and_near(value: float) -> None:
    assert value * (1 - 1e-6) <= ceiling(value) <= 1.34 * value
    assert value <= duration_ceiling(value) * (1 + 1e-6)
    assert f"{ceiling(value):.1e}" == f"{float(f'{ceiling(value):.1e}'):.1e}"


def test_an_axis_holds_its_values() -> None:
    axis = fit_axis([0.93, 0.97], str, zero=False, top=1.0)
    assert axis.low <= 0.93
    assert 0.97 <= axis.high <= 1.0
    assert fit_axis([3.0, 8.5], str, zero=True) == Axis(0.0, 10.0, str)
    assert fit_axis([5.0, 5.0], str, zero=False).low < fit_axis([5.0, 5.0], str, zero=False).high


def test_no_two_numbers_beside_an_axis_read_alike() -> None:
    axis = fit_axis([231.9, 232.3], lambda value: f"{value:.3g}x", zero=False)
    assert axis.low <= 231.9
    assert axis.high >= 232.3
    assert len({axis.form(value) for value in (axis.low, (axis.low + axis.high) / 2, axis.high)}) == 3
    assert fit_axis([5.0], lambda value: "", zero=False).high > 5.0, "there is an end to it"


def test_marks_of_time_are_round_and_few() -> None:
    assert round_times(0, 250) == [0, 60, 120, 180, 240]
    assert round_times(-300, 0) == [-300, -240, -180, -120, -60, 0]
    assert round_times(0, 9 * 3600) == [0, 7200, 14400, 21600, 28800]
    assert len(round_times(0, 40 * 86400)) <= 7


def test_charts_below_each_other_share_their_columns() -> None:
    x, y = Axis(0, 10, str), Axis(0, 10, str)
    lines = chart([Series([0, 10], [0, 10], "first")], x, y, 30, 4, gutter=6)
    assert [plain_text([line]).find("┤") for line in lines] == [6, -1, 6, -1]
    assert label_width(Axis(0, 10_000, str)) == len("5000.0")


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
    assert plain_text(lines[-1:]).split() == ["0", "19"]


def test_charts_have_exactly_their_size_whatever_there_is_to_draw() -> None:
    for x, y in (([], []), ([3.0], [1.0]), ([0.0, 0.0, 0.0], [1.0, 5.0, 2.0]), ([0.0, 1e9], [-1.0, math.pi])):
        for width, height in ((12, 2), (40, 9), (79, 20)):
            lines = chart(
                [Series(x, y, "first")], Axis(0, 10, str), fit_axis(y, str, zero=False), width, height
            )
            assert [line_width(crop(line, width)) for line in lines] == [width] * height
            assert all(line_width(line) <= width for line in lines)


def test_bars_are_as_tall_as_their_values() -> None:
    lines = bars(["0", "1", "2"], [8, 4, 0], "third", 9, 5)
    assert plain_text(lines) == "██\n██\n██ ██\n██ ██\n0  1  2"

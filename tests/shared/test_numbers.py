"""How results write numbers."""

import pytest

from edgeflock.shared.numbers import integer, loss, percent, percents, ratio, size, size_with_reduction, times


@pytest.mark.parametrize(
    ("octets", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (12_345_678, "12.3 MB"), (4.2e12, "4200.0 GB")],
)
def test_a_size_has_a_decimal_unit(octets: float, text: str) -> None:
    assert size(octets) == text


def test_what_is_not_known_is_a_dash() -> None:
    assert [form(None) for form in (percent, integer, ratio, times)] == ["-"] * 4
    assert [percent(0.9785), integer(12_345.4), ratio(1.888)] == ["97.85%", "12,345", "1.89x"]


def test_how_many_times_less() -> None:
    assert [times(value) for value in (1, 9.94, 9.96, 232.4, 15_723.4)] == [
        "1.0x",
        "9.9x",
        "10x",
        "232x",
        "15,723x",
    ]
    assert size_with_reduction(12_345_678, 24_691_356) == "12.3 MB (2.0x)"
    assert [size_with_reduction(0, 5), size_with_reduction(5, None)] == ["0 B", "5 B"]


def test_a_loss_that_json_has_no_number_for() -> None:
    assert (loss(None, 3), loss(0.12345, 3), loss(0.12345, 4)) == ("not finite", "0.123", "0.1235")


@pytest.mark.parametrize(
    ("values", "text"),
    [([0.5], "50.00%"), ([0.5, 0.5], "50.00% (50.00% to 50.00%)"), ([0.9, 0.6], "75.00% (60.00% to 90.00%)")],
)
def test_percents(values: list[float], text: str) -> None:
    assert percents(values) == text

"""Numbers as people read them."""

import pytest

from edgeflock.tui.text import numbers


@pytest.mark.parametrize(
    ("used", "total", "shown"),
    [
        (212.0, None, "212M"),
        (212.0, 460.0, "212/460M"),
        (600.0, 3792.0, "0.6/3.7G"),
        (12_000.0, 128_000.0, "12/125G"),
        (None, 3792.0, "·/3.7G"),
        (None, None, "·"),
    ],
)
def test_memory_is_of_how_much(used: float | None, total: float | None, shown: str) -> None:
    assert numbers.memory(used, total) == shown


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
        (numbers.short, 999.6, "1k"),
        (numbers.short_size, 999.6, "1kB"),
        (numbers.short_times, 7.5, "7.5x"),
        (numbers.short_times, 999.6, "1,000x"),
        (numbers.short_times, 12_000.0, "12,000x"),
        (numbers.plain, "pi\x1b[31m\u202e", "pi?[31m?"),
    ],
)
def test_numbers_as_people_read_them(form: object, value: object, shown: str) -> None:
    assert callable(form)
    assert form(value) == shown

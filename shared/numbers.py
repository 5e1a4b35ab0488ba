"""Format numbers for results, with a dash for an unknown value."""

import statistics
from collections.abc import Sequence

_UNKNOWN = "-"


def size(octets: float) -> str:
    """Bytes in decimal units, e.g. 12.3 MB."""
    for unit in ("B", "kB", "MB", "GB"):
        if octets < 1000 or unit == "GB":
            break
        octets /= 1000
    return f"{octets:.0f} B" if unit == "B" else f"{octets:.1f} {unit}"


def percent(fraction: float | None) -> str:
    """An accuracy: 97.85%."""
    return _UNKNOWN if fraction is None else f"{fraction:.2%}"


def percents(fractions: Sequence[float]) -> str:
    """The mean of some fractions, with minimum and maximum if several: 97.7% (97.5% to 97.9%)."""
    mean = percent(statistics.fmean(fractions))
    return mean if len(fractions) == 1 else f"{mean} ({percent(min(fractions))} to {percent(max(fractions))})"


def integer(value: float | None) -> str:
    """A count, or a size without its unit: 12,345."""
    return _UNKNOWN if value is None else f"{value:,.0f}"


def ratio(value: float | None) -> str:
    """How many times as fast: 1.89x."""
    return _UNKNOWN if value is None else f"{value:.2f}x"


def times(value: float | None) -> str:
    """How many times less: 9.8x, 55x, 15,723x."""
    if value is None:
        return _UNKNOWN
    return f"{value:.1f}x" if value < 9.95 else f"{value:,.0f}x"


def size_with_reduction(octets: float, dense: float | None) -> str:
    """Bytes, and the reduction from `dense` bytes if both are known: 12.3 MB (232x)."""
    return f"{size(octets)} ({times(dense / octets)})" if dense and octets else size(octets)


def loss(value: float | None, digits: int) -> str:
    """A loss with `digits` digits after the point; None stands for a number that JSON does not have."""
    return "not finite" if value is None else f"{value:.{digits}f}"

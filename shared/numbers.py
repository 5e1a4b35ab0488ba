"""Numbers of results as text, with a dash for an unknown value, and the traffic of a run."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

_UNKNOWN = "-"


def size(octets: float) -> str:
    """Bytes in decimal units, e.g. 12.3 MB."""
    for unit in ("B", "kB", "MB", "GB"):
        if octets < 1000 or unit == "GB":
            break
        octets /= 1000
    return f"{octets:.0f} B" if unit == "B" else f"{octets:.1f} {unit}"


def number(value: float | None, form: str) -> str:
    """A number in a form such as .3g."""
    return _UNKNOWN if value is None else format(value, form)


def percent(fraction: float | None) -> str:
    """An accuracy: 97.85%."""
    return number(fraction, ".2%")


def percents(fractions: Sequence[float]) -> str:
    """The mean of some fractions, with minimum and maximum if several: 97.7% (97.5% to 97.9%)."""
    mean = percent(statistics.fmean(fractions))
    return mean if len(fractions) == 1 else f"{mean} ({percent(min(fractions))} to {percent(max(fractions))})"


def integer(value: float | None) -> str:
    """A count, or a size without its unit: 12,345."""
    return number(value, ",.0f")


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


@dataclass(frozen=True, slots=True)
class RunTraffic:
    """Bytes between devices and server until some moment of a run, or their means over several runs."""

    ingress: float
    """Bytes up, which the server received."""
    egress: float
    """Bytes down, which the server sent. 0 if they are unknown."""
    dense: float | None
    """As many updates as float32, in one direction without framing: 4 bytes x the model's size x updates.

    A dense update has a dense model as its answer, so both ways it is twice that. None if the size is not
    known."""

    @property
    def both(self) -> float:
        """Up and down together."""
        return self.ingress + self.egress

    @property
    def reduction(self) -> float | None:
        """The reduction against dense, up."""
        return self.dense / self.ingress if self.dense and self.ingress else None

    @property
    def reduction_down(self) -> float | None:
        """The reduction against dense, down."""
        return self.dense / self.egress if self.dense is not None and self.egress else None

    @property
    def reduction_both_ways(self) -> float | None:
        """The reduction against dense, up and down together."""
        return 2 * self.dense / self.both if self.dense is not None and self.egress else None

    def cells(self) -> list[str]:
        """Return received, sent and both ways as cells of a table: "12.3 MB (232x)"."""
        twice = None if self.dense is None else 2 * self.dense
        return [
            size_with_reduction(self.ingress, self.dense),
            size_with_reduction(self.egress, self.dense),
            size_with_reduction(self.both, twice),
        ]


CELLS = (
    "Bytes received (up), sent (down) and both ways, in brackets how many times less than dense float32 takes"
)
"""The head of a table with `RunTraffic.cells`."""

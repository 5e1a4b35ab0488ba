"""Bytes between devices and server, both ways, compared with dense float32."""

from dataclasses import dataclass

from edgeflock.shared.numbers import size_with_reduction


@dataclass(frozen=True, slots=True)
class RunTraffic:
    """Bytes until some moment of a run, or their means over several runs."""

    ingress: float
    """Bytes up, which the server received."""
    egress: float
    """Bytes down, which the server sent."""
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
    def reduction_both_ways(self) -> float | None:
        """The reduction against dense, up and down together."""
        return 2 * self.dense / self.both if self.dense and self.both else None

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

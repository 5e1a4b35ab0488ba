"""What moved between devices and server, both ways, beside what dense float32 would have taken."""

from dataclasses import dataclass

from edgeflock.shared.numbers import against


@dataclass(frozen=True, slots=True)
class RunTraffic:
    """Bytes until some moment of a run, or their means over several runs."""

    ingress: float
    """Received by the server: up."""
    egress: float
    """Sent by it: down."""
    dense: float | None
    """As many updates as float32, in one direction and without framing: 4 bytes x the model's size x updates.
    A dense update is answered with a dense model, so both ways it is twice that. None if the size is not
    known."""

    @property
    def both(self) -> float:
        """Up and down together."""
        return self.ingress + self.egress

    @property
    def reduction(self) -> float | None:
        """How many times less than dense went up."""
        return self.dense / self.ingress if self.dense and self.ingress else None

    @property
    def reduction_both_ways(self) -> float | None:
        """How many times less than dense went up and down together."""
        return 2 * self.dense / self.both if self.dense and self.both else None

    def cells(self) -> list[str]:
        """Received, sent and both ways as a table has them: "12.3 MB (232x)"."""
        twice = None if self.dense is None else 2 * self.dense
        return [
            against(self.ingress, self.dense),
            against(self.egress, self.dense),
            against(self.both, twice),
        ]


CELLS = (
    "Bytes received (up), sent (down) and both ways, in brackets how many times less than dense float32 takes"
)
"""What `Traffic.cells` are, for above a table."""

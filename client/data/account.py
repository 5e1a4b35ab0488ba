"""What became of every sample of a stream."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Account:
    """Of a device, since its client started. What was kept and came was trained, dropped, quarantined, a
    duplicate, or is left.
    """

    kept: int
    """Were in its buffer when it started, and"""
    came: int
    """came since."""
    trained: int
    """The server has what was computed from them."""
    dropped: int
    """There was no room, or no time, for them."""
    quarantined: int
    """They were unfit for training."""
    duplicates: int
    """They came before, under the same key."""
    left: int
    """They wait, or were taken and are not settled."""

    def __str__(self) -> str:
        kept = f" ({self.kept:,} were kept from before)" if self.kept else ""
        return (
            f"{self.kept + self.came:,} samples{kept}: {self.trained:,} trained, {self.dropped:,} dropped, "
            f"{self.quarantined:,} quarantined, {self.duplicates:,} duplicates, {self.left:,} left"
        )

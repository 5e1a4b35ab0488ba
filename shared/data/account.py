"""What became of every sample of a device's stream, as the device tells it."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields


@dataclass(frozen=True, slots=True)
class SampleAccount:
    """Since the device's client started; each sample is counted once: all that came are one of the others."""

    came: int
    """Those that its buffer had kept from before among them."""
    trained: int
    """The server has what was computed from them."""
    drops: int
    """There was no room, or no time, for them."""
    quarantined: int
    """They were unfit for training."""
    duplicates: int
    """They came before, under the same key."""
    left: int
    """They wait, or were taken and nobody knows yet."""

    @classmethod
    def of(cls, facts: Mapping[str, object]) -> "SampleAccount | None":
        """The one among what a device tells, if there is one."""
        told = {field.name: facts.get(field.name) for field in fields(cls)}
        numbers = {name: value for name, value in told.items() if type(value) is int}
        return cls(**numbers) if len(numbers) == len(told) else None

    def facts(self) -> dict[str, int]:
        return asdict(self)

    def __str__(self) -> str:
        return (
            f"{self.came:,} samples came: {self.trained:,} trained, {self.drops:,} dropped, "
            f"{self.quarantined:,} quarantined, {self.duplicates:,} duplicates, {self.left:,} left"
        )

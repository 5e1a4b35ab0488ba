"""The fate of every sample of a device's stream, as the device reports it."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields


@dataclass(frozen=True, slots=True)
class SampleAccount:
    """Counts since the client started. Each sample counts once: `came` is the sum of the other counts."""

    came: int
    """All samples, with those that its buffer kept from before."""
    trained: int
    """The server has the update computed from them."""
    drops: int
    """There was no space or no time for them."""
    quarantined: int
    """They were unfit for training."""
    duplicates: int
    """They are repetitions, by their key."""
    left: int
    """They wait, or are in use with an unknown outcome."""

    @classmethod
    def from_facts(cls, facts: Mapping[str, object]) -> "SampleAccount | None":
        """Return the account in a device's facts, if there is one."""
        values = {field.name: facts.get(field.name) for field in fields(cls)}
        numbers = {name: value for name, value in values.items() if type(value) is int}
        return cls(**numbers) if len(numbers) == len(values) else None

    def facts(self) -> dict[str, int]:
        return asdict(self)

    def __str__(self) -> str:
        return (
            f"{self.came:,} sample{'s' * (self.came != 1)} came: {self.trained:,} trained, "
            f"{self.drops:,} dropped, {self.quarantined:,} quarantined, "
            f"{self.duplicates:,} duplicate{'s' * (self.duplicates != 1)}, {self.left:,} left"
        )

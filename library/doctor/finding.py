"""What a check comes to."""

from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "warn", "bad"]
"""bad: it will not work; warn: it works, and may not for long, or not well."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """Of one check."""

    check: str
    state: State
    said: str
    remedy: str = ""
    """What to do; empty where it is ok."""

    def lines(self) -> list[str]:
        """For a person."""
        told = [f"{self.state:<5} {self.check:<9} {self.said}"]
        return [*told, f"{'':<15} {self.remedy}"] if self.remedy else told

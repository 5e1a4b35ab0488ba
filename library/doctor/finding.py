"""The result of a check."""

from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "warn", "bad"]
"""bad: it does not work. warn: it works now, but may fail later, or work badly."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    check: str
    state: State
    said: str
    remedy: str = ""
    """What to do. It is empty if the state is ok."""

    def lines(self) -> list[str]:
        lines = [f"{self.state:<5} {self.check:<9} {self.said}"]
        return [*lines, f"{'':<15} {self.remedy}"] if self.remedy else lines


def ok(check: str, said: str) -> CheckResult:
    """Return that something works."""
    return CheckResult(check, "ok", said)


def warn(check: str, said: str, remedy: str) -> CheckResult:
    """Return that something may fail later, or works badly."""
    return CheckResult(check, "warn", said, remedy)


def bad(check: str, said: str, remedy: str) -> CheckResult:
    """Return that something does not work."""
    return CheckResult(check, "bad", said, remedy)

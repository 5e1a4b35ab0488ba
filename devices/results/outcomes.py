"""What runs of fleets came to, and the same setting over several seeds."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Outcome:
    """A finished run, as read back from its file."""

    rows: list[dict[str, Any]]
    """updates, seconds (virtual), loss, accuracy, ingress, egress; in order."""
    end: dict[str, Any]

    @property
    def best(self) -> float:
        """The highest accuracy of any evaluation; 0 if there is none."""
        return max((row["accuracy"] or 0.0 for row in self.rows), default=0.0)

    def first(self, accuracy: float) -> dict[str, Any] | None:
        """The first evaluation that reached `accuracy`."""
        return next((row for row in self.rows if (row["accuracy"] or 0.0) >= accuracy), None)

    def crossing(self, accuracy: float, key: str) -> float | None:
        """`key` where `accuracy` was first reached, on a line between evaluations; None if it never was."""
        before: dict[str, Any] | None = None
        for row in self.rows:
            if (row["accuracy"] or 0.0) >= accuracy:
                if before is None:
                    return float(row[key])
                part = (accuracy - before["accuracy"]) / (row["accuracy"] - before["accuracy"])
                return float(before[key] + part * (row[key] - before[key]))
            before = row if row["accuracy"] is not None else before
        return None

    def best_by(self, key: str, value: float) -> float | None:
        """The highest accuracy of the evaluations where `key` was `value` at most; None if there is none."""
        found = [row["accuracy"] or 0.0 for row in self.rows if row[key] <= value]
        return max(found, default=None)


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting and its runs, a seed each."""

    label: str
    outcomes: Sequence[Outcome]

    def best(self) -> list[float]:
        """The highest accuracy of each run."""
        return [outcome.best for outcome in self.outcomes]

    def reaching(self, accuracy: float, key: str) -> list[float] | None:
        """`key` (updates, ingress, seconds) where each run first reached `accuracy`; None if one did not."""
        rows = [outcome.first(accuracy) for outcome in self.outcomes]
        return [row[key] for row in rows if row] if all(rows) else None

    def crossing(self, accuracy: float, key: str) -> float | None:
        """The runs' mean of Outcome.crossing; None if one never came so far."""
        found = [outcome.crossing(accuracy, key) for outcome in self.outcomes]
        return statistics.fmean(where for where in found if where is not None) if None not in found else None

    def best_by(self, key: str, value: float) -> float | None:
        """The runs' mean of Outcome.best_by; None if one has no evaluation by then."""
        found = [outcome.best_by(key, value) for outcome in self.outcomes]
        reached = [accuracy for accuracy in found if accuracy is not None]
        return statistics.fmean(reached) if len(reached) == len(found) else None

    @property
    def measure(self) -> str:
        """accuracy, or loss for what has no accuracy."""
        return "loss" if self.outcomes[0].rows[-1]["accuracy"] is None else "accuracy"

    def series(self, key: str) -> list[tuple[float, list[float]]]:
        """(mean of `key`, measures) at each evaluation that all runs came to."""
        columns = zip(*(outcome.rows for outcome in self.outcomes), strict=False)
        return [
            (statistics.fmean(row[key] for row in rows), [row[self.measure] or 0.0 for row in rows])
            for rows in columns
        ]

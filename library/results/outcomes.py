"""What runs of fleets came to, and the same setting over several seeds."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from edgeflock.results.traffic import RunTraffic

LAST = 5
"""Evaluations at a run's end whose mean says where it stayed, as its best does not."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """A finished run, as read back from its file."""

    rows: list[dict[str, Any]]
    """updates, seconds (virtual), loss, accuracy, ingress, egress; in order."""
    end: dict[str, Any]
    """seed, ended, classes, ...: FleetResult."""

    @property
    def accuracies(self) -> list[float]:
        """Of every evaluation; 0 for one that has none."""
        return [row["accuracy"] or 0.0 for row in self.rows]

    @property
    def returns(self) -> list[float]:
        """The mean return of the episodes of every evaluation that has any."""
        return [row["metrics"]["return"] for row in self.rows if "return" in row.get("metrics", {})]

    @property
    def best(self) -> float:
        """The highest accuracy of any evaluation; 0 if there is none."""
        return max(self.accuracies, default=0.0)

    @property
    def last(self) -> float:
        """The accuracy of the last evaluation; 0 if there is none."""
        return self.accuracies[-1] if self.rows else 0.0

    @property
    def last_five(self) -> float:
        """The mean accuracy of the last five evaluations, or of all if they are fewer; 0 if there is none."""
        return statistics.fmean(self.accuracies[-LAST:]) if self.rows else 0.0

    def until(self, key: str, value: float) -> "Outcome":
        """The same run as far as evaluations where `key` was `value` at most."""
        return Outcome([row for row in self.rows if value_of(row, key) <= value], self.end)

    def traffic(self, row: dict[str, Any]) -> RunTraffic:
        """Bytes until an evaluation. What is dense is not known of runs whose end does not tell the size."""
        size = self.end.get("size")
        return RunTraffic(row["ingress"], row["egress"], 4 * size * row["updates"] if size else None)

    def first(self, accuracy: float) -> dict[str, Any] | None:
        """The first evaluation that reached `accuracy`."""
        return next((row for row in self.rows if (row["accuracy"] or 0.0) >= accuracy), None)

    def crossing(self, accuracy: float, key: str) -> float | None:
        """`key` where `accuracy` was first reached, on a line between evaluations; None if it never was."""
        before: dict[str, Any] | None = None
        for row in self.rows:
            if (row["accuracy"] or 0.0) >= accuracy:
                if before is None:
                    return float(value_of(row, key))
                part = (accuracy - before["accuracy"]) / (row["accuracy"] - before["accuracy"])
                start = value_of(before, key)
                return float(start + part * (value_of(row, key) - start))
            before = row if row["accuracy"] is not None else before
        return None


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting and its runs, a seed each."""

    label: str
    outcomes: Sequence[Outcome]

    def best(self) -> list[float]:
        """The highest accuracy of each run."""
        return [outcome.best for outcome in self.outcomes]

    def last(self) -> list[float]:
        """The accuracy that each run ended with."""
        return [outcome.last for outcome in self.outcomes]

    def last_five(self) -> list[float]:
        """The mean accuracy of each run's last five evaluations."""
        return [outcome.last_five for outcome in self.outcomes]

    def reaching(self, accuracy: float, key: str) -> list[float] | None:
        """`key` (updates, seconds, traffic) where each run first reached `accuracy`; None if one did not."""
        rows = [outcome.first(accuracy) for outcome in self.outcomes]
        return [value_of(row, key) for row in rows if row] if all(rows) else None

    def traffic_to(self, accuracy: float) -> RunTraffic | None:
        """The runs' mean traffic where each first reached `accuracy`; None if one did not."""
        rows = [(outcome, outcome.first(accuracy)) for outcome in self.outcomes]
        return _mean([run.traffic(row) for run, row in rows if row]) if all(row for _, row in rows) else None

    def traffic(self) -> RunTraffic:
        """The runs' mean traffic by their last evaluations."""
        return _mean([outcome.traffic(outcome.rows[-1]) for outcome in self.outcomes])

    def crossing(self, accuracy: float, key: str) -> float | None:
        """The runs' mean of Outcome.crossing; None if one never came so far."""
        found = [outcome.crossing(accuracy, key) for outcome in self.outcomes]
        return statistics.fmean(where for where in found if where is not None) if None not in found else None

    def until(self, key: str, value: float) -> "Setting | None":
        """The runs as far as evaluations where `key` was `value` at most; None if one has none by then."""
        cut = [outcome.until(key, value) for outcome in self.outcomes]
        return Setting(self.label, cut) if all(outcome.rows for outcome in cut) else None

    @property
    def measure(self) -> str:
        """return, accuracy, or loss for what has neither."""
        last = self.outcomes[0].rows[-1]
        if "return" in last.get("metrics", {}):
            return "return"
        return "loss" if last["accuracy"] is None else "accuracy"

    def series(self, key: str) -> list[tuple[float, list[float]]]:
        """(mean of `key`, measures) at each evaluation that all runs came to."""
        columns = zip(*(outcome.rows for outcome in self.outcomes), strict=False)
        return [
            (
                statistics.fmean(value_of(row, key) for row in rows),
                [_measured(row, self.measure) for row in rows],
            )
            for rows in columns
        ]


def value_of(row: dict[str, Any], key: str) -> float:
    """`key` of an evaluation's row; `traffic` is both ways together."""
    value: float = row["ingress"] + row["egress"] if key == "traffic" else row[key]
    return value


def _measured(row: dict[str, Any], measure: str) -> float:
    return (row["metrics"] if measure == "return" else row)[measure] or 0.0


def _mean(each: Sequence[RunTraffic]) -> RunTraffic:
    dense = [one.dense for one in each if one.dense is not None]
    return RunTraffic(
        statistics.fmean(one.ingress for one in each),
        statistics.fmean(one.egress for one in each),
        statistics.fmean(dense) if len(dense) == len(each) else None,
    )

"""Results of runs of fleets, and one setting over several seeds."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from edgeflock.shared.numbers import RunTraffic

LAST = 5
"""Evaluations at a run's end. Their mean shows a collapse, which the best one hides."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """A finished run, read from its file."""

    rows: list[dict[str, Any]]
    """Rows of updates, seconds (virtual), loss, accuracy, ingress, egress; in order."""
    end: dict[str, Any]
    """seed, ended, classes, ...: FleetResult."""

    @property
    def accuracies(self) -> list[float]:
        """The accuracy of every evaluation, 0 without one."""
        return [row["accuracy"] or 0.0 for row in self.rows]

    @property
    def returns(self) -> list[float]:
        """The mean return of the episodes of every evaluation that has any."""
        return [row["metrics"]["return"] for row in self.rows if "return" in row.get("metrics", {})]

    @property
    def samples(self) -> int:
        """Samples that all devices trained on."""
        return sum(kind["samples"] for kind in self.end["classes"].values())

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
        return self.mean_of_last(LAST)

    def mean_of_last(self, count: int) -> float:
        """Return the mean accuracy of the last `count` evaluations, or of all; 0 if there is none."""
        return statistics.fmean(self.accuracies[-count:]) if self.rows else 0.0

    @property
    def unaveraged(self) -> "Outcome":
        """The run with the accuracies of fleet.evaluate_unaveraged, if it has them."""
        newest = [row.get("metrics", {}).get("unaveraged", row["accuracy"]) for row in self.rows]
        rows = [{**row, "accuracy": one} for row, one in zip(self.rows, newest, strict=True)]
        return Outcome(rows, self.end)

    def truncate(self, key: str, value: float) -> "Outcome":
        """Return the run up to the evaluations where `key` was at most `value`."""
        return Outcome([row for row in self.rows if row_value(row, key) <= value], self.end)

    def traffic(self, row: dict[str, Any]) -> RunTraffic:
        """Return the bytes until an evaluation. `dense` is None if the run's end has no model size."""
        size = self.end.get("size")
        return RunTraffic(row["ingress"], row["egress"], 4 * size * row["updates"] if size else None)

    def first_reaching(self, accuracy: float) -> dict[str, Any] | None:
        return next((row for row in self.rows if (row["accuracy"] or 0.0) >= accuracy), None)

    def interpolate(self, accuracy: float, key: str) -> float | None:
        """Interpolate `key` at the first crossing of `accuracy`. None if the run did not reach it."""
        previous: dict[str, Any] | None = None
        for row in self.rows:
            if (row["accuracy"] or 0.0) >= accuracy:
                if previous is None:
                    return float(row_value(row, key))
                part = (accuracy - previous["accuracy"]) / (row["accuracy"] - previous["accuracy"])
                start = row_value(previous, key)
                return float(start + part * (row_value(row, key) - start))
            previous = row if row["accuracy"] is not None else previous
        return None


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting and its runs, one for each seed."""

    label: str
    outcomes: Sequence[Outcome]

    @property
    def unaveraged(self) -> "Setting":
        """The same runs with the accuracies of fleet.evaluate_unaveraged, if they have them."""
        return Setting(self.label, [outcome.unaveraged for outcome in self.outcomes])

    def best(self) -> list[float]:
        """The highest accuracy of each run."""
        return [outcome.best for outcome in self.outcomes]

    def last(self) -> list[float]:
        """The last accuracy of each run."""
        return [outcome.last for outcome in self.outcomes]

    def last_five(self) -> list[float]:
        """The mean accuracy of each run's last five evaluations."""
        return [outcome.last_five for outcome in self.outcomes]

    def last_ten(self) -> list[float]:
        """The mean accuracy of each run's last ten evaluations."""
        return [outcome.mean_of_last(10) for outcome in self.outcomes]

    def costs_to_reach(self, accuracy: float, key: str) -> list[float] | None:
        """Return `key` (updates, seconds, traffic) where each run reached `accuracy`; None if one did not."""
        rows = [outcome.first_reaching(accuracy) for outcome in self.outcomes]
        return [row_value(row, key) for row in rows if row] if all(rows) else None

    def traffic_to_reach(self, accuracy: float) -> RunTraffic | None:
        """The runs' mean traffic where each first reached `accuracy`; None if one did not."""
        rows = [(outcome, outcome.first_reaching(accuracy)) for outcome in self.outcomes]
        return _mean([run.traffic(row) for run, row in rows if row]) if all(row for _, row in rows) else None

    def traffic(self) -> RunTraffic:
        """The runs' mean traffic by their last evaluations."""
        return _mean([outcome.traffic(outcome.rows[-1]) for outcome in self.outcomes])

    def interpolate(self, accuracy: float, key: str) -> float | None:
        """Return the mean of Outcome.crossing. None if a run did not reach the accuracy."""
        found = [outcome.interpolate(accuracy, key) for outcome in self.outcomes]
        return statistics.fmean(where for where in found if where is not None) if None not in found else None

    def truncate(self, key: str, value: float) -> "Setting | None":
        """Return the runs up to the evaluations where `key` was at most `value`. None if one has none."""
        cut = [outcome.truncate(key, value) for outcome in self.outcomes]
        return Setting(self.label, cut) if all(outcome.rows for outcome in cut) else None

    @property
    def measure(self) -> str:
        """The measure: return, accuracy, or loss without both."""
        last = self.outcomes[0].rows[-1]
        if "return" in last.get("metrics", {}):
            return "return"
        return "loss" if last["accuracy"] is None else "accuracy"

    def series(self, key: str) -> list[tuple[float, list[float]]]:
        """Return (mean of `key`, measures) at each evaluation that all runs have."""
        columns = zip(*(outcome.rows for outcome in self.outcomes), strict=False)

        def measured(row: dict[str, Any]) -> float:
            return (row["metrics"] if self.measure == "return" else row)[self.measure] or 0.0

        return [
            (statistics.fmean(row_value(row, key) for row in rows), list(map(measured, rows)))
            for rows in columns
        ]


def row_value(row: dict[str, Any], key: str) -> float:
    """Return `key` of an evaluation's row. `traffic` is the sum of both directions."""
    value: float = row["ingress"] + row["egress"] if key == "traffic" else row[key]
    return value


def _mean(each: Sequence[RunTraffic]) -> RunTraffic:
    dense = [one.dense for one in each if one.dense is not None]
    return RunTraffic(
        statistics.fmean(one.ingress for one in each),
        statistics.fmean(one.egress for one in each),
        statistics.fmean(dense) if len(dense) == len(each) else None,
    )

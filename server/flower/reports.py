"""The reports of a run to its user: metrics by round, stored with the journal for a resumed run."""

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from flwr.app import MetricRecord, RecordDict
from flwr.serverapp.strategy import Result

from edgeflock.server.flower.options import Aggregate
from edgeflock.server.flower.run import log
from edgeflock.server.flower.shares import Short, lost_classes
from edgeflock.shared.protocol.frames import Evaluation

_FILE = "metrics.jsonl"

_CONVINCING = 3
"""Evaluations in a row that lose a class before a warning: a model learns some classes before others."""

TRAINED, EVALUATED, JUDGED = "train_clientapp", "evaluate_clientapp", "evaluate_serverapp"
"""Kinds of metrics, named as in a Result."""


class FlowerReports:
    """The metrics of a Result."""

    def __init__(self, result: Result, checkpoint: str | Path) -> None:
        self._metrics = {
            TRAINED: result.train_metrics_clientapp,
            EVALUATED: result.evaluate_metrics_clientapp,
            JUDGED: result.evaluate_metrics_serverapp,
        }
        self._path = Path(checkpoint) / _FILE if checkpoint else None
        self._lost: dict[tuple[str, str], dict[int, int]] = {}
        """(kind, metric) -> class -> in how many evaluations in a row it was lost."""

    def add(self, kind: str, number: int, metrics: MetricRecord) -> None:
        """Store the metrics of a round."""
        self._metrics[kind][number] = metrics
        if kind != TRAINED:
            self._warn_of_classes(kind, number, metrics)
        if self._path is not None:
            with self._path.open("a") as file:
                file.write(json.dumps({"round": number, "kind": kind, "metrics": dict(metrics)}) + "\n")

    def warn_of_short(self, nodes: Iterable[Short]) -> None:
        """Warn of nodes that are newly short of their share."""
        for node in nodes:
            log.warning(
                "Node %d: its replies are %.1f%% of what counts, and it has about %.0f%% of the data, so the "
                "model hardly learns what only this node has. It is slow, has far more data than others, or "
                "its replies fail (see the log). Use ScaDLES without a quorum: it waits for every node until "
                "the deadline, and counts replies by their samples. Or give such data to other nodes, too",
                *(node.node, 100 * node.counted, 100 * node.data),
            )

    def _warn_of_classes(self, kind: str, number: int, metrics: MetricRecord) -> None:
        lost = lost_classes(metrics)
        for name in metrics:
            before = self._lost.get((kind, name), {})
            times = {c: before.get(c, 0) + 1 for c in lost.get(name, ())}
            self._lost[kind, name] = times
            if classes := [c for c, count in times.items() if count == _CONVINCING]:
                log.warning(
                    "Round %d: by %s, at most 2%% of class %s are predicted correctly, for the %drd time in "
                    "a row: the nodes that have this class may count too little, or no node has it",
                    *(number, name, ", ".join(map(str, classes)), _CONVINCING),
                )

    def restore(self, past: Mapping[int, Evaluation]) -> None:
        """Restore the metrics of the rounds that the journal knows, which are `past`."""
        for number, evaluation in past.items():
            known = {"loss": evaluation.loss, "accuracy": evaluation.accuracy}
            metrics = {key: value for key, value in known.items() if value is not None}
            if metrics:
                self._metrics[JUDGED][number] = MetricRecord(dict(metrics))
        for kind, number, noted in self._read():
            if number in past:
                self._metrics[kind][number] = noted

    def has(self, kind: str, number: int) -> bool:
        return number in self._metrics[kind]

    def _read(self) -> Iterator[tuple[str, int, MetricRecord]]:
        """Yield the complete lines: the last one may be torn."""
        if self._path is None or not self._path.exists():
            return
        for line in self._path.read_text(errors="replace").splitlines():
            try:
                kept: dict[str, Any] = json.loads(line)
                kind, number, metrics = kept["kind"], kept["round"], MetricRecord(kept["metrics"])
            except (ValueError, TypeError, KeyError):
                continue
            if kind in self._metrics:
                yield kind, number, metrics


def aggregate(function: Aggregate, contents: list[RecordDict], weight: str) -> MetricRecord | None:
    """Return the metrics that a function (a user's or Flower's) makes of replies; None if it fails."""
    if not contents:
        return None
    try:
        return function(contents, weight)
    except Exception as error:  # a user's function may raise anything; training continues
        log.warning("Metrics cannot be aggregated: %s: %s", type(error).__name__, error)
        return None


def finite_number(metrics: MetricRecord | None, key: str) -> float | None:
    """Return the finite number under this key; None if there is none."""
    number = metrics.get(key) if metrics else None
    return float(number) if isinstance(number, int | float) and math.isfinite(number) else None


def to_numbers(metrics: MetricRecord) -> dict[str, Any]:
    """Return metrics as Python numbers: NumPy's would be shown with the names of their types."""
    numbers: dict[str, Any] = json.loads(json.dumps(dict(metrics)))
    return numbers

"""Experiment trackers: the server writes every evaluation to those in evaluation.trackers.

    jsonl         evaluations.jsonl in the run's directory, a line each
    tensorboard   an event file in its folder tensorboard
    mlflow        MLFLOW_TRACKING_URI, or its mlflow.db
    wandb         Weights & Biases, as WANDB_BASE_URL and WANDB_MODE configure it

The first evaluation opens a tracker. A tracker that fails is reported and not used again. Training continues.
"""

import json
import logging
import os
import re
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from edgeflock.shared.errors import ConfigError
from edgeflock.shared.protocol.frames import Evaluation

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RunInfo:
    """The run as a tracker knows it."""

    run: str
    directory: Path
    settings: dict[str, str | int | float | bool]
    """section.key -> value, without secrets."""


@dataclass(frozen=True, slots=True)
class OpenTracker:
    write: Callable[[Evaluation], object]
    close: Callable[[], object]


def metrics(evaluation: Evaluation) -> dict[str, float]:
    """Return an evaluation for trackers that take only numbers. The version is the step."""
    # MLflow takes no brackets in a name.
    own = {re.sub(r"[^\w.-]+", "_", name).strip("_"): value for name, value in evaluation.metrics.items()}
    numbers = {**own, "loss": evaluation.loss, "accuracy": evaluation.accuracy}
    traffic = {"ingress": evaluation.ingress, "egress": evaluation.egress}
    return {name: value for name, value in numbers.items() if value is not None} | traffic


def open_jsonl(run_info: RunInfo) -> OpenTracker:
    file = open(run_info.directory / "evaluations.jsonl", "a")

    def write(evaluation: Evaluation) -> None:
        file.write(json.dumps({"run": run_info.run, **evaluation._asdict()}) + "\n")
        file.flush()

    return OpenTracker(write, file.close)


def open_tensorboard(run_info: RunInfo) -> OpenTracker:
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(str(run_info.directory / "tensorboard"))

    def write(evaluation: Evaluation) -> None:
        for name, value in metrics(evaluation).items():
            writer.add_scalar(name, value, evaluation.version, evaluation.time)
        writer.flush()

    return OpenTracker(write, writer.close)


def open_mlflow(run_info: RunInfo) -> OpenTracker:
    """Open MLflow. A restarted server continues the MLflow run that it began."""
    import mlflow

    database = f"sqlite:///{run_info.directory.absolute() / 'mlflow.db'}"
    mlflow.set_tracking_uri(os.environ.get("MLFLOW_TRACKING_URI") or database)
    run_file = run_info.directory / "mlflow-run"
    if run_file.exists():
        mlflow.start_run(run_id=run_file.read_text().strip())
    else:
        mlflow.set_experiment("edgeflock")
        started = mlflow.start_run(run_name=run_info.run)
        mlflow.log_params(run_info.settings)
        run_file.write_text(started.info.run_id + "\n")

    def write(evaluation: Evaluation) -> None:
        timestamp = int(evaluation.time * 1000)
        mlflow.log_metrics(metrics(evaluation), step=evaluation.version, timestamp=timestamp)

    return OpenTracker(write, mlflow.end_run)


def open_wandb(run_info: RunInfo) -> OpenTracker:
    import wandb

    run = wandb.init(
        project="edgeflock", id=run_info.run, resume="allow", dir=run_info.directory, config=run_info.settings
    )
    return OpenTracker(lambda evaluation: run.log(metrics(evaluation), step=evaluation.version), run.finish)


@dataclass(frozen=True, slots=True)
class _TrackerKind:
    open: Callable[[RunInfo], OpenTracker]
    module: str
    """The module that it needs."""


KINDS = {
    "jsonl": _TrackerKind(open_jsonl, "json"),
    "tensorboard": _TrackerKind(open_tensorboard, "tensorboard"),
    "mlflow": _TrackerKind(open_mlflow, "mlflow"),
    "wandb": _TrackerKind(open_wandb, "wandb"),
}


def check(names: Iterable[str]) -> None:
    """Raise ConfigError if a tracker is unknown or not installed."""
    for name in names:
        if name not in KINDS:
            raise ConfigError(f"evaluation.trackers names {name!r}, which is none of {', '.join(KINDS)}")
        if find_spec(KINDS[name].module) is None:
            raise ConfigError(
                f"evaluation.trackers names {name!r}, which is not installed: pip install "
                f"{KINDS[name].module}, or 'edgeflock[trackers]' for all"
            )


class Trackers:
    """Writes evaluations in a separate thread, in order."""

    def __init__(self, names: Iterable[str], run_info: RunInfo, on_failure: Callable[[str], None]) -> None:
        """`on_failure` is called with a text for operators, in any thread."""
        self._names = list(dict.fromkeys(names))
        self._run_info = run_info
        self._on_failure = on_failure
        self._open: dict[str, OpenTracker] = {}
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="edgeflock-trackers")

    def write(self, evaluation: Evaluation) -> None:
        """Queue an evaluation to be written."""
        if self._names:
            self._thread.submit(self._write, evaluation)

    def close(self) -> None:
        """Write the queued evaluations, then close. May block."""
        if self._names:
            self._thread.submit(self._close)
        self._thread.shutdown()

    def _write(self, evaluation: Evaluation) -> None:
        for name in list(self._names):
            self._try(name, lambda tracker: tracker.write(evaluation))

    def _close(self) -> None:
        for name in list(self._open):
            self._try(name, lambda tracker: tracker.close())

    def _try(self, name: str, use: Callable[[OpenTracker], Any]) -> None:
        try:
            if name not in self._open:
                self._open[name] = KINDS[name].open(self._run_info)
            use(self._open[name])
        except Exception as error:  # from any library, server or disk
            log.exception("the tracker %s failed and is given up", name)
            self._names.remove(name)
            self._open.pop(name, None)
            self._on_failure(
                f"the tracker {name} failed and is given up: {str(error) or type(error).__name__}"
            )

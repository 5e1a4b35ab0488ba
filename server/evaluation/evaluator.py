"""Evaluation of the model on held-out data, at an interval, off the event loop."""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from edgeflock.server.connections import Meter
from edgeflock.server.engine import Engine
from edgeflock.server.engine.judging import is_sound
from edgeflock.server.engine.steering import Recovery
from edgeflock.server.evaluation.federated import combine_evaluations
from edgeflock.server.evaluation.model_scores import Evaluate, ModelScores
from edgeflock.server.ledger import Suspect
from edgeflock.server.roster import Registry
from edgeflock.server.sessions import Writer
from edgeflock.shared.protocol.frames import Evaluation, RunState

FindSuspect = Callable[[int, int], Suspect | None]
"""(after, until) -> the update that may be to blame, of those that made these versions."""


def has_diverged(history: Sequence[Evaluation]) -> bool:
    """Whether the model has diverged by its last evaluation.

    Its loss is no number, or more than EXPLODED_RATIO times max(1, first loss).
    """
    return bool(history) and not is_sound(history[-1], _first_loss(history))


def describe_divergence(
    history: Sequence[Evaluation], included_version: Callable[[int], int]
) -> tuple[int, str]:
    """Return (the version to go back to, the reason why no update is taken and the remedy).

    `included_version` maps a version to the version whose model its evaluation describes.
    """
    last, first = history[-1], _first_loss(history)
    good = included_version(next((e.version for e in reversed(history) if is_sound(e, first)), 0))
    loss = "no number" if last.loss is None else f"{last.loss:.4g}"
    return good, (
        f"the model of version {last.version} has diverged (loss {loss}), that of {good} had not; no update "
        f"is taken until an operator goes back: edgeflock rollback {good}"
    )


def blame(suspect: Suspect | None) -> str:
    """Return a text for operators only, since devices get no news of each other."""
    if suspect is None:
        return ""
    if not suspect.is_large:
        return "; no device's steps stand out: the learning rate may be too high (coordination.learning_rate)"
    return (
        f"; the largest step between is update {suspect.sequence} of {suspect.device!r}, which made "
        f"version {suspect.version}"
    )


def _first_loss(history: Sequence[Evaluation]) -> float:
    return next((e.loss for e in history if e.loss is not None), 1.0)


log = logging.getLogger(__name__)

SaveBest = Callable[[NDArray[np.float32], Evaluation], None]


class Evaluator:
    """Evaluates each `every` seconds if the model has moved, and once the run is complete.

    Evaluations and the devices' traffic go into the journal together, so that they match.
    """

    def __init__(
        self,
        engine: Engine,
        writer: Writer,
        registry: Registry,
        total: Meter,
        evaluate: Evaluate | None,
        every: float,
        history: list[Evaluation],
        on_evaluation: Callable[[Evaluation | None], None] = lambda evaluation: None,
        find_suspect: FindSuspect = lambda after, until: None,
        save_best: SaveBest = lambda theta, evaluation: None,
        on_recovery: Callable[[Recovery], None] = lambda recovery: None,
        *,
        on_devices: bool = False,
    ) -> None:
        """Calls `on_evaluation` with each evaluation (None if it failed), and `on_recovery` with recoveries.

        `find_suspect` is called while the engine is at rest. `save_best` is called with each model that is
        better than all before it. With `on_devices`, the devices' own evaluations are metrics too; without
        `evaluate`, their means are the evaluation.
        """
        self.history = history
        """Every evaluation so far, in order. Only the last one has class counts."""
        self.failed_at: int | None = None
        """The version whose evaluation failed, if the last one did."""
        self._engine = engine
        self._writer = writer
        self._registry = registry
        self._total = total
        self._evaluate = evaluate
        self._every = every
        self._on_evaluation = on_evaluation
        self._find_suspect = find_suspect
        self._save_best = save_best
        self._on_recovery = on_recovery
        self._on_devices = on_devices
        self._measured: NDArray[np.float32] = np.zeros(0, np.float32)
        """The theta of the last evaluation."""
        self._is_saving = False
        """Whether the last evaluation's model may still be on its way to the disk."""
        self._done = asyncio.Event()
        """Set and replaced after each evaluation."""
        self.suspect: Suspect | None = None
        """The update that may be to blame, if the model has diverged."""
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="edgeflock-evaluation")
        self._judge()

    @property
    def has_data(self) -> bool:
        """Whether there are data to evaluate on, here or on devices."""
        return self._evaluate is not None or self._on_devices

    @property
    def state(self) -> RunState:
        if self.divergence is not None:
            return "diverged"
        return "finished" if self.finished else "training"

    @property
    def divergence(self) -> str | None:
        """Why no update is taken any more, and the remedy, if the model has diverged."""
        reason = self._engine.published.diverged
        return None if reason is None else reason + blame(self.suspect)

    @property
    def end_reason(self) -> str | None:
        """Why no more updates are taken: the model has diverged, or the run is complete."""
        return self.divergence or self._engine.published.end_reason

    @property
    def finished(self) -> bool:
        """Whether the run is complete and its last version evaluated."""
        seen, published = self.history[-1].version if self.history else -1, self._engine.published
        return published.complete and (not self.has_data or published.version in (seen, self.failed_at))

    async def wait_for_best(self) -> None:
        """Wait until the last version of a complete run is evaluated, and its best model saved."""
        while self._engine.published.complete and (self._is_saving or not self.finished):
            await self._done.wait()

    async def run(self) -> None:
        """Evaluate at the interval, until cancelled."""
        while True:
            evaluation = await self._measure()
            if evaluation is not None:
                self._is_saving = True
                if self.history:  # classes of all evaluations would fill the memory
                    self.history[-1] = self.history[-1]._replace(classes=())
                self.history.append(evaluation)
                self._on_evaluation(evaluation)
                await self._writer.call(self._judge)
                if self._engine.steering.is_best(evaluation):
                    await asyncio.to_thread(self._save_best, self._measured, evaluation)
                self._is_saving = False
            done, self._done = self._done, asyncio.Event()
            done.set()
            await self.record(evaluation)
            self._writer.wake()
            # The last version of a run is evaluated right away.
            last = self._engine.published.complete and evaluation is not None and not self.finished
            await asyncio.sleep(0 if last else self._every)

    async def close(self) -> None:
        """Wait for a running evaluation, and end its thread."""
        await asyncio.to_thread(self._thread.shutdown, cancel_futures=True)

    def _judge(self) -> None:
        """Stop the run if its model has diverged. The engine is at rest."""
        self.suspect = None
        if has_diverged(self.history):
            last = self.history[-1].version
            good, reason = describe_divergence(self.history, self._engine.parameters.included_version)
            self.suspect = self._find_suspect(good, last)
            self._engine.steering.stop_diverged(last, reason)

    async def record(self, evaluation: Evaluation | None = None) -> None:
        """Journal an evaluation and the traffic of every device so far."""
        traffic, total = self._registry.traffic(), self._total.ingress + self._total.egress
        # People should drop a single device that stands out: a lower rate does not help.
        may_recover = self.suspect is None or not self.suspect.is_outlier
        recovery = await self._writer.call(
            lambda: self._engine.steering.record(
                evaluation, traffic, time.time(), total, may_recover=may_recover
            )
        )
        if recovery is not None:
            self._on_recovery(recovery)

    async def _measure(self) -> Evaluation | None:
        """Return the current version's evaluation; None if it already has one, or if it fails."""
        seen = self.history[-1].version if self.history else None
        if not self.has_data or self._engine.published.version in (seen, self.failed_at):
            return None
        version, theta = await self._writer.call(self._engine.result)
        ingress, egress = self._total.ingress, self._total.egress
        own = self._own_evaluations()
        if self._evaluate is None and "loss" not in own:
            self.failed_at = version  # no device has evaluated a model yet
            return None
        try:
            scores = await asyncio.get_running_loop().run_in_executor(
                self._thread, self._scores_with, theta, own
            )
        except Exception:  # a user's module may raise anything; training continues
            log.exception("the evaluation of version %d failed", version)
            self.failed_at = version
            self._on_evaluation(None)
            return None
        self.failed_at, self._measured = None, theta
        loss = scores.loss if math.isfinite(scores.loss) else None
        return Evaluation(version, time.time(), loss, scores.accuracy, ingress, egress, *scores[2:])

    def _scores_with(self, theta: NDArray[np.float32], own: Mapping[str, float]) -> ModelScores:
        """Return the scores on held-out data, or else the devices' `own`, which are added as metrics."""
        if self._evaluate is None:
            scores = ModelScores(own["loss"], own.get("accuracy"))
        else:
            scores = self._evaluate(theta)
        named = {f"on_devices.{name}": value for name, value in own.items()}
        return scores._replace(metrics={**scores.metrics, **named})

    def _own_evaluations(self) -> Mapping[str, float]:
        """Return the combined evaluations of the devices; empty if there are none."""
        if not self._on_devices:
            return {}
        telemetry = (device.statistics.telemetry for device in self._registry.devices.values())
        return combine_evaluations(telemetry) or {}

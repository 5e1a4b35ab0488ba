"""Requests of evaluations, operators and hosts to a run, between two groups of updates.

They end it, change its learning rate, keep its model, or roll it back. Each change is durable before it is
published.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgeflock.server.descent import Parameters
from edgeflock.server.engine.log import Log
from edgeflock.server.engine.steering.course import RunLifecycle
from edgeflock.server.engine.steering.judging import EvaluationJudge
from edgeflock.server.engine.steering.snapshots import Snapshots
from edgeflock.server.publication import Outlet
from edgeflock.shared.errors import BaseExpired, ConfigError, Refused, RunComplete, RunDiverged
from edgeflock.shared.protocol.frames import Evaluation


class Recovery(NamedTuple):
    """A recovery: the model had lost what it had learned. It has gone back, with a lower learning rate."""

    loss: float | None
    """The loss of the evaluation that caused the recovery; None: it was no number."""
    restored: int
    """The version whose model is restored, as"""
    version: int
    previous_rate: float
    rate: float
    """The learning rates before the recovery and from `version` on."""

    def __str__(self) -> str:
        loss = "no number" if self.loss is None else f"{self.loss:.4g}"
        return (
            f"the loss has risen to {loss}, so the model has lost what it had learned: version "
            f"{self.version:,} is the model of version {self.restored:,}, and the learning rate falls from "
            f"{self.previous_rate:g} to {self.rate:g} (run.recover = false: the server changes neither)"
        )


class Steering:
    """The steering of one run."""

    def __init__(
        self,
        log: Log,
        parameters: Parameters,
        course: RunLifecycle,
        snapshots: Snapshots,
        outlet: Outlet,
        judge: EvaluationJudge,
        learning_rate: float,
        past: Callable[[int], Parameters] | None,
        discard_held: Callable[[Refused], None],
    ) -> None:
        """`learning_rate` is the configured one.

        `past` returns the parameters of an earlier version, or raises ConfigError. `discard_held` drops
        updates that wait for others, for a reason.
        """
        self._log, self._parameters = log, parameters
        self._course, self._snapshots, self._outlet = course, snapshots, outlet
        self._judge, self._learning_rate = judge, learning_rate
        self._past = past
        self._discard_held = discard_held

    def record(
        self,
        evaluation: Evaluation | None,
        traffic: Iterable[tuple[int, int, int]],
        now: float = 0.0,
        total: int = 0,
        *,
        may_recover: bool = False,
    ) -> Recovery | None:
        """Put an evaluation and each device's (device, ingress, egress) into the journal, and act on it.

        The run may end, its learning rate fall. Without an evaluation, `now` (the time as updates have it)
        and `total` (bytes so far) decide.

        If the model has lost what it had learned, it may go back, and the learning rate is halved. Returns
        this recovery.
        """
        if evaluation is not None:
            self._log.add_evaluation(evaluation)
        for device, ingress, egress in traffic:
            self._log.add_account(device, ingress, egress)
        rate = recovery = None
        if evaluation is not None:
            now, total = evaluation.time, evaluation.ingress + evaluation.egress
            self._judge.take(evaluation)
        end_reason = self._judge.end_reason(self._parameters.start_time, now, total)
        if evaluation is not None and may_recover and end_reason is None and self._course.end_reason is None:
            recovery = self._recover(evaluation)
        if evaluation is not None and recovery is None:
            rate = self._judge.lowered_rate(self._parameters.regime.learning_rate)
        if rate is not None:  # in one transaction with the evaluation that says so
            self.adjust(rate, self._learning_rate, "plateau")
        elif recovery is None:
            self._log.commit()
        if end_reason is not None:
            self.end(end_reason)
        return recovery

    def _recover(self, evaluation: Evaluation) -> Recovery | None:
        """If what was learned is lost, go back to the best model, with half the rate.

        Go back to the first model if the journal cannot make the best one again. One transaction with what
        was written before.
        """
        parameters = self._parameters
        before = parameters.regime.learning_rate
        wanted = self._judge.recovery(before)
        if wanted is None or self._past is None:
            return None
        version, rate = wanted
        for good in (parameters.included_version(version), 0):
            with suppress(ConfigError):
                past = self._past(good)
                break
        else:
            return None
        of = past.version
        self._log.add_adjustment(parameters.version, self._learning_rate, rate)
        self._judge.record_rate_change(parameters.version)
        parameters.regime = replace(parameters.regime, learning_rate=rate)
        self._go_back(past, evaluation.time)
        return Recovery(evaluation.loss, of, parameters.version, before, rate)

    def is_best(self, evaluation: Evaluation) -> bool:
        """Whether `evaluation` is better than all that were recorded."""
        return self._judge.is_best(evaluation)

    def end(self, reason: str) -> None:
        """End the run, unless it is over already. Devices that send updates get the reason."""
        if self._course.end_reason is None:
            self._course.end(reason)
            self._discard_held(RunComplete(f"the run is over: {reason}"))
            self._course.publish()

    def checkpoint(self) -> int:
        """Put a snapshot into the journal, so that a restart replays nothing before this version."""
        self._snapshots.take()
        self._log.commit()
        return self._parameters.version

    def adjust(self, learning_rate: float, configured: float, reason: str = "operator") -> int:
        """Use `learning_rate` from the returned version on, in the open round too.

        The settings say `configured`. `reason` is for the journal. The new regime begins with a snapshot: see
        ledger/recovery.py. It needs nothing else of the past, since only the rate changes.
        """
        version, regime = self._parameters.version, self._parameters.regime
        regime = replace(regime, learning_rate=learning_rate)
        self._snapshots.take()
        self._log.add_regime(version, regime, reason)
        self._log.add_adjustment(version, configured, learning_rate)
        self._log.commit()
        self._parameters.regime = regime
        self._judge.record_rate_change(version)
        self._course.publish()
        return version

    def set_node_count(self, nodes: int) -> None:
        """Set the number of nodes that train at a time from the next version on (descent/method.py).

        This begins a new regime, as in `adjust`.
        """
        if nodes != self._parameters.regime.method.nodes:
            self._snapshots.take()
            self._parameters.set_node_count(nodes)
            self._log.add_regime(self._parameters.version, self._parameters.regime, "nodes")
            self._log.commit()

    def stop_diverged(self, version: int, reason: str) -> None:
        """Stop taking updates because the model of `version` has diverged, until `roll_back`.

        Does nothing if a rollback came after that version. `reason` is for devices and people.
        """
        if version >= self._log.last_rollback():
            self._course.mark_diverged(reason)
            self._discard_held(RunDiverged(reason))
            self._course.publish()

    def model_at(self, version: int) -> tuple[int, NDArray[np.float32]]:
        """Return (version, a copy of its model to use): the averaged one if the run keeps one.

        Within a round its start is used. It takes as long as the replay of up to `run.snapshot_every`
        updates. Raises ConfigError if there is no such version, or if it cannot be made again.
        """
        past = self._parameters if version == self._parameters.version else self._earlier(version)
        return past.version, (past.theta if past.average is None else past.average).copy()

    def roll_back(self, to: int, now: float) -> tuple[int, int]:
        """Go on from the model of version `to`, as the next version: later updates do not count.

        Within a round its start is used. Returns (the restored version, the new version).

        Versions, sequence numbers and receipts go on as if nothing had happened. `now` is in Unix seconds.
        Raises ConfigError if there is no such version, or if it cannot be made again.
        """
        past = self._earlier(to)
        of = past.version
        self._go_back(past, now)
        return of, self._parameters.version

    def _earlier(self, version: int) -> Parameters:
        if self._past is None:
            raise ConfigError("this run keeps no earlier versions of its model")
        return self._past(version)

    def _go_back(self, past: Parameters, now: float) -> None:
        """Go back to the model of `past`, in one transaction with what was written before."""
        parameters = self._parameters
        self._log.add_rollback(
            parameters.version + 1, past.version, parameters.regime, past.theta, past.average,
            past.packed_memory(), now,
        )  # fmt: skip
        parameters.go_back(past.theta, past.average, past.packed_memory())
        self._outlet.reset()
        self._log.commit()
        self._snapshots.restart_interval()
        self._course.resume()
        self._discard_held(BaseExpired(f"the model was rolled back to version {past.version}; pull again"))
        self._course.publish()

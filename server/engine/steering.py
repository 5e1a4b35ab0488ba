"""What evaluations, operators and hosts change of a run, between two groups of updates.

They end the run, change its learning rate, take a snapshot of its model, or roll it back. Each change is
durable before it is published.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgeflock.server.descent import Parameters
from edgeflock.server.engine.judging import EvaluationJudge, RunLifecycle
from edgeflock.server.journal import Journal
from edgeflock.server.publication import Outlet
from edgeflock.shared.errors import BaseExpired, ConfigError, Refused, RunComplete, RunDiverged
from edgeflock.shared.protocol.frames import Evaluation


class Snapshots:
    def __init__(self, journal: Journal, parameters: Parameters, every: int, *, keep_updates: bool) -> None:
        """A snapshot is due each `every` versions.

        Unless `keep_updates`, it drops the records, but not the facts, of updates before the window.
        """
        self._journal, self._parameters = journal, parameters
        self._every, self._keep_updates = every, keep_updates
        self.restart_interval()

    def restart_interval(self) -> None:
        """Start a new interval: the journal has a snapshot of the present version."""
        self._next = self._parameters.version + self._every

    def take_if_due(self) -> None:
        if self._parameters.version >= self._next:
            self.take()

    def take(self) -> None:
        """Write a snapshot of the present version. It is durable with the journal's next commit."""
        parameters, version = self._parameters, self._parameters.version
        self.restart_interval()
        self._journal.add_snapshot(version, parameters.theta, parameters.average, parameters.packed_memory())
        if not self._keep_updates:
            self._journal.drop_frames(version - parameters.regime.window)


class Recovery(NamedTuple):
    """A recovery: the model had lost what it had learned. It has gone back, with a lower learning rate."""

    loss: float | None
    """The loss of the evaluation that caused the recovery; None: it was no number."""
    restored: int
    """The version whose model is restored."""
    version: int
    """The new version, which has this model."""
    previous_rate: float
    rate: float
    """The learning rate from `version` on."""

    def __str__(self) -> str:
        loss = "no number" if self.loss is None else f"{self.loss:.4g}"
        return (
            f"the loss has risen to {loss}, so the model has lost what it had learned: version "
            f"{self.version:,} is the model of version {self.restored:,}, and the learning rate falls from "
            f"{self.previous_rate:g} to {self.rate:g} (evaluation.recover = false: it changes neither)"
        )


class Steering:
    def __init__(
        self,
        journal: Journal,
        parameters: Parameters,
        lifecycle: RunLifecycle,
        snapshots: Snapshots,
        outlet: Outlet,
        judge: EvaluationJudge,
        learning_rate: float,
        past: Callable[[int], Parameters] | None,
        discard_held: Callable[[Refused], None],
    ) -> None:
        """`learning_rate` is the configured one.

        `past` returns the parameters of an earlier version, or raises ConfigError. `discard_held` refuses all
        held updates with the given refusal.
        """
        self._journal, self._parameters = journal, parameters
        self._lifecycle, self._snapshots, self._outlet = lifecycle, snapshots, outlet
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
        """Record an evaluation and the traffic, and end the run if they say so.

        `traffic` has each device's (device, ingress, egress) in bytes. Without an evaluation, `now` (Unix
        seconds) and `total` (bytes of all devices) decide whether the run ends.

        With `may_recover`, a model that has lost what it had learned goes back, and the learning rate is
        halved. Returns this recovery; None: there was none.
        """
        if evaluation is not None:
            self._journal.add_evaluation(evaluation)
        for device, ingress, egress in traffic:
            self._journal.add_account(device, ingress, egress)
        recovery = None
        if evaluation is not None:
            now, total = evaluation.time, evaluation.ingress + evaluation.egress
            self._judge.take(evaluation)
        end_reason = self._judge.end_reason(self._parameters.start_time, now, total)
        if evaluation and may_recover and end_reason is None and self._lifecycle.end_reason is None:
            recovery = self._recover(evaluation)
        if recovery is None:
            self._journal.commit()
        if end_reason is not None:
            self.end(end_reason)
        return recovery

    def _recover(self, evaluation: Evaluation) -> Recovery | None:
        """If the model has lost what it had learned, go back to the best one, with half the learning rate.

        If the journal cannot make the best model again, go back to the first one. It is one transaction with
        the writes of `record`.
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
        restored = past.version
        self._journal.add_adjustment(parameters.version, self._learning_rate, rate)
        self._judge.record_rate_change(parameters.version)
        parameters.regime = replace(parameters.regime, learning_rate=rate)
        self._go_back(past, evaluation.time)
        return Recovery(evaluation.loss, restored, parameters.version, before, rate)

    def is_best(self, evaluation: Evaluation) -> bool:
        """Whether `evaluation` is better than all that were recorded before."""
        return self._judge.is_best(evaluation)

    def end(self, reason: str) -> None:
        """End the run, unless it is over already. Devices that send updates get the reason."""
        if self._lifecycle.end_reason is None:
            self._lifecycle.end(reason)
            self._discard_held(RunComplete(f"the run is over: {reason}"))
            self._lifecycle.publish()

    def checkpoint(self) -> int:
        """Put a snapshot into the journal, and return its version. A restart replays only later updates."""
        self._snapshots.take()
        self._journal.commit()
        return self._parameters.version

    def adjust(self, learning_rate: float, configured: float) -> int:
        """Use `learning_rate` from the returned version on, in the open round too.

        `configured` is the rate in the settings. The journal keeps it. Each regime begins with a snapshot,
        from which a replay starts (ledger/recovery.py).
        """
        version, regime = self._parameters.version, self._parameters.regime
        regime = replace(regime, learning_rate=learning_rate)
        self._snapshots.take()
        self._journal.add_regime(version, regime, "operator")
        self._journal.add_adjustment(version, configured, learning_rate)
        self._journal.commit()
        self._parameters.regime = regime
        self._judge.record_rate_change(version)
        self._lifecycle.publish()
        return version

    def set_node_count(self, nodes: int) -> None:
        """Set the number of nodes that train at a time from the next version on (descent/regime.py).

        This begins a new regime, as in `adjust`.
        """
        if nodes != self._parameters.regime.method.nodes:
            self._snapshots.take()
            self._parameters.set_node_count(nodes)
            self._journal.add_regime(self._parameters.version, self._parameters.regime, "nodes")
            self._journal.commit()

    def end_tree(self) -> None:
        """End the tree of a private run's noise before its last step (descent/noise.py).

        This begins a new regime, as in `adjust`.
        """
        self._snapshots.take()
        self._parameters.end_tree()
        self._journal.add_regime(self._parameters.version, self._parameters.regime, "tree")
        self._journal.commit()

    def stop_diverged(self, version: int, reason: str) -> None:
        """Take no updates until `roll_back`, because the model of `version` has diverged.

        Does nothing if a rollback came after that version. `reason` is for devices and people.
        """
        if version >= self._journal.last_rollback():
            self._lifecycle.mark_diverged(reason)
            self._discard_held(RunDiverged(reason))
            self._lifecycle.publish()

    def model_at(self, version: int) -> tuple[int, NDArray[np.float32]]:
        """Return (version, a copy of its averaged model, or of its theta if the run keeps no average).

        For a version inside a round it is the version before the round. It replays up to
        `journal.snapshot_every` updates. Raises ConfigError if the journal cannot make the version again.
        """
        past = self._parameters if version == self._parameters.version else self._rebuild(version)
        return past.version, (past.theta if past.average is None else past.average).copy()

    def roll_back(self, target: int, now: float) -> tuple[int, int]:
        """Make the model of version `target` the next version. Updates since `target` no longer count.

        Returns (the restored version, the new version). Inside a round, the version before it is restored.

        Version and sequence numbers continue to count up, and receipts stay valid. `now` is in Unix seconds.
        Raises ConfigError if the journal cannot make the version again.
        """
        past = self._rebuild(target)
        restored = past.version
        self._go_back(past, now)
        return restored, self._parameters.version

    def _rebuild(self, version: int) -> Parameters:
        if self._past is None:
            raise ConfigError("this run keeps no earlier versions of its model")
        return self._past(version)

    def _go_back(self, past: Parameters, now: float) -> None:
        """Go back to the model of `past`, and commit this together with the writes before it."""
        parameters = self._parameters
        if parameters.noise is not None:
            parameters.end_tree()
        memory = parameters.memory_of(past)
        self._journal.add_rollback(
            parameters.version + 1, past.version, parameters.regime, past.theta, past.average, memory, now
        )
        parameters.go_back(past.theta, past.average, memory)
        self._outlet.reset()
        self._journal.commit()
        self._snapshots.restart_interval()
        self._lifecycle.resume()
        self._discard_held(BaseExpired(f"the model was rolled back to version {past.version}; pull again"))
        self._lifecycle.publish()

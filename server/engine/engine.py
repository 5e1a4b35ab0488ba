"""The single writer of the model: the whole path of an update, from the record to the receipt.

    admit (decode, check) -> defend -> coordinate -> journal -> apply (weigh, descend) -> commit -> publish

Synchronous and free of sockets and clocks, so that a server, an emulated fleet and a test run the same code.
Nothing an Engine hands out is ahead of the disk: a group of updates is answered once all of it is durable,
and a model is published only between groups.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from edgeflock.server.coordination import Apply, Coordinator, Gate, Push, Tasks, Turns
from edgeflock.server.defence import Decision, Guard, Trusted
from edgeflock.server.descent import Gathered, Parameters, Step, Where
from edgeflock.server.engine.admission import admit
from edgeflock.server.engine.gatekeeper import Gatekeeper
from edgeflock.server.engine.judging import Criteria, Judge
from edgeflock.server.engine.limits import Bounds
from edgeflock.server.engine.log import LastReceipt, Log
from edgeflock.server.engine.outcomes import Accepted, Answer, Published, Staged
from edgeflock.server.engine.welcome import worth_loading
from edgeflock.server.publication import Exact, Publication, Touched, Touches
from edgeflock.shared.errors import (
    BadSequence,
    BaseExpired,
    ConfigError,
    Refused,
    RunComplete,
    RunDiverged,
    SequenceAhead,
    StepTooLarge,
    Superseded,
)
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.model.start import Start
from edgeflock.shared.model.weights import Weights
from edgeflock.shared.protocol.frames import Evaluation
from edgeflock.shared.protocol.messages import Model, Receipt

_QUICK = 100_000
"""Entries that are decoded and applied in about two milliseconds."""

SEQUENCE_WINDOW = 1 << 16
"""How far a device's next number may be above the last accepted one. Numbers are spent by refused updates,
too, of which nobody has as many in a row; but at the largest number a name could never push again."""


def _nobody(push: Push, step: Step) -> None:
    pass


class Engine:
    """Admits, journals and applies updates; publishes the model."""

    def __init__(
        self,
        log: Log,
        layout: Layout,
        parameters: Parameters,
        coordinator: Coordinator,
        bounds: Bounds | None = None,
        publication: Publication | None = None,
        start: Start | None = None,
        past: Callable[[int], Parameters] | None = None,
        gate: Gate | None = None,
        judge: Judge | None = None,
        guard: Guard | None = None,
    ) -> None:
        """`parameters` are as the log has them. `publication` says what devices are sent of theta: exactly
        what it is, if None. `start` makes version 0. `past` has the parameters of an earlier version, or
        raises ConfigError. `gate` says who is answered later. `judge` knows the evaluations there are.
        `guard` says what part of an update counts: all of it, if None.
        """
        self.layout = layout
        self.start = start
        self.parameters = parameters
        self._coordinator = coordinator
        self._log = log
        self._bounds = bounds or Bounds()
        self._publication = publication or Exact(layout, parameters.version)
        self.offered: Weights | None = None
        """What devices may load the model at version 0 from."""
        self._whole = 0
        """The bytes of a whole model, if there is that."""
        self._last = log.last_receipts()
        self._next_snapshot = parameters.version + self._bounds.snapshot_every
        self.guard = guard
        self._decided: dict[Push, Decision] = {}
        """What the guard has said of updates that are not in the model yet."""
        self._again: dict[Push, Push] = {}
        """Held updates that were sent again -> the last time."""
        self._past = past
        self._diverged: str | None = None
        self._given_up: list[tuple[Push, Answer]] = []
        """Held updates that will not apply, until the next `stage`."""
        self._made: list[tuple[Push, Accepted]] = []
        """What the present `stage` has put into the model."""
        self._gate = Gatekeeper(gate, self._ended)
        self._abandoned = False
        self._judge = judge or Judge(Criteria())
        self._touches: Touches | None = None
        """If somebody follows the model."""
        self.observe: Callable[[Push, Step], None] = _nobody
        """Sees every update that was admitted, and what it comes to. Nothing depends on it."""
        self._over: str | None = self._judge.ended(0.0, 0)
        """Why the run is over before it has its updates."""
        self._publish()

    # Updates

    def commit(self, pushes: Sequence[Push], now: float = 0.0) -> list[tuple[Push, Answer]]:
        """Take a group of updates: what came of it, and of those that were held, once that is durable.

        `now` is in seconds of any one clock.
        """
        return self.publish(self.stage(pushes, now))

    def stage(self, pushes: Sequence[Push], now: float = 0.0, *, hold: bool = False) -> Staged:
        """The first half of `commit`, in memory. Without any push it only looks what time it is.

        With `hold` whatever is held stays so.
        """
        settled, self._given_up = self._given_up, []
        self._made = []
        for push in pushes:
            if self._gate.may_go_on(push.device):
                self._settle(push, now, settled)
            else:
                self._gate.hold_back(push, settled)
        due = None if hold else self._coordinator.tick(now)
        if due is not None:
            self._apply(due, settled)
        settled = self._gate.let_through(
            settled,
            lambda: self.parameters.version,
            lambda push, more: self._settle(push, now, more),
            hold=hold,
        )
        self.parameters.flush()
        together = 0 if due is None else len(due.updates)
        return Staged(settled, together, self._made, answered_later=self._gate.holds)

    def publish(self, staged: Staged) -> list[tuple[Push, Answer]]:
        """The second half: wait for the disk, then put the model into the receipts that asked for it."""
        if self.parameters.version >= self._next_snapshot:
            self._snapshot()
        self._log.commit()
        self._publish()
        return [(push, self._with_model(push, answer)) for push, answer in staged.settled]

    def is_quick(self, pushes: Sequence[Push]) -> bool:
        """Whether `stage` takes no more than a few milliseconds for this group."""
        if not self.parameters.is_here:  # who has them may have to be waited for
            return False
        if self.parameters.regime.rounds:  # the end of one goes through all parameters
            return not pushes and not self.held
        return sum(push.update.count for push in pushes) <= _QUICK and all(
            push.update.sequence >= self.last_sequence(push.device) for push in pushes
        )

    def arrived(self, device: int) -> None:
        """A device is there: others may have to wait for it. Told again, it changes nothing."""
        self._coordinator.arrived(device)
        self._gate.arrived(device, self.parameters.version)

    def left(self, device: int) -> None:
        """It is there no longer; the next `stage` says what comes of that."""
        self._coordinator.left(device)
        self._gate.left(device)

    @property
    def held(self) -> Mapping[int, Push]:
        """device -> its update that waits for others."""
        return self._coordinator.held

    @property
    def tasks(self) -> Tasks | None:
        """Who computes what, in a run that says so."""
        return self._coordinator.tasks

    @property
    def turns(self) -> Turns | None:
        """Who takes part, in a run where not all do at a time."""
        return self._coordinator.turns

    @property
    def due(self) -> float | None:
        """When `stage` has something to do although nothing came, by its clock; None: never."""
        return self._coordinator.due

    def _ended(self) -> bool:
        """Whether no more updates are taken."""
        return self._complete() is not None or self._diverged is not None

    def _complete(self) -> str | None:
        """Why the run is over, if it is."""
        if 0 < self._bounds.updates <= self.parameters.version:
            return f"it has its {self._bounds.updates} updates"
        return self._over

    def _settle(self, push: Push, now: float, settled: list[tuple[Push, Answer]]) -> None:
        """`_offer`, and a refusal is an answer as well."""
        try:
            self._offer(push, now, settled)
        except Refused as refusal:
            settled.append((push, refusal))

    def _offer(self, push: Push, now: float, settled: list[tuple[Push, Answer]]) -> None:
        """The path of one update, up to the coordinator. Raises Refused; then it has left no trace."""
        update, parameters = push.update, self.parameters
        last = self.last_sequence(push.device)
        if update.sequence <= last:
            settled.append((push, self._receipt_again(push)))
            return
        if update.sequence > last + SEQUENCE_WINDOW:
            raise SequenceAhead(
                f"sequence {update.sequence} is more than {SEQUENCE_WINDOW} above {last}, the last accepted; "
                f"go on with {last + 1}"
            )
        if (why := self._complete()) is not None:
            raise RunComplete(f"the run is over: {why}")
        if self._diverged is not None:
            raise RunDiverged(self._diverged)
        if (held := self._coordinator.waiting(push)) is not None:
            settled.append((self._sent_again(held, push), Superseded("the device sent its update again")))
            return
        step = admit(
            update,
            self.layout,
            oldest=parameters.oldest,
            version=parameters.version,
            samples=self._bounds.samples,
            fewest=self._bounds.fewest,
            expansion_bytes=self._bounds.expansion_bytes,
            decoded=push.step,
        )
        step = replace(step, time=push.time)
        sent, decision = step, None
        if self.guard is not None:
            decision = self.guard.decide(push.device, step, parameters.told_weight(step))
            step = step.part(decision.share)
        most = self._bounds.parameter
        if not parameters.bears(step, most, self._coordinator.gathered):
            raise StepTooLarge(
                f"update {update.sequence}, from version {update.base}, would take a parameter beyond "
                f"{most:g} (limits.parameter), or to no number; check the device's data, or lower "
                "coordination.learning_rate"
            )
        verdict = self._coordinator.offer(push, step, now)
        if decision is not None:
            self._decided[push] = decision
        self.observe(push, sent)
        if verdict is not None:
            self._apply(verdict, settled)

    def _apply(self, verdict: Apply, settled: list[tuple[Push, Answer]]) -> None:
        """Into the journal and into the model; `settled` gets the receipts."""
        before, most = self.parameters.version, self._bounds.parameter
        if isinstance(verdict.change, Gathered) and not self.parameters.bears_end(verdict.change, most):
            # Each contribution was looked at, but the learning rate may have been raised since.
            refusal = StepTooLarge(
                f"the round from version {before} would take a parameter beyond {most:g} (limits.parameter)"
            )
            settled += [(self._again.pop(push, push), refusal) for push, _ in verdict.updates]
            self._decided.clear()
            return
        for version, (push, touched) in enumerate(verdict.updates, before + 1):
            update, share = push.update, self._took(push)
            self._log.add_update(
                version,
                push.device,
                update.sequence,
                push.time,
                update.loss,
                update.samples,
                push.frame,
                share,
            )
            self._last[push.device] = LastReceipt(update.sequence, version)
            self._gate.made(push.device, version)
            self._changed(self.parameters.changes(touched))
            accepted = Accepted(Receipt(update.sequence, version, None), before - update.base, share)
            settled.append((self._again.pop(push, push) if self._again else push, accepted))
            self._made.append((push, accepted))
        self.parameters.apply(verdict.change)

    def _changed(self, touched: Where) -> None:
        """By the next version."""
        self._publication.add(touched)
        if self._touches is not None:
            self._touches.add(touched)

    def _took(self, push: Push) -> float:
        """What part of an update counts that makes a version now."""
        decision = self._decided.pop(push, None)
        if self.guard is None or decision is None:
            return 1.0
        self.guard.took(push.device, decision)
        return decision.share

    def last_sequence(self, device: int) -> int:
        """The highest sequence number accepted from a device, 0 if none was."""
        last = self._last.get(device)
        return last.sequence if last else 0

    def _receipt_again(self, push: Push) -> Accepted:
        """A resent update gets the receipt that it got, or would have got, the first time."""
        sequence = push.update.sequence
        last = self._last.get(push.device)
        if last is not None and sequence == last.sequence:
            version = last.version
        elif (earlier := self._log.receipt(push.device, sequence)) is not None:
            version = earlier
        else:
            raise BadSequence(
                f"sequence {sequence} was never accepted and {self.last_sequence(push.device)} already is; "
                "go on above it"
            )
        staleness = 0 if self.parameters.regime.rounds else version - 1 - push.update.base
        return Accepted(Receipt(sequence, version, None), staleness)

    def _sent_again(self, held: Push, push: Push) -> Push:
        """A device that lost its connection sends its held update again, and waits for its answer.

        Whatever it holds now, what was admitted counts. Returns the push that nobody waits for any more.
        """
        earlier, self._again[held] = self._again.get(held, held), push
        return earlier

    # What may be seen

    def model(self, base: int | None, held: int = 0, device: int = 0, part: slice | None = None) -> Model:
        """The current model, or a `part` of its parameters, as little of it as `device` needs, which holds
        `base` and says `held` of it.
        """
        return self._publication.model(self.parameters.entries, base, held, device, part)

    def follow(self, *, on: bool = True) -> None:
        """Keep what changes for `changes`, from now on; or no longer."""
        self._touches = Touches(self.layout.parameters.size) if on else None

    def changes(self) -> Touched | None:
        """What of theta has changed since this was asked last, durable; None: nothing."""
        return None if self._touches is None else self._touches.take(self.parameters.entries)

    def offer(self, theta: NDArray[np.float32], keep: Callable[[Model], Weights]) -> None:
        """Devices may load `theta`, the model at version 0, from what `keep` puts the record of it into."""
        model = self._publication.offer(theta)
        self.offered, self._whole = keep(model), len(model.values)

    def weights(self) -> Weights | None:
        """What a device that joins may load, and whether that is shorter than the current model, whole."""
        if self.offered is None:
            return None
        return worth_loading(self.offered, self._whole, self._publication, self.parameters.entries)

    def theta(self) -> tuple[int, NDArray[np.float32]]:
        """(version, a copy of theta), durable."""
        return self.parameters.version, self.parameters.theta.copy()

    def result(self) -> tuple[int, NDArray[np.float32]]:
        """(version, a copy of the model to use: the average if the run keeps one, else theta), durable."""
        average = self.parameters.average
        return self.parameters.version, (self.parameters.theta if average is None else average).copy()

    def _with_model(self, push: Push, answer: Answer) -> Answer:
        if isinstance(answer, Refused) or not push.update.pull or not self._goes_on(push.device):
            return answer
        model = self.model(push.update.base, push.update.held, push.device)
        receipt = answer.receipt
        return Accepted(Receipt(receipt.sequence, receipt.version, model), answer.staleness)

    def _goes_on(self, device: int) -> bool:
        """Whether the device may have the model at once; otherwise it asks for it, and waits."""
        turns = self.turns
        return turns is None or (device in turns.members and self._complete() is None)

    def _publish(self) -> None:
        """All there is of memory is on the disk now."""
        self.published = Published(
            self.parameters.version, self.parameters.regime.learning_rate, self._complete(), self._diverged
        )

    # What operators and hosts ask for

    def device_id(self, name: str) -> int:
        """The number that stands for a device in the journal."""
        return self._log.device_id(name)

    def record(
        self,
        evaluation: Evaluation | None,
        traffic: Iterable[tuple[int, int, int]],
        now: float = 0.0,
        total: int = 0,
    ) -> None:
        """Put an evaluation and the (device, ingress, egress) of each device into the journal, and do as it
        says: the run may end, its learning rate fall. Without one `now` (as updates have it) and the `total`
        of bytes so far say so.
        """
        if evaluation is not None:
            self._log.add_evaluation(evaluation)
        for device, ingress, egress in traffic:
            self._log.add_account(device, ingress, egress)
        self._log.commit()
        if evaluation is not None:
            now, total = evaluation.time, evaluation.ingress + evaluation.egress
            self._judge.take(evaluation)
            regime = self.parameters.regime
            rate = self._judge.lowered_rate(regime.learning_rate, self.parameters.version)
            if rate is not None:
                self.adjust(rate, self._bounds.learning_rate, "plateau")
        began = self.parameters.began
        over = self._judge.ended(0.0 if began is None else now - began, total)
        if over is not None:
            self.end(over)

    def end(self, why: str) -> None:
        """The run is over, as whoever sends updates is told; unless it is already."""
        if self._complete() is None:
            self._over = why
            self._give_up(RunComplete(f"the run is over: {why}"))
            self._publish()

    def is_best(self, evaluation: Evaluation) -> bool:
        """Whether it is better than all that were recorded."""
        return self._judge.is_best(evaluation)

    def trust(self, trusted: Trusted) -> None:
        """The guard goes by this gradient from now on."""
        assert self.guard is not None, "who has none wants no gradient"
        self.guard.trust(trusted)

    def pardon(self, device: int) -> bool:
        """The guard forgets what it knows of a device; whether it knew anything."""
        return self.guard is not None and self.guard.pardon(device)

    def checkpoint(self) -> int:
        """Put a snapshot of the version into the journal, so that a restart replays nothing until here."""
        self._snapshot()
        self._log.commit()
        return self.parameters.version

    def adjust(self, learning_rate: float, configured: float, why: str = "operator") -> int:
        """Descend by `learning_rate` from the returned version on, in the open round too, while the settings
        say `configured`; `why` is for the journal.

        A regime of its own begins with a snapshot: see ledger/recovery.py. Of the past nothing needs to be
        known anew, since only the rate changes.
        """
        version, regime = self.parameters.version, self.parameters.regime
        regime = replace(regime, learning_rate=learning_rate)
        self._snapshot()
        self._log.add_regime(version, regime, why)
        self._log.add_adjustment(version, configured, learning_rate)
        self._log.commit()
        self.parameters.regime = regime
        self._publish()
        return version

    def stop_diverged(self, version: int, why: str) -> None:
        """Take no more updates, since the model of `version` is no good: until `roll_back`, unless there was
        one since that version. `why` is for devices and people.
        """
        if version >= self._log.last_rollback():
            self._diverged = why
            self._give_up(RunDiverged(why))
            self._publish()

    def roll_back(self, to: int, now: float) -> tuple[int, int]:
        """Go on from the model of version `to`, as the next version: nothing made since counts. (The version
        that it is of, its own.) In the middle of a round there is no model, but where it started.

        Versions, sequence numbers and receipts go on as if nothing had happened. `now` is in Unix seconds.
        Raises ConfigError if there is no such version, or it cannot be made again.
        """
        if self._past is None:
            raise ConfigError("this run keeps no past that one could go back to")
        past, parameters = self._past(to), self.parameters
        self._log.add_rollback(
            parameters.version + 1, past.version, parameters.regime, past.theta, past.average,
            past.packed_memory(), now,
        )  # fmt: skip
        parameters.go_back(past.theta, past.average, past.packed_memory())
        self._publication.begin_again()
        if self._touches is not None:
            self._touches.begin_again()
        self._log.commit()
        self._next_snapshot = parameters.version + self._bounds.snapshot_every
        self._diverged = None
        self._give_up(BaseExpired(f"the model was rolled back to version {past.version}; pull again"))
        self._publish()
        return past.version, parameters.version

    def _give_up(self, why: Refused) -> None:
        """What is held will not apply; the next `stage` says so."""
        self._given_up += [(self._again.pop(push, push), why) for push in self._coordinator.give_up()]
        self._decided.clear()

    def close(self) -> None:
        """Leave a snapshot behind, so that the next start replays nothing, and close the journal."""
        self._publication.close()
        if not self._abandoned:
            self._snapshot()
            self._log.close()

    def abandon(self) -> None:
        """Let go of the journal, without what was not committed: memory may be ahead of it."""
        self._abandoned = True
        self._publication.close()
        self._log.abandon()

    def _snapshot(self) -> None:
        parameters, version = self.parameters, self.parameters.version
        self._next_snapshot = version + self._bounds.snapshot_every
        self._log.add_snapshot(version, parameters.theta, parameters.average, parameters.packed_memory())
        if not self._bounds.keep_updates:
            self._log.forget_frames(version - self.parameters.regime.window)

"""The single writer of the model: the whole path of an update, from the record to the receipt.

    admit (decode, check) -> defend -> coordinate -> apply (weigh, check) -> journal -> commit -> publish

The engine is synchronous and uses no sockets or clocks. So a server, an emulated fleet and a test run the
same code. It returns nothing that is ahead of the disk: a group of updates is answered when all of it is
durable. A model is published only between groups.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from edgeflock.server.coordination import Apply, Coordinator, Gate, Push
from edgeflock.server.defence import DefenceGuard
from edgeflock.server.descent import Gathered, Parameters, Step
from edgeflock.server.engine.admission import Gatekeeper, admit
from edgeflock.server.engine.eligibility import Eligibility
from edgeflock.server.engine.judging import Criteria, EvaluationJudge, RunLifecycle
from edgeflock.server.engine.labels import FleetLabels
from edgeflock.server.engine.limits import EngineLimits
from edgeflock.server.engine.moments import FleetMoments
from edgeflock.server.engine.outcomes import Accepted, Answer, Published, Receipts, Staged
from edgeflock.server.engine.screening import Screening
from edgeflock.server.engine.steering import Snapshots, Steering
from edgeflock.server.journal import Journal
from edgeflock.server.privacy import Participations, pack_summed
from edgeflock.server.publication import Exact, Outlet, Publication
from edgeflock.shared.errors import Refused, StepTooLarge, Superseded
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.model.start import Start
from edgeflock.shared.protocol.messages import Receipt, Update

_QUICK_ENTRIES = 100_000
"""Entries that are decoded and applied in about two milliseconds."""


def _ignore(push: Push, step: Step) -> None:
    pass


def _too_large(update: Update, limit: float, in_round: bool = False) -> StepTooLarge:
    beyond = f"would take a parameter beyond {limit:g} (limits.parameter)"
    if in_round:  # each update fitted, but the learning rate may have been raised since
        return StepTooLarge(f"the round from version {update.base} {beyond}")
    return StepTooLarge(
        f"update {update.sequence}, from version {update.base}, {beyond}, or to NaN; check the "
        "device's data, or lower coordination.learning_rate"
    )


class Engine:
    """Admits, journals and applies updates; publishes the model."""

    def __init__(
        self,
        journal: Journal,
        layout: Layout,
        parameters: Parameters,
        coordinator: Coordinator,
        limits: EngineLimits | None = None,
        publication: Publication | None = None,
        start: Start | None = None,
        past: Callable[[int], Parameters] | None = None,
        gate: Gate | None = None,
        judge: EvaluationJudge | None = None,
        guard: DefenceGuard | None = None,
        participations: Participations | None = None,
    ) -> None:
        """`parameters` has the state of the journal.

        `publication` encodes the models for devices; None: they get exactly theta. `start` makes version 0.
        `past` returns the parameters of an earlier version, or raises ConfigError. `gate` decides which
        devices wait for their answers. `judge` has taken the past evaluations. `guard` decides what share of
        an update counts; None: all of it. `participations` counts devices' updates in a private run.
        """
        self.layout = layout
        self.start = start
        self.parameters = parameters
        self._coordinator = coordinator
        self.tasks = coordinator.tasks
        """The assignment of tasks to devices; None in a run without tasks."""
        self.turns = coordinator.turns
        """The cohort; None in a run in which all devices take part at any time."""
        self._journal = journal
        self.device_id = journal.device_id
        """Returns the number of a device of a name."""
        self._limits = limits = limits or EngineLimits()
        self.outlet = Outlet(publication or Exact(layout, parameters.version), layout, parameters.store)
        self.receipts = Receipts(journal)
        judge = judge or EvaluationJudge(Criteria())
        past_end = judge.past_end_reason(parameters.start_time)
        if past_end is None and participations is not None:
            past_end = participations.end_reason(parameters.waiting)
        self._lifecycle = RunLifecycle(parameters, limits.updates, past_end)
        self.eligibility = Eligibility(parameters, self.receipts, self._lifecycle, self.turns, participations)
        """Which devices may take part now."""
        self._snapshots = Snapshots(
            journal, parameters, limits.snapshot_every, keep_updates=limits.keep_updates
        )
        self.steering = Steering(
            journal, parameters, self._lifecycle, self._snapshots, self.outlet, judge, limits.learning_rate,
            past, self._discard_held,
        )  # fmt: skip
        self.guard = guard
        self.screening = Screening(guard, parameters, past)
        self._moments = FleetMoments(layout.parameters)
        self._labels = FleetLabels()
        self._resent: dict[Push, Push] = {}
        """Held update that was sent again -> its last copy."""
        self._discarded: list[tuple[Push, Answer]] = []
        """Held updates that will not apply, and their answers, until the next `stage`."""
        self._applied: list[tuple[Push, Accepted]] = []
        """The updates that the current `stage` has put into the model."""
        self._gate = Gatekeeper(gate, self._lifecycle.is_open)
        self._abandoned = False
        self.observe: Callable[[Push, Step], None] = _ignore
        """Called with every admitted update and its decoded step, unless the server hides devices by noise.
        Nothing depends on it."""

    # Updates

    def commit(self, pushes: Sequence[Push], now: float = 0.0) -> list[tuple[Push, Answer]]:
        """Take a group of updates, and return the answers once they are durable.

        They include answers to updates that earlier groups left held. `now` is as in `stage`.
        """
        return self.publish(self.stage(pushes, now))

    def stage(self, pushes: Sequence[Push], now: float = 0.0, *, hold: bool = False) -> Staged:
        """The first half of `commit`, in memory. Without a push it only checks what is due at `now`.

        `now` is in seconds of `due`'s clock, not in Unix seconds. With `hold` no held update is released.
        """
        answers, self._discarded = self._discarded, []
        self._applied = []
        for push in pushes:
            if self._gate.may_continue(push.device):
                self._offer_or_refuse(push, now, answers)
            else:
                self._gate.defer(push, answers)
        due = None if hold else self._coordinator.tick(now)
        if due is not None:
            self._apply(due, answers)
        answers = self._gate.release(
            answers,
            lambda: self.parameters.version,
            lambda push, more: self._offer_or_refuse(push, now, more),
            hold=hold,
        )
        self.parameters.store.flush()
        released = 0 if due is None else len(due.updates)
        return Staged(answers, released, self._applied, has_waiting=self._gate.has_waiting)

    def publish(self, staged: Staged) -> list[tuple[Push, Answer]]:
        """The second half of `commit`: wait for the disk, then add the model to the receipts that need it."""
        self._snapshots.take_if_due()
        self._journal.commit()
        self._lifecycle.publish()
        if (reason := self.eligibility.end_reason()) is not None:
            self.steering.end(reason)
        elif self.eligibility.is_tree_stuck():
            self.steering.end_tree()
        return [(push, self._add_model(push, answer)) for push, answer in staged.answers]

    def is_quick(self, pushes: Sequence[Push]) -> bool:
        """Whether `stage` takes at most a few milliseconds for this group."""
        if not self.parameters.store.is_local:  # another process may have to answer
            return False
        if self.parameters.regime.rounds:  # the end of a round goes through all parameters
            return not pushes and not self.held_updates
        return sum(push.update.count for push in pushes) <= _QUICK_ENTRIES and all(
            push.update.sequence >= self.receipts.last_sequence(push.device) for push in pushes
        )

    def add_device(self, device: int) -> None:
        """A device has joined: others may have to wait for it. Idempotent."""
        self.eligibility.add_device(device)
        if self.eligibility.farewell(device) is None:
            self._coordinator.add_device(device)
        self._gate.add_device(device, self.parameters.version)

    def remove_device(self, device: int) -> None:
        """A device has left. The next `stage` returns the answers that follow from it."""
        self.eligibility.remove_device(device)
        self._coordinator.remove_device(device)
        self._gate.remove_device(device)

    @property
    def held_updates(self) -> Mapping[int, Push]:
        """Device -> its update that waits for others."""
        return self._coordinator.held_updates

    @property
    def due(self) -> float | None:
        """When to call `stage` even if no update arrives, in seconds of its `now`; None: never."""
        return self._coordinator.due

    def _offer_or_refuse(self, push: Push, now: float, answers: list[tuple[Push, Answer]]) -> None:
        """Call `_offer`. If it refuses the update, append the refusal to `answers`."""
        try:
            self._offer(push, now, answers)
        except Refused as refusal:
            self.eligibility.record_refusal(push.device, refusal)
            answers.append((push, refusal))

    def _offer(self, push: Push, now: float, answers: list[tuple[Push, Answer]]) -> None:
        """Check one update, and offer it to the coordinator. A Refused leaves the state as it was."""
        update, parameters = push.update, self.parameters
        if not self.receipts.is_next(push.device, update.sequence):
            answers.append((push, self._repeat_receipt(push)))
            return
        self._lifecycle.check_open()
        if (held := self._coordinator.find_held(push)) is not None:
            answers.append((self._replace_held(held, push), Superseded("the device sent its update again")))
            return
        self.eligibility.check(push.device)
        step = admit(
            update,
            self.layout,
            oldest=parameters.oldest,
            version=parameters.version,
            samples=self._limits.samples,
            min_samples=self._limits.min_samples,
            expansion_bytes=self._limits.expansion_bytes,
            time=push.time,
        )
        step = parameters.limit(step)
        sent = step
        step, decision = self.screening.decide(push.device, step)
        limit, rounds = self._limits.parameter, parameters.regime.rounds
        if (
            rounds
            and parameters.noise is None
            and not parameters.fits(step, limit, self._coordinator.round_sum)
        ):
            raise _too_large(update, limit)
        verdict = self._coordinator.offer(push, step, now)
        self.screening.keep(push, decision)
        is_taken = verdict is None or self._apply(verdict, answers) or rounds
        if is_taken and parameters.noise is None:
            self.observe(push, sent)

    def _apply(self, verdict: Apply, answers: list[tuple[Push, Answer]]) -> bool:
        """Put updates into the model and the journal, if they fit. Append their answers to `answers`."""
        parameters, before, limit = self.parameters, self.parameters.version, self._limits.parameter
        touched = [parameters.changed_indices(indices) for _, indices in verdict.updates]
        if not parameters.apply(verdict.change, limit):
            for push, _ in verdict.updates:
                self.screening.drop(push)
                refusal = _too_large(push.update, limit, isinstance(verdict.change, Gathered))
                answers.append((self._resent.pop(push, push), refusal))
            return False
        for version, ((push, _), indices) in enumerate(
            zip(verdict.updates, touched, strict=True), before + 1
        ):
            update, (share, reason) = push.update, self.screening.record(version, push)
            if self.eligibility.is_private and push.summed:  # no guard judges a sum
                reason = pack_summed(push.summed)
            facts = version, push.device, update.sequence, push.time, update.loss, update.samples
            self._journal.add_update(*facts, push.frame, share, reason)
            self.receipts.add(push.device, update.sequence, version)
            self._gate.record_update(push.device, version)
            for device in self.eligibility.record(push):
                self._coordinator.remove_device(device)
            self.outlet.add(indices)
            moments = self._moments.report(push.device, update.moments)
            self._labels.count(push.device)
            labels = self._labels.report(push.device, update.labels)
            if labels:
                self.outlet.set_overlap(self._labels.overlap)
            receipt = Receipt(update.sequence, version, None, moments, labels)
            accepted = Accepted(receipt, before - update.base, share)
            answers.append((self._resent.pop(push, push) if self._resent else push, accepted))
            self._applied.append((push, accepted))
        return True

    def _repeat_receipt(self, push: Push) -> Accepted:
        """Return the receipt of a resent update that is in the model. It names the same version as before."""
        update = push.update
        version = self.receipts.version_of(push.device, update.sequence)
        staleness = 0 if self.parameters.regime.rounds else version - 1 - update.base
        return Accepted(Receipt(update.sequence, version, None), staleness)

    def _replace_held(self, held: Push, push: Push) -> Push:
        """Record that a device sent its held update again, after it lost its connection.

        The first copy counts, since it was admitted. Returns the copy that no session waits for any more.
        """
        earlier, self._resent[held] = self._resent.get(held, held), push
        return earlier

    # Published state

    @property
    def published(self) -> Published:
        """The state of the run that is durable."""
        return self._lifecycle.published

    def theta(self) -> tuple[int, NDArray[np.float32]]:
        """Return (version, a copy of theta, float32 [P + B]), both durable."""
        return self.parameters.version, self.parameters.theta.copy()

    def result(self) -> tuple[int, NDArray[np.float32]]:
        """Return (version, a copy of the averaged model, or of theta if the run keeps none), both durable."""
        average = self.parameters.average
        return self.parameters.version, (self.parameters.theta if average is None else average).copy()

    def _add_model(self, push: Push, answer: Answer) -> Answer:
        if isinstance(answer, Refused) or not push.update.pull or not self.eligibility.has_turn(push.device):
            return answer
        model = self.outlet.model(push.update.base, push.update.held, push.device)
        return answer._replace(receipt=replace(answer.receipt, model=model))

    def _discard_held(self, refusal: Refused) -> None:
        """Give up all held updates. The next `stage` returns `refusal` as their answer."""
        self._discarded += [(self._resent.pop(push, push), refusal) for push in self._coordinator.discard()]
        self.screening.drop_all()

    def close(self) -> None:
        """Write a snapshot and close the journal. The next start then replays no updates."""
        self.outlet.close()
        if not self._abandoned:
            self._snapshots.take()
            self._journal.close()

    def abandon(self) -> None:
        """Close the journal without uncommitted writes: memory may be ahead of it after an error."""
        self._abandoned = True
        self.outlet.close()
        self._journal.abandon()

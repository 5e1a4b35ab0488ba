"""The single writer of the model: the whole path of an update, from the record to the receipt.

    admit (decode, check) -> journal -> apply (weigh, descend) -> commit -> publish

In rounds what is admitted is gathered instead, and journaled and applied when the round ends.

Synchronous and free of sockets and clocks, so that a server, an emulated fleet and a test run the same code.
Nothing an Engine hands out is ahead of the disk: a group of updates is answered once all of it is durable,
and a model is published only between groups.
"""

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from edgeflock.server.admission import admit
from edgeflock.server.differences import Differences
from edgeflock.server.journal import Evaluation, Journal
from edgeflock.server.parameters import Parameters
from edgeflock.server.records import LastReceipt
from edgeflock.server.staleness import Where
from edgeflock.shared.errors import BadSequence, Refused, RunComplete
from edgeflock.shared.layout import Layout
from edgeflock.shared.messages import Model, Receipt, Update


@dataclass(frozen=True, slots=True)
class Push:
    """One update as it arrived: who sent it, when (Unix seconds), the record and its bytes."""

    device: int
    time: float
    update: Update
    frame: bytes


Answer = Receipt | Refused | None
"""None: the update waits for the end of its round."""


T = TypeVar("T", bound=Answer)


@dataclass(frozen=True, slots=True)
class Bounds:
    """What an engine accepts and keeps."""

    updates: int = 0
    """The run is complete after so many; 0 for never."""
    expansion_bytes: int = 1 << 28
    """The most that decoding one update may allocate."""
    snapshot_every: int = 1000
    """Updates between snapshots: the most that a restart replays."""
    keep_updates: bool = True
    """Whether update records older than the staleness window stay in the journal."""
    samples: int = 1 << 16
    """The most that one update may be computed from."""


_QUICK = 100_000
"""Entries that are decoded and applied in about two milliseconds."""


class Engine:
    """Admits, journals and applies updates; publishes the model."""

    def __init__(
        self,
        journal: Journal,
        layout: Layout,
        parameters: Parameters,
        bounds: Bounds | None = None,
        pull: str = "f32",
    ) -> None:
        """`pull` is the value coding of whole models: f32 or f16."""
        self.layout = layout
        self.parameters = parameters
        self._journal = journal
        self._bounds = bounds or Bounds()
        self._differences = Differences(layout, parameters.version, pull)
        self._last = journal.last_receipts()
        self._next_snapshot = parameters.version + self._bounds.snapshot_every
        self._gathered: dict[int, tuple[Push, Where]] = {}
        """device -> its part of the open round."""

    @property
    def version(self) -> int:
        """How many updates have been applied."""
        return self.parameters.version

    @property
    def complete(self) -> bool:
        """Whether the run has all its updates."""
        return 0 < self._bounds.updates <= self.version

    def commit(self, pushes: Sequence[Push]) -> list[Answer]:
        """Take a group of updates: an answer to each, in order, once what was accepted is durable."""
        return self.publish(pushes, self.stage(pushes))

    def stage(self, pushes: Sequence[Push]) -> list[Answer]:
        """The first half of `commit`, in memory only: nothing of it may leave before `publish`."""
        return [self._offer(push) for push in pushes]

    def is_quick(self, pushes: Sequence[Push]) -> bool:
        """Whether `stage` takes no more than a few milliseconds for this group."""
        return sum(push.update.count for push in pushes) <= _QUICK and all(
            push.update.sequence >= self.last_sequence(push.device) for push in pushes
        )

    @property
    def gathered(self) -> Set[int]:
        """The devices whose updates the open round has."""
        return self._gathered.keys()

    def end_round(self) -> list[tuple[Push, Receipt]]:
        """Journal and apply what the round has gathered: the receipts, once it is durable."""
        ended, self._gathered = list(self._gathered.values()), {}
        for number, (push, _) in enumerate(ended, self.version + 1):
            self._note(push, number)
        self.parameters.end_round()
        for _, touched in ended:
            self._differences.add(touched)
        pushes = [push for push, _ in ended]
        receipts = [Receipt(push.update.sequence, self._last[push.device].version, None) for push in pushes]
        return list(zip(pushes, self._published(pushes, receipts), strict=True))

    def publish(self, pushes: Sequence[Push], outcomes: Sequence[Answer]) -> list[Answer]:
        """The second half: wait for the disk, then put the model into the receipts that asked for it."""
        return self._published(pushes, outcomes)

    def _published(self, pushes: Sequence[Push], outcomes: Sequence[T]) -> list[T]:
        if self.version >= self._next_snapshot:
            self._snapshot()
        self._journal.commit()
        return [
            replace(outcome, model=self.model(push.update.base))
            if isinstance(outcome, Receipt) and push.update.pull
            else outcome
            for push, outcome in zip(pushes, outcomes, strict=True)
        ]

    def _offer(self, push: Push) -> Answer:
        """The path of one update. What is refused leaves no trace."""
        update, parameters = push.update, self.parameters
        try:
            if update.sequence <= self.last_sequence(push.device):
                return self._receipt_again(push)
            if self.complete:
                raise RunComplete(f"the run has its {self._bounds.updates} updates")
            if push.device in self._gathered:
                self._check_gathered(push)
                return None
            step = admit(
                update,
                self.layout,
                oldest=parameters.oldest,
                version=parameters.version,
                samples=self._bounds.samples,
                expansion_bytes=self._bounds.expansion_bytes,
            )
        except Refused as refusal:
            return refusal
        if parameters.regime.rounds:
            parameters.gather(step)
            self._gathered[push.device] = push, step.where
            return None
        self._note(push, parameters.version + 1)
        parameters.apply(step)
        self._differences.add(step.where)
        return Receipt(update.sequence, self.version, None)

    def _note(self, push: Push, version: int) -> None:
        """Into the journal with an update that makes `version`."""
        update = push.update
        self._journal.add_update(
            version, push.device, update.sequence, push.time, update.loss, update.samples, push.frame
        )
        self._last[push.device] = LastReceipt(update.sequence, version)

    def last_sequence(self, device: int) -> int:
        """The highest sequence number accepted from a device, 0 if none was."""
        last = self._last.get(device)
        return last.sequence if last else 0

    def _receipt_again(self, push: Push) -> Receipt:
        """A resent update gets the receipt that it got, or would have got, the first time."""
        sequence = push.update.sequence
        last = self._last.get(push.device)
        if last is not None and sequence == last.sequence:
            return Receipt(sequence, last.version, None)
        earlier = self._journal.receipt(push.device, sequence)
        if earlier is None:
            raise BadSequence(
                f"sequence {sequence} was never accepted and {self.last_sequence(push.device)} already is; "
                "go on above it"
            )
        return Receipt(sequence, earlier, None)

    def _check_gathered(self, push: Push) -> None:
        """A device that lost its connection sends its part of the round again: it waits like the first."""
        gathered, _ = self._gathered[push.device]
        if push.update.sequence != gathered.update.sequence:
            raise BadSequence(
                f"sequence {gathered.update.sequence} waits for the end of its round; wait for its receipt"
            )

    def model(self, base: int | None) -> Model:
        """The current model, as little of it as a device that holds `base` needs."""
        return self._differences.model(self.parameters.theta, base)

    def theta(self) -> tuple[int, NDArray[np.float32]]:
        """(version, a copy of theta), durable."""
        return self.version, self.parameters.theta.copy()

    def result(self) -> tuple[int, NDArray[np.float32]]:
        """(version, a copy of the model to use: the average if the run keeps one, else theta), durable."""
        average = self.parameters.average
        return self.version, (self.parameters.theta if average is None else average).copy()

    def device_id(self, name: str) -> int:
        """The number that stands for a device in the journal."""
        return self._journal.device_id(name)

    def record(self, evaluation: Evaluation | None, traffic: Iterable[tuple[int, int, int]]) -> None:
        """Put an evaluation and the (device, ingress, egress) of each device into the journal."""
        if evaluation is not None:
            self._journal.add_evaluation(evaluation)
        for device, ingress, egress in traffic:
            self._journal.add_account(device, ingress, egress)
        self._journal.commit()

    def checkpoint(self) -> int:
        """Put a snapshot of the version into the journal, so that a restart replays nothing until here."""
        self._snapshot()
        self._journal.commit()
        return self.version

    def adjust(self, learning_rate: float, configured: float) -> int:
        """Descend by `learning_rate` from the returned version on, in the open round too, while the settings
        say `configured`.

        A regime of its own begins with a snapshot: see recovery.py. Of the past nothing needs to be known
        anew, since only the rate changes.
        """
        regime = replace(self.parameters.regime, learning_rate=learning_rate)
        self._snapshot()
        self._journal.add_regime(self.version, regime)
        self._journal.add_adjustment(self.version, configured, learning_rate)
        self._journal.commit()
        self.parameters.regime = regime
        return self.version

    def close(self) -> None:
        """Leave a snapshot behind, so that the next start replays nothing, and close the journal."""
        self._snapshot()
        self._journal.close()

    def abandon(self) -> None:
        """Let go of the journal, without what was not committed."""
        self._journal.abandon()

    def _snapshot(self) -> None:
        self._next_snapshot = self.version + self._bounds.snapshot_every
        self._journal.add_snapshot(self.version, self.parameters.theta, self.parameters.average)
        if not self._bounds.keep_updates:
            self._journal.forget_frames(self.version - self.parameters.regime.window)

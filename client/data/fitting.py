"""Samples that are read back, before they are trained on; and what became of every sample."""

import logging

import numpy as np

from edgeflock.client.backends import Backend
from edgeflock.client.data.batcher import Batch, warn_of_held_out
from edgeflock.client.data.checks import Checks, set_aside
from edgeflock.client.data.classes import Classes
from edgeflock.client.data.prequential import Prequential
from edgeflock.client.data.records import OVERRUN, Skipped, SourceProgress, StreamChunk
from edgeflock.client.data.sample_description import SampleDescription
from edgeflock.client.data.scaling import Units
from edgeflock.client.data.stream_buffer import Buffer
from edgeflock.shared.data.account import SampleAccount
from edgeflock.shared.model.description import Description
from edgeflock.shared.model.held_out import Overlap
from edgeflock.shared.protocol.messages import Facts, Welcome

log = logging.getLogger(__name__)

SMALL, LARGE = 0.05, 20.0
"""Inputs that usually reach less far or farther from 0 train slowly, or not at all."""


class Fitting:
    """Sets aside what is unfit after all, and counts. A caller in several threads has a lock around all but
    `fit`.
    """

    def __init__(self, buffer: Buffer, tally: Skipped, checks: Checks, scaling: Units | None = None) -> None:
        """`tally` is the one that the source counts in. Without `scaling` inputs keep their units."""
        self._buffer = buffer
        self._tally = tally
        self._checks = checks
        self._scaling = scaling
        self._advised = scaling is not None
        """Whether there is nothing more to say of the inputs' units."""
        self._learnt = self._again = 0
        """Samples that were scaled since the last settling or taking back, and how many of the next were
        before.
        """
        self._classes: Classes | None = None
        self._told: SampleDescription | None = None
        self._overlap: Overlap | None = None
        self._held_out = 0
        """Rows of the server's held-out data that came, as far as is told."""
        self._spoilt = Skipped(tally.quarantine)
        """What was set aside when it was read back; it comes again if it is taken back."""
        self._spoilt_before = self._set_aside = 0
        """How many those were at the last settling or taking back, and how many of them are settled."""
        self.came = len(buffer)
        """Samples that came into the buffer, those that it had kept from before among them."""
        self.taken = 0
        """Of it, and not settled yet."""
        self._trained = 0
        self.prequential = Prequential()

    def begin(self, welcome: Welcome, backend: Backend) -> None:
        """From now on samples are set aside whose shape is not the run's, or whose classes `backend` does not
        take; and they are in the run's units, if it has some."""
        self._checks.agreed.take(welcome)
        self._told = SampleDescription(welcome.data or Description())
        self._overlap = None if welcome.held_out is None else Overlap(welcome.run, welcome.held_out)
        if welcome.data is not None and welcome.data.means:
            self._scaling, self._advised = None, True
        self._classes = Classes(backend)

    def fit(self, batch: Batch) -> StreamChunk:
        """The samples of `batch` that can be trained on. Raises ConfigError if the backend never took any."""
        x, y = batch
        fit = self._checks.admit(StreamChunk(x, y), self._spoilt)  # type: ignore[arg-type]  # as they went in
        if self._told is not None and len(fit):
            fit = self._told.taken(fit, self._spoilt)
        if self._classes is not None and len(fit) and fit.y.dtype.kind == "i":
            refused = self._classes.refused(fit.x, fit.y.astype(np.int64, copy=False))
            set_aside(fit, refused, "of another target", "the model has no such class", self._spoilt)
            fit = fit.where(~refused)
        self._advise()
        self._compare(fit)
        return fit if self._scaling is None or not len(fit) else self._scaled(fit, self._scaling)

    def _compare(self, fit: StreamChunk) -> None:
        """Say so if they are rows that the server evaluates on: once, and the number to the server."""
        if self._overlap is None or not len(fit):
            return
        self._overlap.see(fit.x, fit.y)
        if (found := self._overlap.rows) and not self._held_out:
            warn_of_held_out("client.data", found)
        self._held_out = max(self._held_out, found)

    def _scaled(self, fit: StreamChunk, scaling: Units) -> StreamChunk:
        """What comes again is not learnt again: a server that is away for long makes no sample usual."""
        scaling.learn(fit.x[self._again :])
        self._learnt += len(fit)
        self._again = max(0, self._again - len(fit))
        return StreamChunk(scaling.scaled(fit.x), fit.y, fit.keys)

    def _advise(self) -> None:
        """Say once if the inputs look as if they need scaling."""
        if self._advised or self._classes is None or (reach := self._checks.usual_reach) is None:
            return
        self._advised = True
        if reach and not SMALL <= reach <= LARGE:
            log.warning(
                "inputs usually reach %.3g from 0; models train best on about 1. client.scale = true brings "
                "them there (not for numbers of words)",
                reach,
            )

    def settle(self) -> None:
        spoilt = self._spoilt.total - self._spoilt_before
        self._set_aside += spoilt
        self._trained += self.taken - spoilt
        self.prequential.settle()
        self._forget()

    def take_back(self) -> None:
        self._again += self._learnt
        self.prequential.take_back()
        self._forget()

    def facts(self) -> Facts:
        """What became of the samples, and what the model made of them."""
        seldom: Facts = {"held_out": self._held_out, "unwritten": self._buffer.unwritten}
        seldom = {name: count for name, count in seldom.items() if count}
        return {**self.account().facts(), **self.prequential.facts(), **seldom}

    def progress(self) -> SourceProgress:
        """How far the samples are."""
        left = 0 if self._buffer.keeps else len(self._buffer) + self.taken
        return SourceProgress(self.came, self.came - left)

    def account(self) -> SampleAccount:
        """What became of every sample until now."""
        overrun = self._tally.counts.get(OVERRUN, 0)
        return SampleAccount(
            came=self.came + self._tally.total,
            trained=self._trained,
            drops=self._buffer.drops + overrun,
            quarantined=self._tally.total - overrun + self._set_aside,
            duplicates=self._buffer.duplicates,
            left=len(self._buffer) + self.taken,
        )

    def _forget(self) -> None:
        self.taken, self._learnt, self._spoilt_before = 0, 0, self._spoilt.total

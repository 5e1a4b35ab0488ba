"""Last checks of samples before training, the account of every sample, and the model's results on them.

Prequential evaluation: each batch of a stream is evaluated before training on it.

    S' = f S + s,   N' = f N + 1,   estimate S / N

for each sample, with the largest weight on the newest. J. Gama, R. Sebastiao, P. P. Rodrigues, "On evaluating
stream learning algorithms", Machine Learning 90 (2013), fading factors. Samples whose update the server does
not have yet do not count, since they may return.
"""

import logging
from dataclasses import dataclass

import numpy as np

from edgeflock.client.backends import Backend
from edgeflock.client.data.batcher import Batch, warn_of_held_out
from edgeflock.client.data.checks import Checks, Classes, set_aside
from edgeflock.client.data.records import OVERRUN, Skipped, SourceProgress, StreamChunk
from edgeflock.client.data.sample_description import SampleDescription
from edgeflock.client.data.stream_buffer import Buffer
from edgeflock.shared.data.account import SampleAccount
from edgeflock.shared.model.description import Description
from edgeflock.shared.model.held_out import Overlap
from edgeflock.shared.protocol.messages import Facts, Welcome

log = logging.getLogger(__name__)

SMALL, LARGE = 0.05, 20.0
"""Inputs whose usual largest |number| is outside these bounds train slowly, or not at all."""


class Fitting:
    """Sets aside samples that turn out unfit, and counts all samples.

    A caller with several threads holds a lock around all methods except `fit`.
    """

    def __init__(self, buffer: Buffer, tally: Skipped, checks: Checks) -> None:
        """`tally` is the source's own."""
        self._buffer = buffer
        self._tally = tally
        self._checks = checks
        self._advised = False
        """Whether advice on the inputs' units was given or is not needed."""
        self._classes: Classes | None = None
        self._description: SampleDescription | None = None
        self._overlap: Overlap | None = None
        self._held_out = 0
        """Rows of the server's held-out data that arrived, as far as is known."""
        self._unfit = Skipped(tally.quarantine)
        """Samples set aside after reading back. They return after `take_back`."""
        self._unfit_before = self._set_aside = 0
        """Their number at the last `settle` or `take_back`, and how many of them are settled."""
        self.received = len(buffer)
        """Samples that entered the buffer, including those it kept from an earlier process."""
        self.unsettled = 0
        """Samples taken from the buffer and not settled yet."""
        self._trained = 0
        self.prequential = Prequential()

    def begin(self, welcome: Welcome, backend: Backend) -> None:
        """Apply the run's shape, its units if it has some, and the classes that `backend` accepts."""
        self._checks.schema.take(welcome)
        self._description = SampleDescription(welcome.data or Description())
        self._overlap = None if welcome.held_out is None else Overlap(welcome.run, welcome.held_out)
        if welcome.data is not None and welcome.data.means:
            self._advised = True
        self._classes = Classes(backend)

    def fit(self, batch: Batch) -> StreamChunk:
        """Return the fit samples of `batch`. Raises ConfigError if the backend never accepted any."""
        x, y = batch
        fit = self._checks.admit(StreamChunk(x, y), self._unfit)  # type: ignore[arg-type]  # as added
        if self._description is not None and len(fit):
            fit = self._description.convert(fit, self._unfit)
        if self._classes is not None and len(fit) and fit.y.dtype.kind == "i":
            refused = self._classes.find_refused(fit.x, fit.y.astype(np.int64, copy=False))
            set_aside(fit, refused, "of another target", "the model has no such class", self._unfit)
            fit = fit.select(~refused)
        self._advise()
        self._compare_held_out(fit)
        return fit

    def _compare_held_out(self, fit: StreamChunk) -> None:
        """Warn once if samples are in the server's held-out data, and keep their number for the server."""
        if self._overlap is None or not len(fit):
            return
        self._overlap.add(fit.x, fit.y)
        if (found := self._overlap.rows) and not self._held_out:
            warn_of_held_out("client.data", found)
        self._held_out = max(self._held_out, found)

    def _advise(self) -> None:
        """Log a warning once if the inputs seem to need scaling."""
        if self._advised or self._classes is None or (usual := self._checks.usual_magnitude) is None:
            return
        self._advised = True
        if usual and not SMALL <= usual <= LARGE:
            log.warning(
                "inputs usually reach %.3g from 0; models train best on about 1: send them so, or name a "
                "table like them in the server's model.data, whose units apply (but not numbers of words)",
                usual,
            )

    def settle(self) -> None:
        unfit = self._unfit.total - self._unfit_before
        self._set_aside += unfit
        self._trained += self.unsettled - unfit
        self.prequential.settle()
        self._forget()

    def take_back(self) -> None:
        self.prequential.take_back()
        self._forget()

    def facts(self) -> Facts:
        """Return the account of the samples and the model's results on them."""
        rare: Facts = {"held_out": self._held_out, "unwritten": self._buffer.unwritten}
        rare = {name: count for name, count in rare.items() if count}
        return {**self.account().facts(), **self.prequential.facts(), **rare}

    def progress(self) -> SourceProgress:
        """Return the progress of the source's samples."""
        left = 0 if self._buffer.is_durable else len(self._buffer) + self.unsettled
        return SourceProgress(self.received, self.received - left)

    def account(self) -> SampleAccount:
        """Return the account of every sample until now."""
        overrun = self._tally.counts.get(OVERRUN, 0)
        return SampleAccount(
            came=self.received + self._tally.total,
            trained=self._trained,
            drops=self._buffer.drops + overrun,
            quarantined=self._tally.total - overrun + self._set_aside,
            duplicates=self._buffer.duplicates,
            left=len(self._buffer) + self.unsettled,
        )

    def _forget(self) -> None:
        self.unsettled, self._unfit_before = 0, self._unfit.total


FADING = 0.999
"""f: the estimate covers about the last 1,000 samples."""


@dataclass(slots=True)
class _Faded:
    total: float = 0.0
    weight: float = 0.0

    def add(self, mean: float, count: int) -> None:
        """Add `count` samples whose mean is `mean`."""
        kept = FADING**count
        self.total = kept * self.total + mean * (1 - kept) / (1 - FADING)
        self.weight = kept * self.weight + (1 - kept) / (1 - FADING)


class Prequential:
    """The faded loss and accuracy of one stream."""

    def __init__(self) -> None:
        self._loss, self._right = _Faded(), _Faded()
        self._unsettled: list[tuple[float, float | None, int]] = []

    def record_result(self, loss: float, right: float | None, count: int) -> None:
        """Record the mean loss of `count` samples and, if defined, the fraction of correct predictions."""
        self._unsettled.append((loss, right, count))

    def settle(self) -> None:
        """Count the recorded samples: they are used."""
        for loss, right, count in self._unsettled:
            self._loss.add(loss, count)
            if right is not None:
                self._right.add(right, count)
        self._unsettled.clear()

    def take_back(self) -> None:
        """Discard the recorded results: the samples return."""
        self._unsettled.clear()

    def facts(self) -> Facts:
        """Return the current estimates."""
        faded = {"stream_loss": self._loss, "stream_accuracy": self._right}
        return {name: one.total / one.weight for name, one in faded.items() if one.weight}

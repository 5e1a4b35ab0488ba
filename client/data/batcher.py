"""Samples -> mini-batches: what a worker trains on, and stored data as such."""

import logging
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from edgeflock.client.backends import Backend
from edgeflock.shared.data.datasets import Dataset, Stored
from edgeflock.shared.model.fields import Inputs, rows
from edgeflock.shared.model.held_out import Overlap
from edgeflock.shared.protocol.messages import Facts, Welcome

log = logging.getLogger(__name__)

Batch = tuple[Inputs, NDArray[np.generic]]
"""x and y of a few samples."""


class StreamOver(Exception):
    """The data have ended, and all of them were taken."""


class NothingFit(Exception):
    """All samples that waited were set aside: there is nothing to train on yet."""


class Batches(Protocol):
    """What a worker takes its batches from: Shuffled, or a stream (stream_batches.py)."""

    async def ready(self, steps: int) -> None:
        """Return once there is data for the next `steps` batches. Raises StreamOver if none will come."""

    def take(self, size: int) -> Batch:
        """(x, y) of `size` samples, if the batches do not have a size of their own. Raises NothingFit."""

    def begin(self, welcome: Welcome, backend: Backend) -> None:
        """Take part in the run of `welcome`, which `backend` trains."""

    def judged(self, loss: float, right: float | None) -> None:
        """What the model made of the batch that was taken last, before it trained on it: its mean loss, and
        the part of the predictions that were right, if there is right and wrong.
        """

    def settle(self) -> None:
        """The server has what was computed from all that was taken."""

    def take_back(self) -> None:
        """It has not, and will not."""

    def telemetry(self) -> Facts:
        """What operators may want to know of the data by now; empty if there is nothing to tell."""


@runtime_checkable
class Acting(Protocol):
    """Batches that come of what the model does: those of an environment."""

    def act(self, theta: NDArray[np.float32]) -> None:
        """The next batches are of the model at theta, float32 [P + B]."""


class Shuffled:
    """Batches drawn without replacement, reshuffled after each pass over the data."""

    def __init__(self, data: Dataset | Stored, random: np.random.Generator) -> None:
        self._data: Dataset | Stored = data
        self._random = random
        self._order: NDArray[np.int64] = np.zeros(0, np.int64)
        self._held_out = 0
        """Rows that the server evaluates on, as far as is known."""

    @property
    def samples(self) -> Dataset | Stored:
        """All of them, as they are trained on."""
        return self._data

    def begin(self, welcome: Welcome, backend: Backend) -> None:
        """Stored data are as they are."""
        self._compare(welcome, "data")

    def _compare(self, welcome: Welcome, source: str) -> None:
        """Say so if there are rows among the data, called `source`, that the server evaluates on."""
        self._held_out = 0
        if welcome.held_out is not None:
            overlap = Overlap(welcome.run, welcome.held_out)
            overlap.see_stored(self._data.x, self._data.y)
            self._held_out = overlap.rows
            if self._held_out:
                warn_of_held_out(source, self._held_out)

    async def ready(self, steps: int) -> None:
        """There always is more."""

    def take(self, size: int) -> Batch:
        """(x, y) of `size` samples, or of all if there are fewer."""
        size = min(size, len(self._data))
        while self._order.size < size:
            self._order = np.concatenate((self._order, self._random.permutation(len(self._data))))
        chosen, self._order = self._order[:size], self._order[size:]
        return rows(self._data.x, chosen), self._data.y[chosen]

    def judged(self, loss: float, right: float | None) -> None:
        """It trained on them in the last pass."""

    def settle(self) -> None:
        """Stored data come again in any case."""

    def take_back(self) -> None:
        """They come again in the next pass."""

    def telemetry(self) -> Facts:
        """Whether the server should not evaluate on some of them."""
        return {"held_out": self._held_out} if self._held_out else {}


def warn_of_held_out(source: str, rows: int) -> None:
    """Say that a device trains on the server's held-out rows."""
    log.warning(
        "%s: about %d of its rows are the server's held-out ones, on which no device should train: the model "
        "looks better there than it is. Train on other rows: client.data, or --data",
        *(source, rows),
    )

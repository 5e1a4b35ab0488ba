"""Mini-batches of samples: the interface `Batches`, and batches of stored data, of one or several shards."""

import logging
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from edgeflock.client.backends import Backend, PredictingBackend
from edgeflock.client.data.checks import Classes
from edgeflock.client.data.own_test import OwnTest, divide
from edgeflock.shared.data.columns import complete
from edgeflock.shared.data.fitting import fit
from edgeflock.shared.data.samples import Dataset, Raw
from edgeflock.shared.errors import ConfigError, ServerAtFault
from edgeflock.shared.model.fields import Inputs, rows
from edgeflock.shared.model.gradient import trial
from edgeflock.shared.model.held_out import Overlap
from edgeflock.shared.model.start import generate
from edgeflock.shared.protocol.messages import Facts, Welcome

log = logging.getLogger(__name__)

Batch = tuple[Inputs, NDArray[np.generic]]
"""x and y of a few samples."""


class StreamEnded(Exception):
    """The data have ended, and all samples were taken."""


class NoUsableSamples(Exception):
    """All waiting samples were set aside: there is nothing to train on yet."""


class Batches(Protocol):
    """The source of a worker's batches: Shuffled, or a stream (stream_batches.py).

    A subclass needs `take` alone: the other methods suit data that are always available and repeat.
    """

    async def ready(self, steps: int) -> None:
        """Wait until there is data for the next `steps` batches. Raises StreamEnded if none will come."""
        return

    def take(self, size: int) -> Batch:
        """Return (x, y) of `size` samples, unless the batches set their own size. Raises NoUsableSamples."""

    def begin(self, welcome: Welcome, backend: Backend) -> None:
        """Take part in the run of `welcome`, which `backend` trains."""
        return

    def record_result(self, loss: float, right: float | None) -> None:
        """Record the result on the last batch, computed before training on it.

        `loss` is its mean. `right` is the fraction of correct predictions, if the loss defines it.
        """
        return

    def settle(self) -> None:
        """Mark all taken samples as used: the server has their update."""
        return

    def take_back(self) -> None:
        """Return the taken samples: the server will not get their update."""
        return

    def telemetry(self) -> Facts:
        """Return facts about the data for operators. It may be empty."""
        return {}


@runtime_checkable
class PolicyBatches(Protocol):
    """Batches that depend on the model's actions: those of an environment."""

    def act(self, theta: NDArray[np.float32]) -> None:
        """Use the model at theta, float32 [P + B], for the next batches."""


@runtime_checkable
class EvaluatedBatches(Protocol):
    """Batches with held-out samples of the device's own."""

    def evaluate(self, theta: NDArray[np.float32]) -> None:
        """Evaluate the model at theta, float32 [P + B], and report the result as telemetry."""


@runtime_checkable
class SampledBatches(Protocol):
    """Batches of stored data, of which each example may be in any batch."""

    def sample(self, size: int, fewest: int) -> Batch:
        """Return (x, y) of a Poisson sample of `size` examples on average: it may be empty.

        The random numbers come from the operating system. Raises ConfigError below `fewest` examples.
        """


class Shuffled(Batches):
    """Batches drawn without replacement, reshuffled after each pass over the data."""

    def __init__(self, data: Dataset, random: np.random.Generator, *, hold_out: float = 0.0) -> None:
        """`hold_out` is the part of the data to evaluate on, and not to train on, if the run asks for it."""
        self._data: Dataset = data
        self._random = random
        self._hold_out = hold_out
        self._own_test: OwnTest | None = None
        self._rows: NDArray[np.int64] | None = None
        """The rows to train on; None: all."""
        self._order: NDArray[np.int64] = np.zeros(0, np.int64)
        self._held_out = 0
        """Rows that are in the server's held-out data, as far as is known."""

    @property
    def samples(self) -> Dataset:
        """The whole data, as used for training."""
        return self._data

    def begin(self, welcome: Welcome, backend: Backend) -> None:
        """Compare the data with the server's held-out data, and hold out some if the run asks for it."""
        self._compare(welcome, "data")
        self._divide(welcome, backend)

    def _divide(self, welcome: Welcome, backend: Backend) -> None:
        """Hold out a part of the data, the same one at each start, unless that is done."""
        if not (welcome.evaluate and self._hold_out and isinstance(backend, PredictingBackend)):
            if self._own_test is not None:
                self._own_test, self._rows, self._order = None, None, np.zeros(0, np.int64)
        elif self._own_test is not None:
            self._own_test.backend = backend
        else:
            trained, held = divide(len(self._data), self._hold_out)
            if held.size:
                self._rows, self._order = trained, np.zeros(0, np.int64)
                self._own_test = OwnTest(self._data, held, backend)

    def evaluate(self, theta: NDArray[np.float32]) -> None:
        """Evaluate the model on the held-out part, if there is one."""
        if self._own_test is not None:
            self._own_test.evaluate(theta)

    @property
    def _trained(self) -> int:
        """The number of samples to train on."""
        return len(self._data) if self._rows is None else len(self._rows)

    @property
    def own_test(self) -> "OwnTest | None":
        """The held-out part, once the run has begun."""
        return self._own_test

    def _compare(self, welcome: Welcome, source: str) -> None:
        """Warn if the data, called `source`, contain rows that the server evaluates on."""
        self._held_out = 0
        if welcome.held_out is not None:
            overlap = Overlap(welcome.run, welcome.held_out)
            overlap.add_stored(self._data.x, self._data.y)
            self._held_out = overlap.rows
            if self._held_out:
                warn_of_held_out(source, self._held_out)

    def take(self, size: int) -> Batch:
        """Return (x, y) of `size` samples, or of all if there are fewer."""
        size = min(size, self._trained)
        while self._order.size < size:
            fresh = self._random.permutation(self._trained)
            self._order = np.concatenate((self._order, fresh if self._rows is None else self._rows[fresh]))
        chosen, self._order = self._order[:size], self._order[size:]
        return rows(self._data.x, chosen), self._data.y[chosen]

    def sample(self, size: int, fewest: int) -> Batch:
        if self._trained < fewest:
            raise ConfigError(
                f"this device has {self._trained} examples, and the run hides one among {fewest} or more "
                "(privacy.examples); add data"
            )
        chosen = np.flatnonzero(np.random.default_rng().random(self._trained) < size / self._trained)
        if self._rows is not None:
            chosen = self._rows[chosen]
        return rows(self._data.x, chosen), self._data.y[chosen]

    def telemetry(self) -> Facts:
        """Return how many rows are in the server's held-out data, if any, and the last own evaluation."""
        overlap: Facts = {"held_out": self._held_out} if self._held_out else {}
        return overlap if self._own_test is None else {**overlap, **self._own_test.facts}


def warn_of_held_out(source: str, rows: int) -> None:
    """Log a warning that a device trains on the server's held-out rows."""
    log.warning(
        "%s: about %d of its rows are the server's held-out ones, on which no device should train: the model "
        "looks better there than it is. Train on other rows: client.data, or --data",
        *(source, rows),
    )


class RawBatches(Shuffled):
    """Batches of `raw`, after `begin`, with the columns, units and classes of the run's Welcome."""

    def __init__(self, raw: Raw, random: np.random.Generator, *, hold_out: float = 0.0) -> None:
        empty = Dataset(np.zeros((0, 0), np.float32), np.zeros(0, np.int64))
        super().__init__(empty, random, hold_out=hold_out)
        self._raw = raw

    def __len__(self) -> int:
        return len(self._data) or len(self._raw)

    def begin(self, welcome: Welcome, backend: Backend) -> None:
        """Raises ConfigError if the data do not fit the run, or the model lacks the class of a label."""
        raw, said = complete(self._raw, welcome.data)
        if said:
            log.warning("%s", said)
        data = fit(raw, welcome.data, welcome.input)
        theta = np.zeros(backend.layout.size, np.float32)
        if welcome.start is not None:
            theta = generate(welcome.start, backend.layout)
        try:
            tried = trial(
                backend.gradient, theta, rows(data.x, slice(welcome.batch)), data.y[: welcome.batch]
            )
        except ConfigError:
            _check_classes(raw, data, welcome, backend)
            raise
        _check_classes(raw, data, welcome, backend)
        log.info("%s: %d samples; %s", raw.source, len(data), tried)
        self._data, self._own_test, self._rows = data, None, None
        self._compare(welcome, raw.source)
        self._order = np.zeros(0, np.int64)
        self._divide(welcome, backend)


def _check_classes(raw: Raw, data: Dataset, welcome: Welcome, backend: Backend) -> None:
    """Raises ConfigError if the model lacks a class of `data`, and names a sample of `raw`."""
    if data.y.dtype.kind != "i":
        return
    refused = np.flatnonzero(Classes(backend).find_refused(data.x, data.y.astype(np.int64, copy=False)))
    if refused.size:
        sample = int(refused[0])
        raise raw.error(
            f"the label is class {int(data.y[sample].max())}, and {welcome.model} has none such: "
            "correct it, or host a model with more outputs",
            sample,
        )


class Shards(Batches):
    """Batches of one of several data shards, which are stored data."""

    def __init__(self, shards: Sequence[Batches]) -> None:
        self._shards = shards
        self._chosen = shards[0]

    def choose(self, number: int) -> None:
        """Take the next batches from this data shard, from 0 on. Raises ServerAtFault if it is missing."""
        if number >= len(self._shards):
            raise _no_such_shard(number, len(self._shards))
        self._chosen = self._shards[number]

    def begin(self, welcome: Welcome, backend: Backend) -> None:
        for one in self._shards:
            one.begin(welcome, backend)

    def take(self, size: int) -> Batch:
        return self._chosen.take(size)

    def telemetry(self) -> Facts:
        return self._chosen.telemetry()


def require_first_shard(number: int) -> None:
    """Shards.choose for a device with a single data shard."""
    if number:
        raise _no_such_shard(number, 1)


def _no_such_shard(number: int, held: int) -> ServerAtFault:
    return ServerAtFault(f"the server asks for shard {number}, counted from 0; this device holds {held}")

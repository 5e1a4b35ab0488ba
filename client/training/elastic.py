"""Elastic averaging (EASGD): a device trains its own parameters x and exchanges them with the centre.

    x <- x - alpha (x - centre)                 on the device
    centre <- centre + alpha (x - centre)       on the server, of which theta is the centre

S. Zhang, A. Choromanska and Y. LeCun, "Deep learning with elastic averaging SGD", NIPS 2015, algorithms 1 and
2 (EASGD, EAMSGD); chunk by chunk in D. Svoboda and A. Aggarwal, "Communication efficient distributed SGD",
section 3.1 and algorithm 1. An update holds centre - x, of which the server's step takes the part alpha, as
of any update the learning rate.

Both ends move by the decoded values. The entries not selected and the rounding errors stay in x - centre, for
a later exchange. Nothing is lost, and no other memory is needed.

A device trains on its own. Each chunk is exchanged every `local_steps` steps, at its own phase. An exchange
pulls the centre, moves x between two steps, and pushes; training continues. A step waits if a chunk is due
before its last exchange ends. With one chunk it waits for every exchange, as in the published EASGD.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from edgeflock.client.training.interfaces import MAX_REFUSALS
from edgeflock.client.training.local_optimizer import Adafactor
from edgeflock.client.training.selector import LocalSteps, select_entries
from edgeflock.shared.codecs import entries, sparse, values
from edgeflock.shared.errors import (
    BaseExpired,
    BaseInFuture,
    Diverged,
    Malformed,
    NonFinite,
    Refused,
    ServerAtFault,
    StepTooLarge,
)
from edgeflock.shared.model.chunks import ParameterRange, phase
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.protocol.messages import Model, Update, Welcome

Vector = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class ElasticMove:
    """How an exchange moved a device's parameters, so that it can be undone."""

    indices: slice | NDArray[np.int64]
    change: Vector
    samples: int
    """Samples that the update counts."""


class Elastic:
    """The parameters of a device and its copy of the centre."""

    def __init__(self, theta: Vector, version: int | None, layout: Layout, welcome: Welcome) -> None:
        """Both begin as `theta` (float32 [P + B]), the model at `version`; None: it may be rounded."""
        self._layout = layout.parameters
        self._welcome = welcome
        self.x = theta.copy()
        self._own = self.x[: self._layout.size]  # a view: without the running statistics
        self._centre = self._own.copy()
        self._first_version = version
        self._versions: dict[int, int] = {}
        """First parameter of a chunk -> the version that its centre is of."""
        self._velocity = np.zeros(self._layout.size, np.float32) if welcome.momentum else None
        decay = welcome.adafactor
        self._adafactor = Adafactor(self._layout, decay, welcome.start) if decay else None
        self._steps: deque[LocalSteps] = deque(maxlen=welcome.local_steps)
        """The steps since a chunk was last exchanged, without their gradients."""
        self._uncounted_samples = 0
        """Samples of steps that no update has counted: each counts once, whatever the number of chunks."""

    def base(self, chunk: ParameterRange) -> int | None:
        """Return the version of the chunk's centre."""
        return self._versions.get(chunk.start, self._first_version)

    def gradient_point(self) -> Vector:
        """Return the point of the next gradient: x, or with momentum x + delta v: float32 [P + B]."""
        if self._velocity is None:
            return self.x
        point = self.x.copy()
        point[: self._layout.size] += np.float32(self._welcome.momentum) * self._velocity
        return point

    def descend(self, step: LocalSteps) -> None:
        """Move x by a step: x <- x - eta g.

        With momentum v <- delta v - eta g, x <- x + v (EAMSGD, equation 9). With Adafactor x <- x - eta d(g),
        by second moments of the device's own (local_optimizer.py).
        """
        gradient = step.gradient
        if self._adafactor is not None:
            gradient = self._adafactor.direction(self._own, gradient)
        change = np.float32(-self._welcome.local_rate) * gradient
        if self._velocity is not None:
            self._velocity *= np.float32(self._welcome.momentum)
            self._velocity += change
            change = self._velocity
        self._own += change
        self._uncounted_samples += step.samples
        self._steps.append(LocalSteps(step.loss, np.zeros(0, np.float32), step.statistics, step.samples))

    def take(self, chunk: ParameterRange, model: Model) -> None:
        """Update the copy of the centre in `chunk`, from its values or those that changed.

        Raises Malformed if it is not of that chunk, NonFinite if it holds NaN or infinity.
        """
        where, new = entries.decode(
            model.index_mode, model.value_mode, model.count, model.indices, model.values, self._layout
        )
        if isinstance(where, slice):
            where = np.arange(self._layout.size)
        whole = model.base is None and where.size == chunk.stop - chunk.start
        if not whole and (model.base is None or model.base != self.base(chunk)):
            raise Malformed(
                f"the difference is from version {model.base}, this device holds {self.base(chunk)}"
            )
        if where.size and not (chunk.start <= where[0] and where[-1] < chunk.stop):
            raise Malformed(
                f"parameters {where[0]} to {where[-1]} are none of {chunk.start} to {chunk.stop - 1}"
            )
        if model.changes and where.size:
            raise Malformed("the centre came as changes instead of values")
        if not np.isfinite(new).all():
            raise NonFinite("the centre holds NaN or infinity: the run has diverged")
        self._centre[where] = new
        self._versions[chunk.start] = model.version

    def make_update(self, chunk: ParameterRange, sequence: int) -> tuple[Update, ElasticMove]:
        """Return the update from `chunk` to its centre and the move, after moving x. Raises Diverged."""
        part, welcome = slice(chunk.start, chunk.stop), self._welcome
        difference = self._centre[part] - self._own[part]
        if not np.isfinite(difference).all():
            raise Diverged("the device's parameters are no numbers: lower local.rate or check the data")
        if welcome.select >= 1 and welcome.significance is None:
            sent = difference
            indices = None if difference.size == self._layout.size else np.arange(part.start, part.stop)
            modes = _whole_modes(welcome)
        else:
            selected = select_entries(difference, chunk.layout, welcome, self._centre[part], sequence)
            sent, indices = difference[selected], selected + part.start
            modes = welcome.indices, welcome.values
        coded = entries.encode(sent, indices, self._layout, *modes)
        arrives = entries.decode_values(coded, sent, indices, self._layout)
        # An update counts at most one period's samples; after a slow exchange the rest counts later.
        samples = min(self._uncounted_samples, sum(step.samples for step in self._steps))
        self._uncounted_samples -= samples
        moved = slice(None) if indices is None else indices
        move = ElasticMove(moved, np.float32(welcome.elastic) * arrives, samples)
        self._own[move.indices] += move.change
        latest = self._steps[-1]
        update = Update(
            sequence=sequence,
            base=self._versions[chunk.start],
            index_mode=coded.index_mode,
            value_mode=coded.value_mode,
            count=sent.size,
            indices=coded.indices,
            values=coded.values + values.encode_statistics(latest.statistics),
            loss=sum(step.loss for step in self._steps) / len(self._steps),
            samples=samples,
            pull=False,
        )
        return update, move

    def take_back(self, move: ElasticMove) -> None:
        """Undo the move: the update was refused."""
        self._own[move.indices] -= move.change
        self._uncounted_samples += move.samples

    def reset(self, chunk: ParameterRange) -> None:
        """Reset the chunk to the centre: the update was refused for its size."""
        part = slice(chunk.start, chunk.stop)
        self._own[part] = self._centre[part]
        if self._velocity is not None:
            self._velocity[part] = 0


def _whole_modes(welcome: Welcome) -> tuple[int, int]:
    """Return the coding modes of a chunk sent whole. A grid cannot code it."""
    if welcome.indices == sparse.GRID:
        return sparse.RUNS, values.CODINGS["codebook4"].mode
    return sparse.RUNS, welcome.values


log = logging.getLogger(__name__)


class Averaging:
    """Runs the exchanges of a device's chunks: one request at a time, and x moves only between steps."""

    def __init__(
        self,
        pull: Callable[[int | None, int, int, int], Awaitable[Model]],
        push: Callable[[Update], Awaitable[None]],
        elastic: Elastic,
        chunks: list[ParameterRange],
        period: int,
        sequence: int,
    ) -> None:
        """`sequence` is the number of the device's last update; a chunk is exchanged every `period` steps."""
        self._pull, self._push = pull, push
        self._elastic = elastic
        self._chunks = chunks
        self._period = period
        self._sequence = sequence
        self._request_lock, self._step_lock = asyncio.Lock(), asyncio.Lock()
        self._pending: dict[int, asyncio.Task[None]] = {}
        self._steps = 0

    async def step(
        self, compute: Callable[..., Awaitable[LocalSteps]], gradient: Callable[..., LocalSteps]
    ) -> LocalSteps:
        """Take one step of the device, and start the exchanges that are due after it.

        Raises the error of a failed exchange: RunOver, RunReplaced, Diverged, ServerAtFault, ...
        """
        async with self._step_lock:
            done = await compute(gradient, self._elastic.gradient_point())
            self._elastic.descend(done)
        self._steps += 1
        self._raise_failures()
        for number, chunk in enumerate(self._chunks):
            if self._steps % self._period == phase(number, len(self._chunks), self._period):
                if earlier := self._pending.get(number):
                    await earlier
                self._pending[number] = asyncio.create_task(self._exchange(chunk))
        if len(self._chunks) == 1:
            await self.finish()
        return done

    async def finish(self) -> None:
        """Wait until no exchange is pending."""
        for number in list(self._pending):
            await self._pending[number]
            del self._pending[number]

    async def stop(self) -> None:
        """Cancel the pending exchanges."""
        for task in self._pending.values():
            task.cancel()
        await asyncio.gather(*self._pending.values(), return_exceptions=True)

    def _raise_failures(self) -> None:
        """Raise the error of an exchange that has failed."""
        for number, task in list(self._pending.items()):
            if task.done():
                del self._pending[number]
                task.result()

    async def _exchange(self, chunk: ParameterRange) -> None:
        """Exchange one chunk, and retry until the server accepts it."""
        too_large = 0
        while True:
            async with self._request_lock:
                model = await self._pull(self._elastic.base(chunk), 0, chunk.start, chunk.stop)
            async with self._step_lock:
                try:
                    self._elastic.take(chunk, model)
                except Refused as error:
                    raise ServerAtFault(f"the server's centre is not valid here: {error}") from error
                update, move = self._elastic.make_update(chunk, self._sequence + 1)
            try:
                async with self._request_lock:
                    await self._push(replace(update, sequence=self._sequence + 1))
                    self._sequence += 1
                return
            except (BaseExpired, BaseInFuture) as stale:
                log.info("%s", stale)
                async with self._step_lock:
                    self._elastic.take_back(move)
            except StepTooLarge as large:
                too_large += 1
                if too_large == MAX_REFUSALS:
                    raise Diverged(f"{too_large} updates in a row were refused: {large}") from large
                log.warning("%s", large)
                async with self._step_lock:
                    self._elastic.reset(chunk)

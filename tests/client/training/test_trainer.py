"""A device's step: batches, local steps, running statistics, and what is passed over."""

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from edgeflock.client.data.batcher import Shuffled
from edgeflock.client.training.trainer import Trainer
from edgeflock.shared.codecs import sparse
from edgeflock.shared.data.datasets import Dataset
from edgeflock.shared.errors import Diverged
from edgeflock.shared.model.gradient import Gradient
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.protocol.messages import Model, Receipt, Update, Welcome
from tests.client.training.fakes import (
    F32,
    HALVED,
    LAYOUT,
    NOTHING,
    WELCOME,
    FakeBackend,
    FakeServer,
    falling,
    gradient_at,
    listed,
    sent,
    theta_at,
    worker,
)


def trainer(backend: FakeBackend, welcome: Welcome) -> Trainer:
    data = Dataset(np.zeros((50, 1), np.float32), np.arange(50))
    return Trainer(backend, Shuffled(data, np.random.default_rng(0)), welcome)


def test_the_same_steps_give_the_same_update() -> None:
    """Of the version and under the number that it was asked for; the model stays as it is."""
    theta = theta_at(3)
    theta.flags.writeable = False
    for local_steps in (1, 3):
        welcome = replace(WELCOME, local_steps=local_steps, feedback=HALVED)
        one, other = (trainer(FakeBackend(), welcome) for _ in range(2))
        for sequence in (41, 42):
            update = one.step(theta, 3, sequence)
            assert update == other.step(theta, 3, sequence)
            assert (update.base, update.sequence, update.samples) == (3, sequence, 6 * local_steps)


def test_what_is_taken_back_is_sent_again() -> None:
    training = trainer(listed(falling(1), falling(0)), replace(WELCOME, feedback=HALVED))
    assert sent(training.step(theta_at(3), 3, 41)) == {0: 14, 1: 13, 10: 4}
    training.take_back()
    assert sent(training.step(theta_at(4), 4, 41)) == {0: 7, 1: 6.5, 10: 2}


async def test_batches_are_of_the_size_that_the_run_asks_for() -> None:
    server, backend = FakeServer([None] * 9), FakeBackend()
    await worker(server, backend, samples=12).run()
    drawn = [target for _, targets in backend.seen for target in targets]
    assert all(len(targets) == 6 for _, targets in backend.seen)
    assert sorted(drawn) == sorted(list(range(12)) * 5)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
async def test_a_bad_batch_is_passed_over(bad: float) -> None:
    good, broken = gradient_at(theta_at(3)), gradient_at(theta_at(3))
    broken[5] = bad
    backend = FakeBackend(gradients=iter([broken] * 19 + [good] + [broken] * 19 + [good]))
    server = FakeServer([None])
    assert (await worker(server, backend).run()).updates == 1
    assert len(server.updates) == 2
    assert all(np.isfinite(np.frombuffer(update.values, "<f4")).all() for update in server.updates)


async def test_a_diverged_model_ends_the_worker() -> None:
    broken = np.full(LAYOUT.size, np.nan, np.float32)
    backend = FakeBackend(gradients=iter([broken] * 1000))
    server = FakeServer([])
    with pytest.raises(Diverged, match="20 batches in a row gave NaN or infinite gradients"):
        await worker(server, backend).run()
    assert len(backend.seen) == 20
    assert server.updates == []


# Local steps


@dataclass
class Quadratic:
    """Loss |theta - centre|^2 / 2 in one buffer that every call overwrites."""

    centre: NDArray[np.float32]
    layout: Layout = LAYOUT
    name: str = "quadratic"
    buffer: NDArray[np.float32] = field(default_factory=lambda: np.zeros(LAYOUT.size, np.float32))
    calls: int = 0
    bad: int = -1
    """The call whose gradient is not a number."""

    def gradient(
        self, theta: NDArray[np.float32], x: NDArray[np.float32], y: NDArray[np.generic]
    ) -> Gradient:
        assert not np.shares_memory(theta, self.buffer)
        self.calls += 1
        self.buffer[:] = np.nan if self.calls == self.bad else theta - self.centre
        return Gradient(
            float(np.square(theta - self.centre, dtype=np.float64).sum() / 2), self.buffer, NOTHING
        )


CENTRE = np.linspace(-2, 5, LAYOUT.size).astype(np.float32)


def local(steps: int, rate: float = 0.125) -> Welcome:
    return replace(WELCOME, select=1.0, local_steps=steps, local_rate=rate)


@pytest.mark.parametrize("bad", [-1, 1, 3])
@pytest.mark.parametrize("steps", [1, 2, 5, 40])
async def test_an_update_of_local_steps_is_the_sum_along_the_path(steps: int, bad: int) -> None:
    """Each step shrinks theta - centre by 1 - r, so that the gradients sum to (1 - (1 - r)^H) / r of it."""
    rate, backend = 0.125, Quadratic(CENTRE, bad=bad)
    server = FakeServer([None], local(steps, rate))
    progress = await worker(server, backend).run()
    for version, update in zip((3, 4), server.updates, strict=True):
        away = theta_at(version).astype(np.float64) - CENTRE
        expected = away * (1 - (1 - rate) ** steps) / rate
        np.testing.assert_allclose(np.frombuffer(update.values, "<f4"), expected, rtol=1e-5, atol=1e-6)
        shrunk = (1 - (1 - rate) ** (2 * steps)) / (1 - (1 - rate) ** 2)  # of the squares, summed
        assert update.loss == pytest.approx((away**2).sum() / 2 * shrunk / steps, rel=1e-5)
        assert update.samples == 6 * steps
        assert update.base == version
    assert progress.samples == 6 * steps
    assert backend.calls == 2 * steps + (0 < bad <= 2 * steps)


async def test_one_local_step_is_the_gradient_itself() -> None:
    server, backend = FakeServer([], local(1)), Quadratic(CENTRE)
    await worker(server, backend).run()
    assert server.updates[0].values == (theta_at(3) - CENTRE).tobytes()
    assert server.updates[0].loss == backend.gradient(theta_at(3), np.zeros(1, np.float32), np.zeros(1))[0]


@dataclass
class Fresh(Quadratic):
    """The same, in an array of its own each time."""

    def gradient(
        self, theta: NDArray[np.float32], x: NDArray[np.float32], y: NDArray[np.generic]
    ) -> Gradient:
        found = super().gradient(theta, x, y)
        return found._replace(gradient=found.gradient.copy())


@pytest.mark.parametrize("terms", [{"momentum": 0.5}, {"adam": True}, {"momentum": 0.5, "proximal": 0.5}])
def test_what_local_steps_remember_of_a_gradient_the_next_one_does_not_overwrite(
    terms: dict[str, Any],
) -> None:
    welcome = replace(local(4), **terms)
    updates = []
    for backend in (Quadratic(CENTRE), Fresh(CENTRE)):
        data = Dataset(np.zeros((50, 1), np.float32), np.arange(50))
        one = Trainer(backend, Shuffled(data, np.random.default_rng(0)), welcome)
        updates.append(one.step(theta_at(3), 3, 41))
    assert updates[0].values == updates[1].values


async def test_local_steps_leave_the_replica_alone() -> None:
    """The device's copy is the server's model; it steps on a copy of that."""
    seen: list[NDArray[np.float32]] = []

    class Watching(Quadratic):
        def gradient(
            self, theta: NDArray[np.float32], x: NDArray[np.float32], y: NDArray[np.generic]
        ) -> Gradient:
            seen.append(theta.copy())
            return super().gradient(theta, x, y)

    class Frugal(FakeServer):
        """Answers with the one parameter that changed, so that what was held shows."""

        async def push(self, update: Update) -> Receipt:
            receipt = await super().push(update)
            one = Model(receipt.version, update.base, sparse.RAW, F32, 1, bytes(4), bytes(4))
            return replace(receipt, model=one)

    server = Frugal([None], local(3))
    await worker(server, Watching(CENTRE)).run()
    assert seen[0].tolist() == theta_at(3).tolist()
    assert seen[1].tolist() != seen[0].tolist()
    assert seen[3].tolist() == [0] + [3] * 13


async def test_local_steps_take_a_batch_each() -> None:
    server, backend = FakeServer([], local(2)), FakeBackend()
    await worker(server, backend, samples=12).run()
    drawn = [target for _, targets in backend.seen for target in targets]
    assert sorted(drawn) == list(range(12))


async def test_local_steps_of_few_samples() -> None:
    """A device with less than a batch counts what it has, for each step."""
    server = FakeServer([], local(3))
    await worker(server, Quadratic(CENTRE), samples=4).run()
    assert server.updates[0].samples == 12


async def test_local_steps_and_feedback_together() -> None:
    """The memory is of sums: the buffer that the backend overwrites is in none of it."""
    welcome = replace(WELCOME, feedback=HALVED, local_steps=2, local_rate=0.5)
    backend = Quadratic(np.zeros(LAYOUT.size, np.float32))
    server = FakeServer([None], welcome)
    await worker(server, backend).run()
    # theta is all 3, then all 4: gradients 3 + 1.5 and 4 + 2; three of the 14 entries are sent.
    first, second = (sent(update) for update in server.updates)
    assert set(first.values()) == {4.5}
    assert set(second.values()) == {6 + 4.5 / 2}
    assert not set(first) & set(second)


# Running statistics

NORMED = Layout.from_shapes(
    [("kernel", (2, 5)), ("bias", (4,)), ("mean", (2,), True), ("variance", (1,), True)]
)
AGAINST = replace(WELCOME, layout=list(NORMED.shapes()), select=1.0)


class NormedServer(FakeServer):
    """A model whose statistics are 100, 200 and 300 at any version."""

    async def pull(self, base: int | None, held: int = 0, start: int = 0, stop: int = 0) -> Model:
        theta = np.concatenate((theta_at(self.version), np.array([100, 200, 300], np.float32)))
        return Model(self.version, None, sparse.DENSE, F32, NORMED.size, b"", theta.tobytes())

    async def push(self, update: Update) -> Receipt:
        receipt = await super().push(update)
        return replace(receipt, model=await self.pull(None))


@dataclass
class NormedBackend:
    """The gradient of theta[:P]; the statistics listed, in arrays that calls overwrite."""

    batches: Iterator[list[float]]
    layout: Layout = NORMED
    name: str = "normed"
    broken: int = -1
    """The call whose gradient is not a number."""
    seen: list[list[float]] = field(default_factory=list)
    _gradient: NDArray[np.float32] = field(default_factory=lambda: np.zeros(LAYOUT.size, np.float32))
    _statistics: NDArray[np.float32] = field(default_factory=lambda: np.zeros(3, np.float32))

    def gradient(
        self, theta: NDArray[np.float32], x: NDArray[np.float32], y: NDArray[np.generic]
    ) -> Gradient:
        self.seen.append(theta.tolist())
        self._gradient[:] = np.nan if len(self.seen) == self.broken else theta[: LAYOUT.size]
        self._statistics[:] = next(self.batches)
        return Gradient(0.5, self._gradient, self._statistics)


def statistics_of(update: Update) -> list[float]:
    return list(struct.unpack("<3e", update.values[-6:]))


@pytest.mark.parametrize(("select", "count"), [(1.0, 14), (0.2, 3)])
async def test_statistics_follow_the_values(select: float, count: int) -> None:
    server = NormedServer([None], replace(AGAINST, select=select))
    backend = NormedBackend(iter([[1, -2.5, 0.25], [65504, -65504, 0.0625]]))
    assert (await worker(server, backend).run()).updates == 1
    first, second = server.updates
    for update in (first, second):
        assert update.count == count
        assert len(update.values) == 4 * count + 2 * 3
    assert set(np.frombuffer(first.values[:-6], "<f4")) == {3}
    assert statistics_of(first) == [1, -2.5, 0.25]
    assert statistics_of(second) == [65504, -65504, 0.0625]


async def test_statistics_are_never_selected_nor_remembered() -> None:
    """However large; the largest fraction is one of the P parameters, and none of them comes twice."""
    server = NormedServer([None], replace(AGAINST, select=0.2, feedback=HALVED))
    await worker(server, NormedBackend(iter([[1e4, 1e4, 1e4], [1, 1, 1]]))).run()
    assert [statistics_of(update) for update in server.updates] == [[1e4] * 3, [1] * 3]
    for update in server.updates:
        assert np.frombuffer(update.indices, "<u4").max() < LAYOUT.size


async def test_local_steps_send_the_mean_of_their_statistics() -> None:
    """Each batch counts alike; meanwhile the device's own stay what the server's are."""
    server = NormedServer([None], replace(AGAINST, local_steps=4, local_rate=0.5))
    backend = NormedBackend(iter([[1, 2, 3], [2, 2, 3], [3, 2, 3], [10, 2, 3]] * 2))
    await worker(server, backend).run()
    for update in server.updates:
        assert statistics_of(update) == [4, 2, 3]
    assert {tuple(theta[-3:]) for theta in backend.seen} == {(100, 200, 300)}
    assert [theta[0] for theta in backend.seen] == [3, 1.5, 0.75, 0.375, 4, 2, 1, 0.5]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 65600.0, -1e9])
async def test_a_batch_with_bad_statistics_is_passed_over(bad: float) -> None:
    server = NormedServer([], AGAINST)
    backend = NormedBackend(iter([[1, bad, 1]] * 19 + [[1, 2, 3]]))
    await worker(server, backend).run()
    assert [statistics_of(update) for update in server.updates] == [[1, 2, 3]]


async def test_statistics_of_a_bad_gradient_are_not_sent() -> None:
    server = NormedServer([], replace(AGAINST, local_steps=2))
    backend = NormedBackend(iter([[1, 1, 1], [9, 9, 9], [3, 3, 3]]), broken=2)
    await worker(server, backend).run()
    assert [statistics_of(update) for update in server.updates] == [[2, 2, 2]]


async def test_statistics_beyond_half_precision_are_a_model_that_diverged() -> None:
    """As of inputs in the thousands that nobody has scaled."""
    server = NormedServer([], AGAINST)
    with pytest.raises(
        Diverged, match=r"NaN or infinite gradients or statistics beyond 65504.*scale the inp"
    ):
        await worker(server, NormedBackend(iter([[1, 2, 1e6]] * 20))).run()
    assert server.updates == []

"""Elastic averaging on a device, against its formulas; and a worker's exchanges."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from edgeflock.client.data.batcher import Shuffled
from edgeflock.client.training.conversation import ServerLink
from edgeflock.client.training.elastic import Elastic
from edgeflock.client.training.local_optimizer import Adafactor
from edgeflock.client.training.selector import LocalSteps
from edgeflock.client.training.terms import layout_of
from edgeflock.client.training.worker import Worker
from edgeflock.shared.codecs import entries, sparse, values
from edgeflock.shared.data.datasets import Dataset
from edgeflock.shared.errors import (
    BaseExpired,
    Diverged,
    Malformed,
    NonFinite,
    Refused,
    RunOver,
    RunReplaced,
    ServerAtFault,
    StepTooLarge,
)
from edgeflock.shared.model.chunks import ParameterRange, chunks
from edgeflock.shared.protocol.messages import Model, Receipt, Update, Welcome
from tests.client.training.fakes import F32, LAYOUT, NOTHING, WELCOME, FakeBackend, training

ALPHA = 0.25
ELASTIC = replace(WELCOME, elastic=ALPHA, local_rate=0.5, local_steps=4, select=1.0, indices=sparse.GOLOMB)
WHOLE = chunks(LAYOUT, 0)[0]
Vector = NDArray[np.float32]


def step(*gradient: float) -> LocalSteps:
    padded = np.zeros(LAYOUT.size, np.float32)
    padded[: len(gradient)] = gradient
    return LocalSteps(0.5, padded, NOTHING, 6)


def numbered(scale: float = 1) -> Vector:
    return (np.arange(LAYOUT.size) * scale).astype(np.float32)


def centre(chunk: ParameterRange, theta: Vector, version: int) -> Model:
    """As the server tells it, whole."""
    where = np.arange(chunk.start, chunk.stop)
    octets = theta[where].tobytes()
    return Model(
        version, None, sparse.RUNS, F32, where.size, sparse.encode(where, LAYOUT.size, sparse.RUNS), octets
    )


def arrived(update: Update) -> Vector:
    """delta: float32 [P]."""
    where, delta = entries.decode(
        update.index_mode, update.value_mode, update.count, update.indices, update.values, LAYOUT
    )
    dense = np.zeros(LAYOUT.size, np.float32)
    dense[where] = delta
    return dense


def test_both_ends_move_towards_each_other_by_alpha_of_their_difference() -> None:
    """Algorithm 1: x <- x - alpha (x - c), c <- c + alpha (x - c)."""
    device = Elastic(np.zeros(LAYOUT.size, np.float32), 3, LAYOUT, ELASTIC)
    device.descend(step(*numbered(-2)))
    assert device.x.tolist() == numbered().tolist()
    theta = numbered(3)
    device.take(WHOLE, centre(WHOLE, theta, 5))
    update, _ = device.make_update(WHOLE, 9)
    assert (update.sequence, update.base, update.samples, update.loss) == (9, 5, 6, 0.5)
    assert device.x.tolist() == (numbered() - ALPHA * (numbered() - theta)).tolist()
    assert (theta - ALPHA * arrived(update)).tolist() == (theta + ALPHA * (numbered() - theta)).tolist()


def test_a_sample_counts_once_however_many_chunks_follow_its_step() -> None:
    device = Elastic(np.zeros(LAYOUT.size, np.float32), 3, LAYOUT, ELASTIC)
    one, other = chunks(LAYOUT, 4)[:2]
    for chunk in (one, other):
        device.take(chunk, centre(chunk, numbered(), 5))
    device.descend(step(1))
    update, moved = device.make_update(one, 1)
    assert (update.samples, device.make_update(other, 2)[0].samples) == (6, 0)
    device.take_back(moved)
    assert device.make_update(other, 2)[0].samples == 6
    for _ in range(5):  # an exchange took longer than a period of four
        device.descend(step(1))
    assert [device.make_update(chunk, 3)[0].samples for chunk in (one, other)] == [24, 6]


def test_momentum_is_nesterov_s() -> None:
    """EAMSGD: v <- delta v - eta g(x + delta v), x <- x + v."""
    device = Elastic(np.zeros(LAYOUT.size, np.float32), 0, LAYOUT, replace(ELASTIC, momentum=0.5))
    assert device.gradient_point()[0] == 0
    device.descend(step(4.0))
    assert device.x[0] == -2
    assert device.gradient_point()[0] == -2 + 0.5 * -2
    device.descend(step(4.0))
    assert device.x[0] == -2 + (0.5 * -2 - 2)


def test_it_may_go_by_adafactor() -> None:
    """x <- x - eta d(g), by the device's own second moments; theta of 0 counts as 0.05."""
    theta, gradient = numbered(0.5), np.linspace(-3, 3, LAYOUT.size, dtype=np.float32)
    device = Elastic(theta, 0, LAYOUT, replace(ELASTIC, adafactor=0.99))
    other = Adafactor(LAYOUT.parameters, 0.99)
    wanted = theta.copy()
    for times in (1, 5):
        device.descend(LocalSteps(0.5, times * gradient, NOTHING, 6))
        wanted -= np.float32(0.5) * other.direction(wanted, times * gradient)
    np.testing.assert_array_equal(device.x, wanted)


CODINGS = [
    (indices.mode, worth.mode)
    for name, indices in sparse.CODINGS.items()
    for value, worth in values.CODINGS.items()
    if (name == "grid") == (value == "scale")
]


@pytest.mark.parametrize(("indices", "worth"), CODINGS)
@given(
    numbers=st.lists(st.integers(-9, 9), min_size=LAYOUT.size, max_size=LAYOUT.size),
    size=st.sampled_from([0, 3, 10]),
    selects=st.sampled_from([{"select": 1.0}, {"select": 0.3}, {"significance": 0.5}]),
)
def test_what_a_coding_loses_stays_on_the_device(
    indices: int, worth: int, numbers: list[int], size: int, selects: dict[str, float]
) -> None:
    """x + centre is after an exchange what it was before: the error is kept, whatever is sent."""
    terms: Any = selects
    welcome = replace(ELASTIC, indices=indices, values=worth, **terms)
    theta = numbered(2) + 1
    device = Elastic(theta, 0, LAYOUT, welcome)
    device.descend(step(*numbers))
    before = device.x + theta
    for chunk in chunks(LAYOUT, size):
        device.take(chunk, centre(chunk, theta, 1))
        update, _ = device.make_update(chunk, 1)
        delta = arrived(update)
        assert not delta[: chunk.start].any()
        assert not delta[chunk.stop :].any()
        theta = theta - np.float32(ALPHA) * delta
    np.testing.assert_allclose(device.x + theta, before, rtol=1e-5, atol=1e-4)


def test_what_was_refused_is_taken_back() -> None:
    device = Elastic(np.zeros(LAYOUT.size, np.float32), 0, LAYOUT, ELASTIC)
    device.descend(step(*numbered(-2)))
    device.take(WHOLE, centre(WHOLE, numbered(3), 5))
    _, given_ = device.make_update(WHOLE, 1)
    device.take_back(given_)
    assert device.x.tolist() == numbered().tolist()
    device.reset(WHOLE)
    assert device.x.tolist() == numbered(3).tolist()


def test_a_centre_may_come_as_a_difference() -> None:
    device = Elastic(numbered(), 4, LAYOUT, ELASTIC)
    chunk = chunks(LAYOUT, 5)[1]
    where = np.array([6, 8])
    octets = np.array([60, 80], np.float32).tobytes()
    assert device.base(chunk) == 4
    device.take(chunk, Model(7, 4, sparse.RAW, F32, 2, sparse.encode(where, LAYOUT.size, sparse.RAW), octets))
    assert device.base(chunk) == 7
    assert device.base(chunks(LAYOUT, 5)[0]) == 4
    device.descend(step())
    assert arrived(device.make_update(chunk, 1)[0])[[5, 6, 8]].tolist() == [0, 54, 72]


def raw(where: list[int], numbers: list[float], base: int | None, *, changes: bool = False) -> Model:
    return Model(
        7,
        base,
        sparse.RAW,
        F32,
        len(where),
        sparse.encode(np.array(where, np.int64), LAYOUT.size, sparse.RAW),
        np.array(numbers, np.float32).tobytes(),
        changes,
    )


@pytest.mark.parametrize(
    ("model", "error"),
    [
        (raw([6], [1], 3), Malformed),  # builds on another version
        (raw([6], [1], None), Malformed),  # not all of it
        (raw([4], [1], 4), Malformed),  # of another chunk
        (raw([6], [1], 4, changes=True), Malformed),  # lossy
        (raw([6], [np.nan], 4), NonFinite),
    ],
)
def test_a_centre_that_is_none_changes_nothing(model: Model, error: type[Refused]) -> None:
    device = Elastic(numbered(), 4, LAYOUT, ELASTIC)
    chunk = chunks(LAYOUT, 5)[1]
    with pytest.raises(error):
        device.take(chunk, model)
    assert device.base(chunk) == 4
    device.take(chunk, raw([], [], 4))
    device.descend(step())
    assert not arrived(device.make_update(chunk, 1)[0]).any()


def test_a_part_of_a_chunk_is_no_beginning() -> None:
    device = Elastic(numbered(), None, LAYOUT, ELASTIC)
    with pytest.raises(Malformed, match="from version None, this device holds None"):
        device.take(WHOLE, raw([6], [1], None))


def test_parameters_that_are_no_numbers_are_not_sent() -> None:
    device = Elastic(numbered(), 4, LAYOUT, ELASTIC)
    device.descend(step(np.inf))
    device.take(WHOLE, centre(WHOLE, numbered(), 4))
    with pytest.raises(Diverged):
        device.make_update(WHOLE, 1)


@pytest.mark.parametrize(
    "terms", [{"elastic": 1.0}, {"elastic": -0.1}, {"momentum": 1.0}, {"elastic": float("nan")}]
)
def test_terms_that_cannot_be_are_the_server_s_fault(terms: dict[str, float]) -> None:
    wrong: Any = terms
    with pytest.raises(ServerAtFault):
        layout_of(replace(ELASTIC, **wrong), 1 << 30)


# A worker


@dataclass
class Centre(ServerLink):
    """A server that averages."""

    replies: list[Exception | None] = field(default_factory=list)
    """What each push meets; after the last one the run is over."""
    welcome: Welcome = ELASTIC
    theta: Vector = field(default_factory=numbered)
    version: int = 3
    parts: list[tuple[int, int]] = field(default_factory=list)
    updates: list[Update] = field(default_factory=list)
    joined: int = 0
    pushing: Callable[[], Any] = lambda: asyncio.sleep(0)

    async def join(self) -> Welcome:
        self.joined += 1
        return self.welcome

    async def pull(self, base: int | None, held: int = 0, start: int = 0, stop: int = 0) -> Model:
        if not stop:
            return Model(self.version, None, sparse.DENSE, F32, LAYOUT.size, b"", self.theta.tobytes())
        self.parts.append((start, stop))
        return centre(ParameterRange(start, stop, LAYOUT), self.theta, self.version)

    async def push(self, update: Update) -> Receipt:
        await self.pushing()
        self.updates.append(update)
        reply = self.replies.pop(0) if self.replies else RunOver("the run has its updates")
        if reply is not None:
            raise reply
        self.version += 1
        self.theta = self.theta - np.float32(ALPHA) * arrived(update)
        return Receipt(update.sequence, self.version, None)

    def announce_layout(self, layout: bytes) -> None:
        pass


def worker(server: Centre, backend: FakeBackend | None = None) -> Worker:
    batches = Shuffled(Dataset(np.zeros((50, 1), np.float32), np.arange(50)), np.random.default_rng(0))

    async def at_once(function: Callable[..., Any], *arguments: Any) -> Any:
        await asyncio.sleep(0)
        return function(*arguments)

    return Worker(server, training(backend or FakeBackend(), batches), batches, at_once)


async def test_it_trains_on_its_own_between_exchanges() -> None:
    server = Centre([None, None])
    backend = FakeBackend()
    progress = await worker(server, backend).run()
    assert (progress.updates, progress.samples) == (2, 11 * 6)  # the last step was in vain
    assert [update.sequence for update in server.updates] == [41, 42, 43]
    assert [update.base for update in server.updates] == [3, 4, 5]
    assert not any(update.pull for update in server.updates)
    x, c = numbered(), numbered()
    for update, seen in zip(
        server.updates, (backend.seen[:4], backend.seen[4:8], backend.seen[8:]), strict=True
    ):
        for theta, _ in seen:
            assert theta == x.tolist()
            gradient = ((x + np.arange(LAYOUT.size)) * (1 - 2 * (np.arange(LAYOUT.size) % 2))).astype(
                np.float32
            )
            x = x + np.float32(-0.5) * gradient
        assert arrived(update).tolist() == (c - x).tolist()
        x, c = x + np.float32(ALPHA) * (c - x), c - np.float32(ALPHA) * (c - x)


async def test_chunks_are_exchanged_each_at_its_own_step_while_the_rest_trains() -> None:
    """5, 5 and 4 parameters in a period of 4: after steps 1, 2 and 4."""
    release = asyncio.Event()
    server = Centre([None] * 6, replace(ELASTIC, chunk=5), pushing=release.wait)
    backend = FakeBackend()
    running = asyncio.create_task(worker(server, backend).run())
    while len(backend.seen) < 4:
        await asyncio.sleep(0)
    assert not server.updates  # the first push is under way, and four steps are done
    release.set()
    await running
    assert server.parts[:3] == [(5, 10), (10, 14), (0, 5)]
    assert [update.sequence for update in server.updates] == list(range(41, 48))


async def test_a_chunk_that_is_due_again_is_waited_for() -> None:
    release = asyncio.Event()
    server = Centre([None] * 6, replace(ELASTIC, chunk=5), pushing=release.wait)
    backend = FakeBackend()
    running = asyncio.create_task(worker(server, backend).run())
    for _ in range(500):
        await asyncio.sleep(0)
    assert len(backend.seen) == 5  # the chunk of step 1
    release.set()
    await running


async def test_an_expired_base_is_pulled_again() -> None:
    server = Centre([BaseExpired("pull again"), None])
    progress = await worker(server).run()
    assert (progress.updates, progress.refused) == (1, 1)
    first, again, *_ = server.updates
    assert first.sequence == again.sequence
    np.testing.assert_allclose(arrived(again), arrived(first), rtol=1e-5)


async def test_one_that_is_too_large_begins_again_from_the_centre() -> None:
    server = Centre([StepTooLarge("beyond"), None])
    await worker(server).run()
    assert not arrived(server.updates[1]).any()


async def test_it_gives_up_on_updates_that_stay_too_large() -> None:
    with pytest.raises(Diverged, match="3 updates in a row"):
        await worker(Centre([StepTooLarge("beyond")] * 3)).run()


async def test_another_run_begins_from_its_own_model() -> None:
    server = Centre([None, RunReplaced("another run")], replace(ELASTIC, chunk=5))
    progress = await worker(server).run()
    assert server.joined == 2
    assert progress.updates == 1

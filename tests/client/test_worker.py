"""What a device does (AdaComp, Algorithm 1), against a server and a training engine made of lists."""

import asyncio
import math
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from numpy.typing import NDArray

from edgeflock.client.backend import Backend
from edgeflock.client.batcher import Batch, Shuffled, StreamOver
from edgeflock.client.transport import RunOver, RunReplaced
from edgeflock.client.worker import Progress, Worker
from edgeflock.devices.clock import run_virtually
from edgeflock.shared import grid, sparse, values
from edgeflock.shared.datasets import Dataset
from edgeflock.shared.errors import (
    BadSequence,
    BaseExpired,
    BaseInFuture,
    ConfigError,
    Diverged,
    LayoutMismatch,
    Refused,
    Unauthorized,
)
from edgeflock.shared.layout import Layout
from edgeflock.shared.messages import PROTOCOL, Facts, Model, Receipt, Update, Welcome

LAYOUT = Layout.of([("kernel", (2, 5)), ("bias", (4,))])
F32 = values.CODINGS["f32"].mode
NOTHING = np.zeros(0, np.float32)
"""The statistics of a model without running statistics."""

WELCOME = Welcome(
    protocol=PROTOCOL,
    run="run",
    model="package:Model",
    loss="mse",
    layout=list(LAYOUT.shapes()),
    version=3,
    sequence=40,
    batch=6,
    local_steps=1,
    local_rate=0.5,
    select=0.2,
    balance=1.0,
    threshold=0.0,
    feedback=0.0,
    indices=sparse.RAW,
    values=F32,
    frame_bytes=1 << 20,
    alpha=0.0,
    beta=0.0,
)

Reply = Exception | None
"""What a push meets: a refusal or the like, or None for a receipt."""


def theta_at(version: int) -> NDArray[np.float32]:
    """What this server's model is at a version."""
    return np.full(LAYOUT.size, version, np.float32)


def model_at(version: int) -> Model:
    return Model(version, None, sparse.DENSE, F32, LAYOUT.size, b"", theta_at(version).tobytes())


@dataclass
class FakeServer:
    """Answers pushes by a script, then says that the run is over. Each accepted update makes a version."""

    replies: list[Reply]
    welcome: Welcome = WELCOME
    asked: list[object] = field(default_factory=list)
    """What was asked, in order: "join", ("pull", base), ("speak as", digest) or the Update."""

    def __post_init__(self) -> None:
        self.version = self.welcome.version

    @property
    def updates(self) -> list[Update]:
        return [question for question in self.asked if isinstance(question, Update)]

    async def join(self) -> Welcome:
        self.asked.append("join")
        return self.welcome

    async def pull(self, base: int | None) -> Model:
        self.asked.append(("pull", base))
        return model_at(self.version)

    async def push(self, update: Update) -> Receipt:
        self.asked.append(update)
        reply = self.replies.pop(0) if self.replies else RunOver("the run has its updates")
        if reply is not None:
            raise reply
        self.version += 1
        return Receipt(update.sequence, self.version, model_at(self.version))

    def speak_as(self, layout: bytes) -> None:
        self.asked.append(("speak as", layout))


@dataclass
class FakeBackend:
    """Computes the gradient theta + (0, 1, 2, ...), of alternating sign, or what is listed."""

    layout: Layout = LAYOUT
    name: str = "fake"
    gradients: Iterator[NDArray[np.float32]] | None = None
    seen: list[tuple[list[float], list[int]]] = field(default_factory=list)
    """theta and targets of each call."""

    def gradient(
        self, theta: NDArray[np.float32], x: NDArray[np.float32], y: NDArray[np.generic]
    ) -> tuple[float, NDArray[np.float32], NDArray[np.float32]]:
        self.seen.append((theta.tolist(), y.tolist()))
        if self.gradients is not None:
            return 0.5, next(self.gradients), NOTHING
        return float(theta[0]) / 2, gradient_at(theta), NOTHING


def gradient_at(theta: NDArray[np.float32]) -> NDArray[np.float32]:
    numbers = np.arange(LAYOUT.size, dtype=np.float32)
    return ((theta + numbers) * (1 - 2 * (numbers % 2))).astype(np.float32)


def worker(server: FakeServer, backend: Backend | Callable[[Welcome], Backend], samples: int = 50) -> Worker:
    data = Dataset(np.zeros((samples, 1), np.float32), np.arange(samples))

    async def make(welcome: Welcome) -> Backend:
        return backend(welcome) if callable(backend) else backend

    return Worker(server, make, Shuffled(data, np.random.default_rng(0)))


async def test_pull_step_keep_the_largest_push_again() -> None:
    """Algorithm 1: each update is from the model that the last receipt brought, and of its version."""
    server, backend = FakeServer([None, None, None]), FakeBackend()
    progress = await worker(server, backend).run()
    assert server.asked[:3] == ["join", ("speak as", LAYOUT.digest), ("pull", None)]
    assert server.asked[3:] == server.updates
    assert [update.base for update in server.updates] == [3, 4, 5, 6]
    assert [update.sequence for update in server.updates] == [41, 42, 43, 44]
    assert [theta for theta, _ in backend.seen] == [theta_at(version).tolist() for version in (3, 4, 5, 6)]
    # The fourth push met the end of the run.
    assert progress == Progress(updates=3, samples=18, refused=0, loss=5 / 2)


async def test_an_update_holds_the_largest_fraction_of_each_tensor() -> None:
    """c = 0.2 of 10 and of 4: two and one. At version 3 the gradient is +3, -4, +5, ... -16."""
    server = FakeServer([])
    await worker(server, FakeBackend()).run()
    (update,) = server.updates
    assert (update.index_mode, update.value_mode, update.count) == (sparse.RAW, F32, 3)
    assert np.frombuffer(update.indices, "<u4").tolist() == [8, 9, 13]
    assert np.frombuffer(update.values, "<f4").tolist() == [11, -12, -16]
    assert update.pull
    assert update.samples == 6
    assert update.loss == 1.5


@pytest.mark.parametrize("coding", [coding for coding in values.CODINGS if coding != "scale"])
@pytest.mark.parametrize("indices", [indices for indices in sparse.MODES if indices != "grid"])
async def test_an_update_is_coded_as_the_run_asks(coding: str, indices: str) -> None:
    welcome = replace(WELCOME, indices=sparse.MODES[indices], values=values.CODINGS[coding].mode)
    server = FakeServer([], welcome)
    await worker(server, FakeBackend()).run()
    (update,) = server.updates
    assert (update.index_mode, update.value_mode) == (welcome.indices, welcome.values)
    where = sparse.decode(update.indices, update.count, LAYOUT.size, update.index_mode)
    delta = values.decode(update.values, LAYOUT.counts(where), update.value_mode)
    assert where.tolist() == [8, 9, 13]
    assert np.sign(delta).tolist() == [1, -1, -1]
    assert np.abs(delta).tolist() == pytest.approx([11, 12, 16], rel=0.1)


SIGNED = replace(WELCOME, indices=sparse.GRID, values=values.CODINGS["scale"].mode)


def modes_of(indices: str, coding: str) -> tuple[int, int]:
    return {**sparse.MODES, "dense": sparse.DENSE}[indices], values.CODINGS[coding].mode


async def test_a_grid_carries_the_signs() -> None:
    server = FakeServer([], SIGNED)
    await worker(server, FakeBackend()).run()
    (update,) = server.updates
    assert (update.index_mode, update.value_mode) == modes_of("grid", "scale")
    where, negative = grid.decode(update.indices, update.count, LAYOUT)
    assert (where.tolist(), negative.tolist()) == ([8, 9, 13], [False, True, True])
    scales = values.decode(update.values, LAYOUT.counts(where), update.value_mode)
    assert scales.tolist() == pytest.approx([11.5, 11.5, 16], rel=2 ** (1 / 16) - 1)


async def test_a_dense_update_has_sign_bits_instead_of_a_grid() -> None:
    server = FakeServer([], replace(SIGNED, select=1.0))
    await worker(server, FakeBackend()).run()
    (update,) = server.updates
    assert (update.index_mode, update.value_mode) == modes_of("dense", "sign")


async def test_a_grid_that_does_not_fit_is_golomb_coded_with_sign_bits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Entries too scattered, or a stream longer than that would be."""
    server = FakeServer([None, None], SIGNED)
    streams = iter([bytes(9), None, None])
    monkeypatch.setattr(grid, "encode", lambda *update: next(streams))
    await worker(server, FakeBackend()).run()
    assert len(server.updates) == 3
    for update in server.updates:
        assert (update.index_mode, update.value_mode) == modes_of("golomb", "sign")
        where = sparse.decode(update.indices, update.count, LAYOUT.size, sparse.GOLOMB)
        delta = values.decode(update.values, LAYOUT.counts(where), update.value_mode)
        assert np.sign(delta).tolist() == [1 - 2 * (k % 2) for k in where.tolist()]


async def test_all_of_it_is_a_dense_update() -> None:
    server = FakeServer([], replace(WELCOME, select=1.0))
    await worker(server, FakeBackend()).run()
    (update,) = server.updates
    assert (update.index_mode, update.count, update.indices) == (sparse.DENSE, LAYOUT.size, b"")
    assert update.values == gradient_at(theta_at(3)).tobytes()


async def test_batches_are_of_the_size_that_the_run_asks_for() -> None:
    server, backend = FakeServer([None] * 9), FakeBackend()
    await worker(server, backend, samples=12).run()
    drawn = [target for _, targets in backend.seen for target in targets]
    assert all(len(targets) == 6 for _, targets in backend.seen)
    assert sorted(drawn) == sorted(list(range(12)) * 5)


@pytest.mark.parametrize("stale", [BaseExpired, BaseInFuture])
async def test_an_update_from_a_wrong_base_is_dropped_and_the_model_pulled(stale: type[Refused]) -> None:
    """The sequence number was not used: the next update takes it, from the model just pulled."""
    server, backend = FakeServer([None, stale("pull again"), None]), FakeBackend()
    progress = await worker(server, backend).run()
    first, dropped, pull, again, last = server.asked[3:]
    assert pull == ("pull", None)
    assert [one.sequence for one in (first, dropped, again, last) if isinstance(one, Update)] == [
        41,
        42,
        42,
        43,
    ]
    assert len(backend.seen) == 4
    assert (progress.updates, progress.refused, progress.samples) == (2, 1, 12)


class Few:
    """Samples that are told what became of them, and end."""

    def __init__(self, rounds: int) -> None:
        self._left = rounds
        self.told: list[str] = []

    async def ready(self, steps: int) -> None:
        if not self._left:
            raise StreamOver("that was all")
        self._left -= 1

    def take(self, size: int) -> Batch:
        self.told.append("taken")
        return np.zeros((2, 3), np.float32), np.zeros(2, np.int64)

    def settle(self) -> None:
        self.told.append("settled")

    def take_back(self) -> None:
        self.told.append("back")

    def telemetry(self) -> Facts:
        return {"depth": len(self.told)}


async def test_samples_hear_whether_the_server_has_what_came_of_them() -> None:
    """Refused: they come again. So they do when the run is replaced or the stream ends."""
    server = FakeServer([None, BaseExpired("pull again"), RunReplaced("another run"), None])
    backend = FakeBackend()

    async def make(_: Welcome) -> Backend:
        return backend

    samples = Few(4)
    progress = await Worker(server, make, samples).run()
    assert samples.told == [
        *("taken", "settled"),
        *("taken", "back"),
        *("taken", "back"),
        *("taken", "settled"),
        "back",
    ]
    assert (progress.updates, progress.samples) == (2, 4)


async def test_a_run_that_is_over_when_joining() -> None:
    class Over(FakeServer):
        async def join(self) -> Welcome:
            raise RunOver("it is over")

    assert await worker(Over([]), FakeBackend()).run() == Progress()


async def test_another_run_is_begun_anew() -> None:
    """New welcome, new backend, new model, and sequence numbers from the new run's."""
    backends: list[FakeBackend] = []

    def make(welcome: Welcome) -> FakeBackend:
        server.welcome = replace(WELCOME, run="another", version=0, sequence=0)
        backends.append(FakeBackend())
        return backends[-1]

    server = FakeServer([None, RunReplaced("another run"), None])
    progress = await worker(server, make).run()
    assert [one for one in server.asked if not isinstance(one, Update)] == [
        "join",
        ("speak as", LAYOUT.digest),
        ("pull", None),
    ] * 2
    assert [update.sequence for update in server.updates] == [41, 42, 1, 2]
    assert [len(backend.seen) for backend in backends] == [2, 2]
    assert progress.updates == 2


@pytest.mark.parametrize("refusal", [Unauthorized, BadSequence, LayoutMismatch])
async def test_other_refusals_end_the_worker(refusal: type[Refused]) -> None:
    with pytest.raises(refusal, match="no"):
        await worker(FakeServer([None, refusal("no")]), FakeBackend()).run()


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


@pytest.mark.parametrize(
    "other",
    [
        Layout.of([("kernel", (5, 2)), ("bias", (4,))]),
        Layout.of([("kernel", (2, 5)), ("bias", (5,))]),
        Layout.of([("bias", (4,)), ("kernel", (2, 5))]),
    ],
)
async def test_another_layout_is_refused_before_anything_is_sent(other: Layout) -> None:
    server = FakeServer([None])
    with pytest.raises(LayoutMismatch, match="package:Model has another layout here than on the server"):
        await worker(server, FakeBackend(layout=other)).run()
    assert server.asked == ["join"]


async def test_what_the_backend_raises_ends_the_worker() -> None:
    def make(welcome: Welcome) -> Backend:
        raise ConfigError("there is no such module")

    with pytest.raises(ConfigError, match="no such module"):
        await worker(FakeServer([]), make).run()


async def test_a_difference_is_taken_on_top_of_what_is_held() -> None:
    """Receipts may carry the changes only."""

    class Frugal(FakeServer):
        async def push(self, update: Update) -> Receipt:
            receipt = await super().push(update)
            changed = Model(
                receipt.version, update.base, sparse.RAW, F32, 1, bytes(4), np.array([9], "<f4").tobytes()
            )
            return replace(receipt, model=changed)

    server, backend = Frugal([None]), FakeBackend()
    await worker(server, backend).run()
    assert [theta for theta, _ in backend.seen] == [[3] * 14, [9] + [3] * 13]


def sent(update: Update) -> dict[int, float]:
    """index -> value of a sparse update with raw indices and f32 values."""
    where = np.frombuffer(update.indices, "<u4").tolist()
    return dict(zip(where, np.frombuffer(update.values, "<f4").tolist(), strict=True))


def listed(*gradients: NDArray[np.float32]) -> FakeBackend:
    return FakeBackend(gradients=iter(gradients))


def falling(scale: float) -> NDArray[np.float32]:
    """scale * (14, 13, ... 1): c = 0.2 takes the entries 0, 1 and 10."""
    return np.arange(LAYOUT.size, 0, -1).astype(np.float32) * np.float32(scale)


DAMPED = replace(WELCOME, feedback=0.5)


async def test_what_was_not_sent_comes_back_damped() -> None:
    server = FakeServer([None, None], DAMPED)
    await worker(server, listed(falling(1), falling(1), falling(0))).run()
    first, second, third = (sent(update) for update in server.updates)
    assert first == {0: 14, 1: 13, 10: 4}
    # What there was: 14, 13, 12 + 12/2, 11 + 11/2, 10 + 10/2 ... and 4, 3 + 3/2, 2 + 2/2, 1 + 1/2.
    assert second == {2: 18, 3: 16.5, 11: 4.5}
    # Of what was not sent twice half and a quarter, and half of the second 14, 13 and 4.
    assert third == {4: 10 / 2 + 10 / 4, 0: 14 / 2, 10: 4 / 2}


async def test_without_feedback_nothing_comes_back() -> None:
    server = FakeServer([None, None], replace(DAMPED, feedback=0.0))
    await worker(server, listed(falling(1), falling(1), falling(0))).run()
    first, second, third = (sent(update) for update in server.updates)
    assert first == second
    assert set(third.values()) == {0}


async def test_a_sent_entry_leaves_the_memory_whatever_its_coding() -> None:
    """Signs say less than was meant; the difference is not kept."""
    welcome = replace(DAMPED, values=values.CODINGS["sign"].mode)
    server = FakeServer([None], welcome)
    training = worker(server, listed(falling(1), falling(0)))
    await training.run()
    assert training._memory is not None
    assert training._memory[[0, 1, 10]].tolist() == [0, 0, 0]
    # Two updates later: entries 2, 3 and 11 were sent, and the others have been halved twice.
    assert training._memory[[2, 3, 11]].tolist() == [0, 0, 0]
    assert training._memory[[4, 9, 12]].tolist() == [10 / 4, 5 / 4, 2 / 4]


async def test_the_memory_outlives_a_refusal() -> None:
    """What was sent in vain, from a version that was too old, is kept as if it had not been sent."""
    server = FakeServer([BaseExpired("pull again")], DAMPED)
    await worker(server, listed(falling(1), falling(0))).run()
    assert [sent(update) for update in server.updates] == [
        {0: 14, 1: 13, 10: 4},
        {0: 7, 1: 6.5, 10: 2},
    ]


async def test_another_run_remembers_nothing_of_the_last() -> None:
    server = FakeServer([None, RunReplaced("another run")], DAMPED)
    await worker(server, listed(falling(1), falling(1), falling(1))).run()
    first, second, anew = (sent(update) for update in server.updates)
    assert second != first
    assert anew == first


async def test_dense_runs_keep_no_memory() -> None:
    server = FakeServer([None, None], replace(DAMPED, select=1.0))
    training = worker(server, listed(falling(1), falling(1), falling(1)))
    await training.run()
    assert training._memory is None
    assert {update.values for update in server.updates} == {falling(1).tobytes()}


async def test_a_bad_batch_is_not_remembered() -> None:
    broken = falling(1)
    broken[5] = np.nan
    server = FakeServer([None], DAMPED)
    await worker(server, listed(broken, falling(1), broken, broken, falling(0))).run()
    assert [sent(update) for update in server.updates] == [
        {0: 14, 1: 13, 10: 4},
        {2: 6, 3: 5.5, 11: 1.5},
    ]


# Adaptive compression

PEAK = np.zeros(LAYOUT.size, np.float32)
PEAK[[0, 1, 10]] = 10
"""Of which the selection keeps everything; of falling(1) it keeps 381 of |g|^2 = 1015, and loses 0.62."""


def adaptive(threshold: float, **settings: object) -> Welcome:
    return replace(WELCOME, threshold=threshold, **settings)  # type: ignore[arg-type]


def is_whole(update: Update) -> bool:
    return update.index_mode == sparse.DENSE


@pytest.mark.parametrize(("threshold", "whole"), [(1e-6, True), (0.62, True), (0.63, False), (1.0, False)])
async def test_a_gradient_goes_whole_if_its_selection_loses_more_than_the_threshold(
    threshold: float, whole: bool
) -> None:
    server = FakeServer([None, None], adaptive(threshold))
    await worker(server, listed(*[falling(scale) for scale in (1, -3, 2)])).run()
    assert [is_whole(update) for update in server.updates] == [whole] * 3
    for update, scale in zip(server.updates, (1, -3, 2), strict=True):
        if whole:
            assert (update.count, update.indices) == (LAYOUT.size, b"")
            assert update.values == falling(scale).tobytes()
        else:
            assert sent(update) == {0: 14 * scale, 1: 13 * scale, 10: 4 * scale}


async def test_without_a_threshold_it_is_the_selection_whatever_it_loses() -> None:
    updates = []
    for threshold in (0.0, 1.0):
        server = FakeServer([None, None], adaptive(threshold, feedback=0.5))
        await worker(server, listed(falling(1), PEAK, falling(2))).run()
        updates.append(server.updates)
    assert updates[0] == updates[1]
    assert not any(is_whole(update) for update in updates[0])


async def test_the_threshold_is_held_against_averages() -> None:
    """Of |g|^2 = 1015 634 are lost, of 300 nothing: k steps later 634 w of 300 + 715 w, where w = 0.9^k."""
    server = FakeServer([None] * 4, adaptive(0.55))
    await worker(server, listed(falling(1), *[PEAK] * 4)).run()
    assert [is_whole(update) for update in server.updates] == [True, True, True, True, False]


async def test_the_averages_begin_anew_with_a_run() -> None:
    server = FakeServer([None, RunReplaced("another run")], adaptive(0.55))
    await worker(server, listed(falling(1), PEAK, PEAK)).run()
    assert [is_whole(update) for update in server.updates] == [True, True, False]


async def test_what_went_whole_leaves_nothing_to_remember() -> None:
    server = FakeServer([None, None], adaptive(0.5, feedback=0.5))
    await worker(server, listed(falling(1), falling(2), falling(0))).run()
    first, second, third = (update.values for update in server.updates)
    assert first == falling(1).tobytes()
    assert second == falling(2).tobytes()
    assert not any(third)


async def test_what_was_left_out_before_goes_along_when_all_of_it_goes() -> None:
    """Of the first, 11 at three entries and 1 at all others, the selection loses little."""
    server = FakeServer([None], adaptive(0.5, feedback=0.5))
    small = PEAK + np.float32(1)
    await worker(server, listed(small, 100 * falling(1))).run()
    first, second = server.updates
    assert sent(first) == {0: 11, 1: 11, 10: 11}
    expected = 100 * falling(1) + np.float32(0.5)
    expected[[0, 1, 10]] -= np.float32(0.5)
    assert second.values == expected.tobytes()


async def test_what_went_whole_in_vain_is_remembered_again() -> None:
    server = FakeServer([BaseExpired("pull again")], adaptive(0.5, feedback=0.5))
    await worker(server, listed(falling(1), falling(0))).run()
    first, again = server.updates
    assert first.values == falling(1).tobytes()
    assert again.values == falling(0.5).tobytes()


@pytest.mark.parametrize("coding", values.CODINGS)
async def test_all_of_it_is_sent_with_its_magnitudes(coding: str) -> None:
    """As the run's values are coded, but for signs, which lose as much as a selection does."""
    indices = sparse.GRID if coding == "scale" else sparse.GOLOMB
    server = FakeServer([], adaptive(0.3, indices=indices, values=values.CODINGS[coding].mode))
    await worker(server, FakeBackend()).run()
    (update,) = server.updates
    assert is_whole(update)
    expected = "codebook4" if coding in ("sign", "scale") else coding
    assert update.value_mode == values.CODINGS[expected].mode
    delta = values.decode(update.values, LAYOUT.counts(None), update.value_mode)
    assert delta.tolist() == pytest.approx(gradient_at(theta_at(3)).tolist(), rel=0.2)


# Telemetry


class Instrumented(Shuffled):
    """Stored data that tell how often they were asked, as a stream tells how it does."""

    def __init__(self) -> None:
        super().__init__(Dataset(np.zeros((9, 1), np.float32), np.arange(9)), np.random.default_rng(0))
        self.asked = 0

    def telemetry(self) -> Facts:
        self.asked += 1
        return {"asked": self.asked}


class SlowServer(FakeServer):
    """Each push takes two seconds."""

    async def push(self, update: Update) -> Receipt:
        await asyncio.sleep(2)
        return await super().push(update)


def told(server: FakeServer, batches: Shuffled, health: Callable[[], Facts] = dict) -> list[Facts | None]:
    """The facts of each update, of a worker in virtual time."""

    async def make(_: Welcome) -> Backend:
        return FakeBackend()

    async def at_once(function: Callable[..., object], *arguments: object) -> object:
        return function(*arguments)

    run_virtually(Worker(server, make, batches, at_once, health).run())
    return [update.facts for update in server.updates]


def test_telemetry_goes_with_the_first_update_and_then_every_five_seconds() -> None:
    """At 0, 2, 4, ... seconds: due at 0, at 5 and so at 6, and at 11 and so at 12."""
    facts = told(SlowServer([None] * 7), Instrumented())
    assert facts == [{"asked": 1}, None, None, {"asked": 2}, None, None, {"asked": 3}, None]


def test_another_run_is_told_at_once() -> None:
    facts = told(SlowServer([None, RunReplaced("another run"), None]), Instrumented())
    assert facts == [{"asked": 1}, None, {"asked": 2}, None]


def test_the_device_s_health_goes_with_it() -> None:
    readings = iter(range(10))

    def health() -> Facts:
        return {"temperature": 60 + next(readings)}

    facts = told(SlowServer([None] * 3), Instrumented(), health)
    assert facts == [{"temperature": 60, "asked": 1}, None, None, {"temperature": 61, "asked": 2}]


def test_stored_data_have_nothing_to_tell() -> None:
    data = Shuffled(Dataset(np.zeros((9, 1), np.float32), np.arange(9)), np.random.default_rng(0))
    assert told(SlowServer([None] * 5), data) == [None] * 6


async def test_the_run_s_balance_shares_the_selection() -> None:
    """Three of 14 in all; shared as n^0 that is 1.4 for each tensor."""
    server = FakeServer([], replace(WELCOME, balance=0.0))
    await worker(server, listed(falling(1))).run()
    assert sent(server.updates[0]) == {0: 14, 10: 4}


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
    ) -> tuple[float, NDArray[np.float32], NDArray[np.float32]]:
        assert not np.shares_memory(theta, self.buffer)
        self.calls += 1
        self.buffer[:] = np.nan if self.calls == self.bad else theta - self.centre
        return float(np.square(theta - self.centre, dtype=np.float64).sum() / 2), self.buffer, NOTHING


CENTRE = np.linspace(-2, 5, LAYOUT.size).astype(np.float32)


def local(steps: int, rate: float = 0.125) -> Welcome:
    return replace(WELCOME, select=1.0, local_steps=steps, local_rate=rate)


@pytest.mark.parametrize("bad", [-1, 1, 3])
@pytest.mark.parametrize("steps", [1, 2, 5, 40])
async def test_an_update_of_local_steps_is_the_sum_along_the_path(steps: int, bad: int) -> None:
    """Each step shrinks theta - centre by 1 - r, so that the gradients sum to (1 - (1 - r)^H) / r of it."""
    rate, backend = 0.125, Quadratic(CENTRE, bad=bad)
    server = FakeServer([None], local(steps, rate))
    training = worker(server, backend)
    progress = await training.run()
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


async def test_local_steps_leave_the_replica_alone() -> None:
    """The device's copy is the server's model; it steps on a copy of that."""
    seen: list[NDArray[np.float32]] = []

    class Watching(Quadratic):
        def gradient(
            self, theta: NDArray[np.float32], x: NDArray[np.float32], y: NDArray[np.generic]
        ) -> tuple[float, NDArray[np.float32], NDArray[np.float32]]:
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
    welcome = replace(DAMPED, local_steps=2, local_rate=0.5)
    backend = Quadratic(np.zeros(LAYOUT.size, np.float32))
    server = FakeServer([None], welcome)
    training = worker(server, backend)
    await training.run()
    # theta is all 3, then all 4: gradients 3 + 1.5 and 4 + 2; three of the 14 entries are sent.
    first, second = (sent(update) for update in server.updates)
    assert set(first.values()) == {4.5}
    assert set(second.values()) == {6 + 4.5 / 2}
    assert not set(first) & set(second)


# Running statistics

NORMED = Layout.of([("kernel", (2, 5)), ("bias", (4,)), ("mean", (2,), True), ("variance", (1,), True)])
AGAINST = replace(WELCOME, layout=list(NORMED.shapes()), select=1.0)


class NormedServer(FakeServer):
    """A model whose statistics are 100, 200 and 300 at any version."""

    async def pull(self, base: int | None) -> Model:
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
    ) -> tuple[float, NDArray[np.float32], NDArray[np.float32]]:
        self.seen.append(theta.tolist())
        self._gradient[:] = np.nan if len(self.seen) == self.broken else theta[: LAYOUT.size]
        self._statistics[:] = next(self.batches)
        return 0.5, self._gradient, self._statistics


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
    """However large; the largest fraction is one of the P parameters."""
    server = NormedServer([None], replace(AGAINST, select=0.2, feedback=0.5))
    training = worker(server, NormedBackend(iter([[1e4, 1e4, 1e4]] * 2)))
    await training.run()
    assert training._memory is not None
    assert training._memory.size == LAYOUT.size
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


async def test_statistics_beyond_half_precision_are_a_config_error() -> None:
    """As of inputs in the thousands that nobody has scaled."""
    server = NormedServer([], AGAINST)
    with pytest.raises(
        Diverged, match=r"NaN or infinite gradients or statistics beyond 65504.*scale the inp"
    ):
        await worker(server, NormedBackend(iter([[1, 2, 1e6]] * 20))).run()
    assert server.updates == []

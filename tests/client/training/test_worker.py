"""What a device does (AdaComp, algorithm 1), against a server and a training engine made of lists."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from zlib import crc32

import numpy as np
import pytest

from edgeflock.client.backends.backend import Backend
from edgeflock.client.data.batcher import Batch, Shuffled, StreamEnded
from edgeflock.client.training import Worker, WorkerProgress
from edgeflock.client.training.spool import Spool
from edgeflock.client.training.trainer import Trainer
from edgeflock.devices.emulation.clock import run_virtually
from edgeflock.shared.codecs import moments, sparse
from edgeflock.shared.data.datasets import Dataset
from edgeflock.shared.errors import (
    BadSequence,
    BaseExpired,
    BaseInFuture,
    ConfigError,
    Diverged,
    LayoutMismatch,
    Refused,
    RunOver,
    RunReplaced,
    ServerAtFault,
    StepTooLarge,
    Unauthorized,
)
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.model.start import CONSTANT, UNIFORM, Filling, Start, generate
from edgeflock.shared.protocol.messages import Facts, Model, Receipt, Update, Welcome
from tests.client.training.fakes import (
    F32,
    LAYOUT,
    WELCOME,
    FakeBackend,
    FakeServer,
    falling,
    listed,
    model_at,
    theta_at,
    training,
    worker,
)


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
    assert progress == WorkerProgress(updates=3, samples=18, refused=0, loss=5 / 2)


async def test_who_leaves_asks_for_no_model_and_goes() -> None:
    server, leaving = FakeServer([None] * 9), iter([False, False, True])
    device = worker(server, FakeBackend(), leaving=lambda: next(leaving))
    progress = await device.run()
    assert [update.pull for update in server.updates] == [True, True, False]
    assert progress.updates == 3


async def test_a_model_that_can_be_made_here_is_not_pulled() -> None:
    """Only what has changed since: here nothing, at version 0."""
    start = Start(7, (Filling(UNIFORM, -1.0, 1.0), Filling(CONSTANT, 0.5, 0.0)))
    unchanged = Model(0, 0, sparse.RAW, F32, 0, b"", b"")

    class Fresh(FakeServer):
        async def pull(self, base: int | None, held: int = 0, start: int = 0, stop: int = 0) -> Model:
            await super().pull(base)
            return unchanged

    server, backend = Fresh([None], replace(WELCOME, version=0, start=start)), FakeBackend()
    await worker(server, backend).run()
    assert server.asked[:3] == ["join", ("speak as", LAYOUT.digest), ("pull", 0)]
    assert server.updates[0].base == 0
    assert backend.seen[0][0] == generate(start, LAYOUT).tolist()


@pytest.mark.parametrize("stale", [BaseExpired, BaseInFuture])
async def test_an_update_from_a_wrong_base_is_dropped_and_the_model_pulled(stale: type[Refused]) -> None:
    """The sequence number was not used: the next update takes it, from the model just pulled."""
    server, backend = FakeServer([None, stale("pull again"), None]), FakeBackend()
    progress = await worker(server, backend).run()
    first, dropped, pull, again, last = server.asked[3:]
    assert isinstance(dropped, Update)
    assert pull == ("pull", dropped.base), "the server knows best what it still has for that"
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
        self.reported: list[str] = []

    async def ready(self, steps: int) -> None:
        if not self._left:
            raise StreamEnded("that was all")
        self._left -= 1

    def take(self, size: int) -> Batch:
        self.reported.append("taken")
        return np.zeros((2, 3), np.float32), np.zeros(2, np.int64)

    def record_result(self, loss: float, right: float | None) -> None:
        self.reported.append("judged")

    def settle(self) -> None:
        self.reported.append("settled")

    def begin(self, welcome: Welcome, backend: Backend) -> None: ...

    def take_back(self) -> None:
        self.reported.append("back")

    def telemetry(self) -> Facts:
        return {"depth": len(self.reported)}


async def test_samples_hear_whether_the_server_has_what_came_of_them() -> None:
    """Refused: they come again. So they do when the run is replaced or the stream ends."""
    server = FakeServer([None, BaseExpired("pull again"), RunReplaced("another run"), None])
    samples = Few(4)
    progress = await Worker(server, training(FakeBackend(), samples), samples).run()
    assert samples.reported == [
        *("taken", "judged", "settled"),
        *("taken", "judged", "back"),
        *("taken", "judged", "back"),
        *("taken", "judged", "settled"),
        "back",
    ]
    assert (progress.updates, progress.samples) == (2, 4)


async def test_an_update_that_is_too_large_is_never_sent_again() -> None:
    """Nor its samples; the next one takes its number."""
    server, backend = FakeServer([None, StepTooLarge("beyond"), None, None]), FakeBackend()
    samples = Few(4)
    progress = await Worker(server, training(backend, samples), samples).run()
    _, large, pull, again, *_ = server.asked[3:]
    assert isinstance(large, Update)
    assert isinstance(again, Update)
    assert pull == ("pull", large.base)
    assert (large.sequence, again.sequence) == (42, 42)
    assert samples.reported[3:6] == ["taken", "judged", "settled"]
    assert (progress.updates, progress.refused) == (3, 1)


@pytest.mark.parametrize("threshold", [0.0, 0.5])
async def test_what_is_remembered_is_as_before_an_update_that_was_too_large(threshold: float) -> None:
    """Residual and running norms: the next update is what it would have been without."""
    welcome = replace(WELCOME, feedback=0.5, threshold=threshold)
    server, other = FakeServer([None, StepTooLarge("beyond"), None], welcome), FakeServer([None] * 2, welcome)
    backend = listed(falling(1), falling(1)[::-1] ** np.float32(25), *[falling(1)] * 2)
    await worker(server, backend).run()
    await worker(other, listed(*[falling(1)] * 3)).run()
    following, expected = server.updates[2], other.updates[1]
    assert (following.sequence, following.count) == (expected.sequence, expected.count)
    assert (following.indices, following.values) == (expected.indices, expected.values)


async def test_updates_that_are_too_large_one_after_the_other_end_it() -> None:
    large = StepTooLarge("beyond")
    server = FakeServer([large, large, None, large, large, large])
    with pytest.raises(Diverged, match="3 updates in a row were refused: beyond"):
        await worker(server, FakeBackend()).run()
    assert len(server.updates) == 6


async def test_a_run_that_is_over_when_joining() -> None:
    class Over(FakeServer):
        async def join(self) -> Welcome:
            raise RunOver("it is over")

    assert await worker(Over([]), FakeBackend()).run() == WorkerProgress()


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


@pytest.mark.parametrize(
    "other",
    [
        Layout.from_shapes([("kernel", (5, 2)), ("bias", (4,))]),
        Layout.from_shapes([("kernel", (2, 5)), ("bias", (5,))]),
        Layout.from_shapes([("bias", (4,)), ("kernel", (2, 5))]),
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


class Lossy(FakeServer):
    """Tells what to add."""

    added = 9.0

    async def push(self, update: Update) -> Receipt:
        receipt = await super().push(update)
        octets = np.array([self.added], "<f4").tobytes()
        model = Model(receipt.version, update.base, sparse.RAW, F32, 1, bytes(4), octets, True)
        return replace(receipt, model=model)


async def test_changes_are_added_and_told_of_in_the_next_update() -> None:
    server, backend = Lossy([None, None]), FakeBackend()
    await worker(server, backend).run()
    assert [theta for theta, _ in backend.seen] == [[3] * 14, [12] + [3] * 13, [21] + [3] * 13]
    once = crc32(np.array([9], "<f4").tobytes(), crc32(bytes(4)))
    assert [update.held for update in server.updates[:2]] == [0, once & 0xFFFF]


async def test_changes_that_are_no_numbers_end_the_worker() -> None:
    server = Lossy([None, None])
    server.added = np.nan
    with pytest.raises(ServerAtFault, match="not valid for this device: .* the server's model has diverged"):
        await worker(server, FakeBackend()).run()
    assert len(server.updates) == 1


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"sequence": 40}, "update 41 with a receipt for 40"),
        ({"model": replace(model_at(4), base=2)}, "from version 2"),
        ({"model": replace(model_at(4), values=b"")}, "take 56 bytes, not 0"),
        ({"model": replace(model_at(4), count=1 << 40)}, "entries for 14"),
    ],
)
async def test_a_receipt_that_is_none_ends_the_worker(answer: dict[str, object], said: str) -> None:
    class Wrong(FakeServer):
        async def push(self, update: Update) -> Receipt:
            return replace(await super().push(update), **answer)  # type: ignore[arg-type]

    with pytest.raises(ServerAtFault, match=said):
        await worker(Wrong([None]), FakeBackend()).run()


async def test_what_receipts_bring_divides_the_next_gradients() -> None:
    """With the fleet's second moments at 8 and its own at 1, the root of 4.5 divides."""
    adafactor = replace(WELCOME, adafactor=0.9, select=1.0)
    server = FakeServer([None], adafactor, moments=moments.encode(np.full(LAYOUT.lines[-1], 8, np.float32)))
    ones = np.ones(LAYOUT.size, np.float32)
    await worker(server, listed(ones, ones)).run()
    first, second = server.updates
    assert np.frombuffer(first.values, "<f4").tolist() == [3.0] * LAYOUT.size, "by its own, at RMS(theta) = 3"
    assert np.frombuffer(second.values, "<f4").tolist() == [pytest.approx(4 / 4.5**0.5)] * LAYOUT.size, (
        "the root of (1 + 8) / 2 divides 4"
    )
    assert moments.decode(first.moments, LAYOUT).tolist() == [1] * LAYOUT.lines[-1]


async def test_moments_of_another_model_end_the_worker() -> None:
    server = FakeServer([None], replace(WELCOME, adafactor=0.9), moments=b"none")
    with pytest.raises(
        ServerAtFault, match="mean over the fleet is not valid for this device: .* 12 bytes, deflated"
    ):
        await worker(server, FakeBackend()).run()


async def test_a_receipt_without_a_model_has_it_pulled_which_may_take_until_its_turn() -> None:
    class InTurn(FakeServer):
        async def push(self, update: Update) -> Receipt:
            return replace(await super().push(update), model=None)

    server = InTurn([None, None])
    progress = await worker(server, FakeBackend()).run()
    assert (progress.updates, [update.base for update in server.updates]) == (2, [3, 4, 5])
    assert [asked for asked in server.asked if isinstance(asked, tuple)][-2:] == [("pull", 3), ("pull", 4)]


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


def reported(server: FakeServer, batches: Shuffled, health: Callable[[], Facts] = dict) -> list[Facts | None]:
    """The facts of each update, of a worker in virtual time."""

    async def at_once(function: Callable[..., object], *arguments: object) -> object:
        return function(*arguments)

    run_virtually(Worker(server, training(FakeBackend(), batches), batches, at_once, health).run())
    return [update.facts for update in server.updates]


def test_telemetry_goes_with_the_first_update_and_then_every_five_seconds() -> None:
    """At 0, 2, 4, ... seconds: due at 0, at 5 and so at 6, and at 11 and so at 12."""
    facts = reported(SlowServer([None] * 7), Instrumented())
    assert facts == [{"asked": 1}, None, None, {"asked": 2}, None, None, {"asked": 3}, None]


def test_another_run_is_told_at_once() -> None:
    facts = reported(SlowServer([None, RunReplaced("another run"), None]), Instrumented())
    assert facts == [{"asked": 1}, None, {"asked": 2}, None]


def test_it_tells_how_long_a_step_takes_and_that_its_disk_is_full() -> None:
    async def slowly(step: Callable[..., object], *arguments: object) -> object:
        await asyncio.sleep(1.5)
        return step(*arguments)

    server, batches, spool = FakeServer([None]), Instrumented(), Kept()
    spool.has_failed = True
    run_virtually(Worker(server, training(FakeBackend(), batches), batches, slowly, spool=spool).run())
    facts = server.updates[0].facts
    assert facts == {"asked": 1, "step": 1.5, "spool_fails": 1}


def test_the_device_s_health_goes_with_it() -> None:
    readings = iter(range(10))

    def health() -> Facts:
        return {"temperature": 60 + next(readings)}

    facts = reported(SlowServer([None] * 3), Instrumented(), health)
    assert facts == [{"temperature": 60, "asked": 1}, None, None, {"temperature": 61, "asked": 2}]


def test_stored_data_have_nothing_to_tell() -> None:
    data = Shuffled(Dataset(np.zeros((9, 1), np.float32), np.arange(9)), np.random.default_rng(0))
    assert reported(SlowServer([None] * 5), data) == [None] * 6


# The update that outlasts its client


class Kept(Spool):
    """A spool in memory."""

    def __init__(self, update: Update | None = None) -> None:
        self.has_failed = False
        self.update = update
        self.at_push: list[Update | None] = []

    def save(self, run: str, layout: bytes, update: Update) -> None:
        assert (run, layout) == (WELCOME.run, LAYOUT.digest)
        self.update = update

    def load(self, run: str, layout: bytes, limit: int) -> Update | None:
        return self.update

    def drop(self) -> None:
        self.update = None


def spooling(server: FakeServer, spool: Kept) -> Worker:
    data = Dataset(np.zeros((50, 1), np.float32), np.arange(50))
    batches = Shuffled(data, np.random.default_rng(0))
    return Worker(server, training(FakeBackend(), batches), batches, spool=spool)


class Noting(FakeServer):
    """Notes what is kept while it has an update."""

    spool: Kept

    async def push(self, update: Update) -> Receipt:
        self.spool.at_push.append(self.spool.update)
        return await super().push(update)


def noting(replies: list[Exception | None], spool: Kept, welcome: Welcome = WELCOME) -> Noting:
    server = Noting(replies, welcome)
    server.spool = spool
    return server


async def test_an_update_is_kept_until_its_receipt_is_there() -> None:
    spool = Kept()
    server = noting([None, StepTooLarge("no"), BaseExpired("old"), None], spool)
    progress = await spooling(server, spool).run()
    assert spool.at_push == server.updates
    assert spool.update is None, "refused for good, or answered, or the run is over"
    assert (progress.updates, progress.refused) == (2, 2)


async def computed_before(sequence: int = 41) -> Update:
    """What a worker sends first."""
    server = FakeServer([])
    await worker(server, FakeBackend()).run()
    return replace(server.updates[0], sequence=sequence, facts={"cpu": 3.0}, held=9)


async def test_what_was_under_way_is_sent_first_as_it_was() -> None:
    before = await computed_before()
    spool = Kept(before)
    server = noting([None, None], spool)
    progress = await spooling(server, spool).run()
    assert server.asked[:2] == ["join", ("speak as", LAYOUT.digest)]
    again, pulled, following = server.asked[2:5]
    assert again == replace(before, facts=None, held=0, pull=False)
    assert pulled == ("pull", None)
    assert isinstance(following, Update)
    assert (following.sequence, following.base) == (42, 4)
    assert (progress.updates, progress.samples) == (2, 12)


async def test_what_had_arrived_is_not_sent_again() -> None:
    spool = Kept(await computed_before(sequence=40))
    server = noting([None], spool)
    await spooling(server, spool).run()
    assert [update.sequence for update in server.updates] == [41, 42]


@pytest.mark.parametrize("refusal", [BaseExpired("too old"), BadSequence("no"), StepTooLarge("no")])
async def test_what_is_refused_by_now_is_dropped_with_a_line(
    refusal: Refused, caplog: pytest.LogCaptureFixture
) -> None:
    spool = Kept(await computed_before())
    server = noting([refusal, None], spool)
    progress = await spooling(server, spool).run()
    assert (progress.updates, progress.refused) == (1, 1)
    assert [update.sequence for update in server.updates] == [41, 41, 42]
    assert f"dropped update 41 from before the restart: {refusal}" in caplog.text


async def test_what_is_under_way_stays_if_the_session_is_refused() -> None:
    before = await computed_before()
    spool = Kept(before)
    with pytest.raises(Unauthorized):
        await spooling(noting([Unauthorized("who?")], spool), spool).run()
    assert spool.update == replace(before, facts=None, held=0, pull=False)


# Who may not train for a while


async def test_after_a_pause_the_model_is_pulled_anew() -> None:
    waits = iter([False, False, True, False, False, False])
    server = FakeServer([None, None])

    async def wait_permission() -> bool:
        return next(waits)

    data = Dataset(np.zeros((50, 1), np.float32), np.arange(50))
    batches = Shuffled(data, np.random.default_rng(0))
    await Worker(server, training(FakeBackend(), batches), batches, wait_permission=wait_permission).run()
    kinds = ["update" if isinstance(asked, Update) else asked for asked in server.asked[2:]]
    assert kinds == [("pull", None), "update", ("pull", 4), "update", "update"]


def test_who_waits_for_its_turn_tells_once_a_minute() -> None:
    """The third receipt comes after six seconds, the model that the device pulls then ten minutes later."""

    class InTurn(SlowServer):
        async def push(self, update: Update) -> Receipt:
            receipt = await super().push(update)
            return replace(receipt, model=None) if len(self.updates) == 3 else receipt

        async def pull(self, base: int | None, held: int = 0, start: int = 0, stop: int = 0) -> Model:
            if self.updates:
                await asyncio.sleep(600)
            return await super().pull(base, held, start, stop)

    told_at: list[float] = []

    async def at_once(function: Callable[..., object], *arguments: object) -> object:
        return function(*arguments)

    async def tell(facts: Facts) -> None:
        told_at.append(asyncio.get_running_loop().time())

    async def ran() -> float:
        loop, batches = asyncio.get_running_loop(), Instrumented()
        began = loop.time()
        device = Worker(InTurn([None] * 5), training(FakeBackend(), batches), batches, at_once)
        telling = asyncio.create_task(device.report_facts(tell))
        await device.run()
        telling.cancel()
        return began

    began = run_virtually(ran())
    waited = [at - began for at in told_at if at - began > 6]
    assert len(waited) == 10
    assert all(60 <= after - before < 63 for before, after in pairwise(waited))


async def test_no_facts_of_the_data_are_sent_while_a_private_run_is_prepared() -> None:
    """Facts are sent by another task, which may run while the device loads the model."""
    facts: list[Facts] = []
    batches = Counting(Dataset(np.zeros((50, 1), np.float32), np.arange(50)), np.random.default_rng(0))
    make = training(FakeBackend(), batches)

    async def prepare(welcome: Welcome) -> Trainer:
        facts.append(one.facts())
        return await make(welcome)

    for private in (True, False):
        server = FakeServer([None], replace(WELCOME, private=private))
        one = Worker(server, prepare, batches, asyncio.to_thread)
        await one.run()
    assert facts == [{}, {"held_out": 3}]


class Counting(Shuffled):
    """Data of which three rows are the server's."""

    def telemetry(self) -> Facts:
        return {"held_out": 3}

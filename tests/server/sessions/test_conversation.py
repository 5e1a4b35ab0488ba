"""What a device is answered, without a socket, an event loop's tasks or a clock."""

from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest

from edgeflock.server.connections import Traffic
from edgeflock.server.coordination import Push
from edgeflock.server.engine import Accepted
from edgeflock.server.engine.welcome import welcome
from edgeflock.server.roster import Device, RateLimiters, Relay
from edgeflock.server.sessions import Conversation, SessionContext
from edgeflock.server.sessions.conversation import R
from edgeflock.shared.errors import (
    AlreadyComputed,
    Quarantined,
    Refused,
    RunComplete,
    StepTooLarge,
    TooManyRefused,
)
from edgeflock.shared.protocol import wire
from edgeflock.shared.protocol.messages import (
    Goodbye,
    Model,
    Pull,
    Receipt,
    Record,
    Refusal,
    Samples,
    Stop,
    Telemetry,
    Update,
)
from edgeflock.shared.settings.config import Config
from tests.server.pushes import LAYOUT, open_engine, sparse_update

T = TypeVar("T")

DEVICE = 1
SHARED = Samples(2, octets=False, x=bytes(8), labels=True, y=bytes(8))


class Host:
    """All that a conversation has: a queue, an admission and a port, which remember what it does."""

    def __init__(self, directory: Path, config: Config) -> None:
        _, self.engine = open_engine(directory)
        self.device = Device("pi", DEVICE)
        self.relay = Relay(config.injection, config.limits.samples)
        self.sent: list[Record] = []
        self.noted: list[object] = []
        self.charged = 0
        self.verdict: Quarantined | None = None
        self.complete: str | None = None
        context = SessionContext(
            config=config,
            engine=self.engine,
            traffic=Traffic(),
            relay=self.relay,
            rate_limiters=RateLimiters(config.limits),
            terms=welcome("run", config, LAYOUT),
        )
        self.conversation = Conversation(context, self, self, self, self.device, None, self.noted.append)

    def tell(self, record: Record) -> list[Record]:
        """Return what a record is answered with. Nothing of it may suspend."""
        self.sent.clear()
        done_at_once(self.conversation.answer(record, wire.encode(record)))
        return list(self.sent)

    # The queue

    async def push(self, push: Push) -> Accepted:
        ((_, answer),) = self.engine.commit([push])
        if isinstance(answer, Refused):
            raise answer
        return answer

    async def call(self, function: Callable[[], T]) -> T:
        return function()

    # The admission

    async def wait_for_turn(self, device: Device) -> None:
        if self.complete is not None:
            raise RunComplete(self.complete)
        self.noted.append("its turn came")

    def mark_waiting(self, device: Device, *, waits: bool) -> None:
        self.noted.append(waits)

    def count_update(self, device: Device, update: Update, staleness: int) -> None:
        self.noted.append(update.sequence)

    def count_duplicate(self, device: Device) -> None:
        self.noted.append("duplicate")

    def note_ahead(self, device: Device, detail: str) -> None:
        self.noted.append(detail)

    def take_telemetry(self, device: Device, telemetry: Telemetry, frame: bytes) -> None:
        self.noted.append(telemetry.facts)

    def note_refusal(self, device: Device | None, refusal: Refused, *, update: bool = False) -> None:
        self.noted.append(refusal.code)

    async def judge(self, device: Device, refusal: R) -> R | Quarantined:
        return self.verdict or refusal

    # The port

    async def send(self, record: Record) -> None:
        self.sent.append(record)

    async def send_octets(self, kind: type[Record], octets: bytes) -> None:
        self.sent.append(wire.decode(octets))

    async def wait(self, awaited: Awaitable[T], take: Callable[[Record, bytes], None]) -> T:
        return await awaited

    def charge_numbers(self, numbers: int) -> None:
        self.charged += numbers


def done_at_once(work: Coroutine[Any, Any, None]) -> None:
    with pytest.raises(StopIteration):
        work.send(None)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path, Config())


def test_a_pull_is_answered_with_the_model_and_an_update_with_a_receipt(host: Host) -> None:
    (model,) = host.tell(Pull(None))
    assert isinstance(model, Model)
    assert (model.version, model.count) == (0, LAYOUT.size)
    (receipt,) = host.tell(replace(sparse_update(1, 0, {0: 1.0}), pull=True))
    assert isinstance(receipt, Receipt)
    assert (receipt.sequence, receipt.version) == (1, 1)
    assert receipt.model is not None
    assert receipt.model.base == 0
    assert host.noted == [1]


def test_a_faulty_leader_s_answer_of_a_run_of_tasks_is_a_refusal_in_another(host: Host) -> None:
    async def push(push: Push) -> Accepted:
        raise AlreadyComputed("another device had computed this shard before")

    host.push = push  # type: ignore[method-assign]
    (refusal,) = host.tell(sparse_update(1, 0, {0: 1.0}))
    assert isinstance(refusal, Refusal)
    assert (refusal.code, refusal.sequence) == (AlreadyComputed.code, 1)


def test_one_pull_is_free_after_an_update(host: Host) -> None:
    host.tell(Pull(None))
    assert host.charged == 0
    host.tell(Pull(None))
    assert host.charged == LAYOUT.size
    host.tell(sparse_update(1, 0, {0: 1.0}))
    host.tell(Pull(0))
    assert host.charged == LAYOUT.size


def test_samples_of_others_come_before_an_answer(tmp_path: Path) -> None:
    host = Host(tmp_path, Config.model_validate({"injection": {"alpha": 0.5, "beta": 0.5}}))
    host.relay.join(DEVICE)
    assert host.tell(SHARED) == []
    assert host.device.statistics.shared == 2
    shared, model = host.tell(Pull(None))  # nobody else shares, so its own come back
    assert shared == SHARED
    assert isinstance(model, Model)
    assert host.device.statistics.received == 2


def test_a_refusal_is_noted_and_names_the_update(host: Host) -> None:
    (refusal,) = host.tell(sparse_update(1, 7, {0: 1.0}))
    assert isinstance(refusal, Refusal)
    assert (refusal.code, refusal.sequence) == ("base-in-future", 1)
    assert host.noted == ["base-in-future"]


def test_too_many_refusals_end_the_session(host: Host) -> None:
    host.verdict = Quarantined("too often")
    with pytest.raises(Quarantined):
        host.conversation.answer(sparse_update(1, 7, {0: 1.0}), b"").send(None)
    assert host.sent == []


def test_the_third_update_in_a_row_that_would_break_the_model_ends_the_session(host: Host) -> None:
    broken = sparse_update(1, 0, {0: 1e30})
    for _ in range(2):
        (refusal,) = host.tell(broken)
        assert isinstance(refusal, Refusal)
        assert refusal.code == StepTooLarge.code
    host.tell(sparse_update(1, 0, {0: 1.0}))  # counts, so that they are in a row no more
    again = replace(broken, sequence=2)
    assert [len(host.tell(again)) for _ in range(2)] == [1, 1]
    with pytest.raises(TooManyRefused, match="3 updates in a row"):
        host.conversation.answer(again, b"").send(None)


def test_who_says_that_it_is_ahead_is_noted_and_answered(host: Host) -> None:
    (model,) = host.tell(Pull(9))
    assert isinstance(model, Model)
    assert model.base is None
    assert host.noted == ["it holds version 9, the run is at 0; is the journal an old copy?"]


def test_the_rest_needs_no_answer(host: Host) -> None:
    assert host.tell(Telemetry({"temperature": 50})) == []
    assert host.tell(Goodbye("sold")) == []
    assert host.noted == [{"temperature": 50}, "retired: sold"]


def test_in_a_run_of_cohorts_a_model_comes_when_it_is_ones_turn(tmp_path: Path) -> None:
    host = Host(tmp_path, Config.model_validate({"coordination": {"mode": "cohort"}}))
    (model,) = host.tell(Pull(None))
    assert isinstance(model, Model)
    assert host.noted == ["its turn came"]
    host.complete = "the run is over"
    assert host.tell(Pull(None)) == [Stop("the run is over")]

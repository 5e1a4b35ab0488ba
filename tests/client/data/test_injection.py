"""Data injection (ScaDLES, section IV): what a device shares, and what it takes from others."""

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from edgeflock.client.backends.backend import Backend
from edgeflock.client.data import injection
from edgeflock.client.data.batcher import Batch
from edgeflock.client.data.injection import Injection, decode, encode
from edgeflock.client.data.records import Broken
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.model.gradient import Gradient
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.protocol import wire
from edgeflock.shared.protocol.messages import Facts, Samples, Welcome
from tests.client.training.fakes import WELCOME

FRAME = 1 << 20
CLASSES = 10
NOTHING = np.zeros(0, np.float32)


@dataclass
class Own:
    """Batches of `size` samples numbered from 0 on: x is [number, number / 2], y its class."""

    size: int = 10
    taken: int = 0
    heard: list[str] = field(default_factory=list)

    async def ready(self, steps: int) -> None:
        self.heard.append(f"ready {steps}")

    def take(self, size: int) -> Batch:
        numbers = np.arange(self.taken, self.taken + self.size)
        self.taken += self.size
        return numbered(numbers)

    def record_result(self, loss: float, right: float | None) -> None:
        self.heard.append("judged")

    def settle(self) -> None:
        self.heard.append("settle")

    def begin(self, welcome: Welcome, backend: Backend) -> None: ...

    def take_back(self) -> None:
        self.heard.append("take back")

    def telemetry(self) -> Facts:
        return {"depth": 7}


def numbered(numbers: NDArray[np.int64], classes: int = 3) -> Batch:
    x = np.stack((numbers, numbers / 2), axis=1).astype(np.float32)
    return x, numbers % classes


@dataclass
class Picky:
    """A backend of a model with CLASSES classes."""

    name: str = "picky"
    layout: Layout = field(default_factory=lambda: Layout.from_shapes([("w", (3,))]))
    tried: list[list[int]] = field(default_factory=list)

    def gradient(
        self, theta: NDArray[np.float32], x: NDArray[np.float32], y: NDArray[np.generic]
    ) -> Gradient:
        assert len(theta) == self.layout.size
        assert len(x) == len(y) > 1, "BatchNorm takes no single sample"
        self.tried.append(y.tolist())
        if not ((y >= 0) & (y < CLASSES)).all():  # type: ignore[operator]
            raise ConfigError("Target is out of bounds.")
        return Gradient(0.0, theta, NOTHING)


@dataclass
class Device:
    own: Any
    injected: Injection
    sent: list[Samples]
    backend: Picky

    def step(self) -> Batch:
        """What a worker does around a step."""
        asyncio.run(self.injected.ready(1))
        return self.injected.take(4)


def device(
    alpha: float = 0.0, beta: float = 0.0, most: int = 100, seed: int = 0, own: object = None
) -> Device:
    """One that takes part in a run."""
    own = own or Own()
    sent: list[Samples] = []

    async def send(samples: Samples) -> None:
        sent.append(samples)

    backend = Picky()
    injected = Injection(own, send, np.random.default_rng(seed), most)  # type: ignore[arg-type]
    welcome = replace(WELCOME, alpha=float(np.float32(alpha)), beta=float(np.float32(beta)))
    injected.begin(replace(welcome, frame_bytes=FRAME), backend)
    return Device(own, injected, sent, backend)


def shared(*numbers: int, classes: int = 3) -> Samples:
    """Samples of these numbers from another device."""
    return encode(*numbered(np.array(numbers), classes), FRAME)


def numbers_of(batch: Batch) -> list[int]:
    x, y = batch
    assert x.dtype == np.float32
    assert y.dtype == np.int64
    assert x[:, 1].tolist() == (x[:, 0] / 2).tolist()
    return [int(number) for number in x[:, 0]]


# What is shared


@pytest.mark.parametrize(
    ("beta", "size", "count"),
    [(0.3, 10, 3), (0.31, 10, 4), (1 / 3, 3, 1), (1e-6, 8, 1), (1, 7, 5), (1, 3, 1)],
)
def test_a_sharing_step_shares_beta_of_its_own_batch_without_replacement(
    beta: float, size: int, count: int
) -> None:
    sharing = device(alpha=1, beta=beta, own=Own(size))
    sharing.injected.receive(shared(1000, 1001, 1002))
    for step in range(5):
        sharing.step()
        assert len(sharing.sent) == step, "sent with the next step"
    for step, record in enumerate(sharing.sent):
        numbers = numbers_of(decode(record, numbered(np.zeros(1, np.int64))))
        assert record.count == len(set(numbers)) == count
        assert set(numbers) <= set(range(step * size, (step + 1) * size)), "of its own, and of that step"
    assert sharing.injected.shared == 4 * count


def test_of_many_steps_alpha_share_and_all_samples_are_as_likely() -> None:
    sharing = device(alpha=0.3, beta=0.25, own=Own(8))
    for _ in range(2001):
        sharing.step()
    assert 510 < len(sharing.sent) < 690  # 600 expected, a standard deviation is 20
    places = np.array([numbers_of(decode(r, numbered(np.zeros(1, np.int64)))) for r in sharing.sent]) % 8
    assert (np.bincount(places.ravel(), minlength=8) > 90).all()  # 150 each


def test_devices_draw_for_themselves_and_again_the_same() -> None:
    def drawn(seed: int) -> list[bytes]:
        sharing = device(alpha=0.5, beta=0.5, seed=seed)
        for _ in range(20):
            sharing.step()
        return [wire.encode(record) for record in sharing.sent]

    assert drawn(1) == drawn(1)
    assert drawn(1) != drawn(2)


@pytest.mark.parametrize(("alpha", "beta"), [(0, 0.5), (0.5, 0), (0, 0)])
def test_nothing_is_shared_in_a_run_that_does_not_want_it(alpha: float, beta: float) -> None:
    quiet = device(alpha, beta)
    for _ in range(50):
        quiet.step()
    assert quiet.sent == []


def test_a_record_is_no_longer_than_the_server_takes() -> None:
    x, y = np.random.default_rng(0).standard_normal((50, 300), np.float32), np.arange(50)
    for frame_bytes in (1300, 5000, 1 << 20):
        record = encode(x, y, frame_bytes)
        assert len(wire.encode(record)) <= frame_bytes
        assert record.count == min(50, (frame_bytes - 64) // 1204)
        assert decode(record, (x, y))[0].tobytes() == x[: record.count].tobytes()
    with pytest.raises(Broken):
        encode(x, y, 1200)


# How samples travel

IMAGES = (np.random.default_rng(1).integers(0, 256, (6, 1, 5, 4)) / np.float32(255)).astype(np.float32)
FLOATS = np.random.default_rng(2).standard_normal((6, 3)).astype(np.float32)
LABELS = np.arange(6)
CODED: dict[str, tuple[Any, Any, int, int]] = {
    "images": (IMAGES, LABELS, 120, 24),
    "features": (FLOATS, LABELS, 72, 24),
    "targets": (FLOATS, FLOATS[:, :1], 72, 24),
    "sequences": (FLOATS, np.arange(24).reshape(6, 4) - 100, 72, 96),
    "one pixel between": (
        IMAGES + np.float32(1e-4) * (np.arange(6) == 3)[:, None, None, None],
        LABELS,
        480,
        24,
    ),
    "huge": (FLOATS * np.float32(1e38), LABELS, 72, 24),
}


@pytest.mark.parametrize("name", CODED)
def test_samples_travel_exactly_and_images_in_a_byte_a_pixel(name: str) -> None:
    x, y, x_bytes, y_bytes = CODED[name]
    record = encode(x, y, FRAME)
    assert (record.count, len(record.x), len(record.y)) == (6, x_bytes, y_bytes)
    travelled = wire.decode(wire.encode(record))
    assert isinstance(travelled, Samples)
    back_x, back_y = decode(travelled, (x[:1], y[:1]))
    for back, sent in ((back_x, x), (back_y, y)):
        assert (back.dtype, back.shape, back.tobytes()) == (sent.dtype, sent.shape, sent.tobytes())


def test_labels_that_do_not_fit_are_not_shared() -> None:
    with pytest.raises(Broken):
        encode(FLOATS, LABELS + (1 << 31), FRAME)


# What comes in


def test_others_samples_join_the_next_batch_behind_its_own_and_come_once() -> None:
    receiving = device()
    assert numbers_of(receiving.step()) == [*range(10)]
    receiving.injected.receive(shared(100, 101))
    receiving.injected.receive(shared(102))
    x, y = receiving.step()
    assert numbers_of((x, y)) == [*range(10, 20), 100, 101, 102]
    assert y.tolist() == [number % 3 for number in numbers_of((x, y))]
    assert numbers_of(receiving.step()) == [*range(20, 30)]
    assert receiving.injected.received == 3


def test_the_steps_of_an_update_share_what_others_shared() -> None:
    receiving = device()
    receiving.step()
    receiving.injected.receive(shared(*range(100, 107)))
    asyncio.run(receiving.injected.ready(3))
    joined = [numbers_of(receiving.injected.take(4))[10:] for _ in range(4)]
    assert joined == [[100, 101, 102], [103, 104], [105, 106], []]
    receiving.injected.receive(shared(*range(200, 202)))
    asyncio.run(receiving.injected.ready(2))
    assert numbers_of(receiving.injected.take(4))[10:] == [200]
    receiving.injected.begin(WELCOME, receiving.backend)
    receiving.step()
    assert numbers_of(receiving.step())[10:] == [], "another run"


def test_what_comes_before_the_first_batch_waits_for_the_second() -> None:
    receiving = device()
    receiving.injected.receive(shared(100))
    assert numbers_of(receiving.step()) == [*range(10)]
    assert numbers_of(receiving.step()) == [*range(10, 20), 100]


def test_the_newest_are_kept() -> None:
    receiving = device(most=5)
    receiving.step()
    for first in range(100, 140, 4):
        receiving.injected.receive(shared(*range(first, first + 4)))
    assert numbers_of(receiving.step())[10:] == [135, 136, 137, 138, 139]
    receiving.injected.receive(shared(*range(200, 220)))
    assert numbers_of(receiving.step())[10:] == [*range(215, 220)]


def test_what_is_kept_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four records of four samples of 12 bytes. A larger one is dropped."""
    monkeypatch.setattr(injection, "MAX_BYTES", 200)
    receiving = device(most=1000)
    receiving.step()
    records = [shared(*range(first, first + 4)) for first in range(100, 140, 4)]
    for record in records:
        receiving.injected.receive(record)
    assert numbers_of(receiving.step())[10:] == [*range(124, 140)]
    x, y = numbered(np.arange(20))
    large = Samples(20, False, x.tobytes(), True, y.astype("<i4").tobytes())
    receiving.injected.receive(large)
    assert numbers_of(receiving.step()) == [*range(20, 30)]
    assert receiving.injected._tally.total == 1


def test_what_is_drawn_and_not_sent_is_bounded_too() -> None:
    """Many local steps draw before anything can be sent; what has no room is not drawn, and stays."""
    sharing = device(alpha=1, beta=1, most=25)
    kept = [number for _ in range(30) for number in numbers_of(sharing.injected.take(4))]
    asyncio.run(sharing.injected.ready(1))
    sent = [
        number
        for record in sharing.sent
        for number in numbers_of(decode(record, numbered(np.zeros(1, np.int64))))
    ]
    assert [record.count for record in sharing.sent] == [8, 8, 8]
    assert sorted(sent + kept) == list(range(300))


def test_what_was_taken_back_comes_again_of_others_too() -> None:
    receiving = device()
    receiving.step()
    receiving.injected.receive(shared(100))
    receiving.step()
    receiving.injected.take_back()
    receiving.injected.receive(shared(101))
    assert receiving.injected.received == 0
    assert numbers_of(receiving.step()) == [*range(20, 30), 100, 101]
    receiving.injected.settle()
    assert receiving.own.heard == ["ready 1", "ready 1", "take back", "ready 1", "settle"]
    assert receiving.injected.telemetry() == {"depth": 7}


def test_another_run_gets_nothing_of_this_one() -> None:
    both = device(alpha=1, beta=1)
    both.step()
    both.injected.receive(shared(100))
    both.injected.begin(replace(WELCOME, alpha=0.0, beta=1.0), both.backend)
    both.step()
    assert numbers_of(both.step()) == [*range(20, 30)]
    assert both.sent == []


# What does not fit


def record(**fields: Any) -> Samples:
    return replace(shared(100, 101), **fields)


def floats(*numbers: float) -> bytes:
    return np.array(numbers, "<f4").tobytes()


BROKEN: dict[str, Callable[[], Samples]] = {
    "another count": lambda: record(count=3),
    "none": lambda: record(count=0),
    "none at all": lambda: record(count=0, x=b"", y=b""),
    "a huge count": lambda: record(count=2**63 - 1),
    "x cut short": lambda: record(x=shared(100, 101).x[:-1]),
    "x of another shape": lambda: record(x=floats(1, 2, 3, 4, 5, 6)),
    "x as bytes": lambda: record(octets=True),
    "y cut short": lambda: record(y=bytes(4)),
    "numbers for labels": lambda: record(labels=False),
    "NaN": lambda: record(x=floats(1, 2, 3, np.nan)),
    "infinite": lambda: record(x=floats(1, -np.inf, 3, 4)),
    "far": lambda: record(x=floats(1, 2, 3, 1e9)),
    "a class too many": lambda: record(y=np.array([0, CLASSES], "<i4").tobytes()),
    "a negative class": lambda: record(y=np.array([-1, 0], "<i4").tobytes()),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_record_is_dropped_and_logged_once(name: str, caplog: pytest.LogCaptureFixture) -> None:
    receiving = device()
    receiving.step()
    for count in (1, 2):
        receiving.injected.receive(BROKEN[name]())
        receiving.injected.receive(shared(200))
        numbers = numbers_of(receiving.step())
        assert numbers[10:] == [200]
        assert receiving.injected._tally.total == count
    assert len(caplog.records) == 1
    assert receiving.injected.received == 2


@pytest.mark.parametrize("bad", [np.nan, np.inf, -1e30])
def test_targets_that_are_numbers_are_looked_at_too(bad: float) -> None:
    class Targets(Own):
        def take(self, size: int) -> Batch:
            x, _ = super().take(size)
            return x, x[:, :1]

    receiving = device(own=Targets())
    receiving.step()
    receiving.injected.receive(Samples(1, False, floats(1, 2), False, floats(bad)))
    receiving.injected.receive(Samples(1, False, floats(3, 4), False, floats(5)))
    x, y = receiving.step()
    assert (x[10:].tolist(), y[10:].tolist()) == ([[3, 4]], [[5]])
    assert receiving.backend.tried == []


def test_a_higher_class_than_the_device_has_met_is_tried_once_before_it_joins() -> None:
    receiving = device()  # its own are of the classes 0, 1, 2
    receiving.step()
    receiving.injected.receive(shared(100, 101, 102))
    receiving.step()
    assert receiving.backend.tried == []
    for _ in range(2):
        receiving.injected.receive(shared(1, 15, 7, 27, 5, classes=10))
        assert numbers_of(receiving.step())[10:] == [1, 15, 7, 27, 5]
    assert receiving.backend.tried == [[7, 7]], "the highest says it of those below"


# Threads


def test_samples_may_arrive_while_a_batch_is_taken() -> None:
    receiving = device()
    receiving.step()
    receiving.injected.receive(shared(100))
    with ThreadPoolExecutor(1) as thread:

        class Interrupted(deque[Samples]):
            """Cleared only after another thread had the time to add to it, if nothing holds that up."""

            def clear(self) -> None:
                wait([thread.submit(receiving.injected.receive, shared(101))], timeout=0.1)
                super().clear()

        receiving.injected._inbox._records = Interrupted(receiving.injected._inbox._records)
        assert numbers_of(receiving.injected.take(4))[10:] == [100]
        thread.submit(lambda: None).result()  # what was held up has its turn first
        assert numbers_of(receiving.injected.take(4))[10:] == [101]

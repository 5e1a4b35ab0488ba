"""What a hostile server might answer: Welcomes, Models, Receipts, Refusals, Stops and Samples with something
wrong in them, taken by the real Link and Worker, in sessions that were good until then.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import aiohttp
import msgpack
import numpy as np

from edgeflock.client.transport import Link
from edgeflock.devices.emulation.clock import run_virtually
from edgeflock.shared.codecs import activity, entries, sparse, values
from edgeflock.shared.errors import ConfigError, EdgeflockError
from edgeflock.shared.model.start import CONSTANT, UNIFORM, Filling, Start
from edgeflock.shared.protocol import wire
from edgeflock.shared.protocol.messages import PROTOCOL, Hello, Model, Receipt, Record, Refusal, Samples, Stop
from tests.client.training.fakes import LAYOUT, WELCOME, FakeBackend, model_at, worker
from tests.fuzzing.protobuf import with_damage

CORPUS = Path(__file__).parents[1] / "data" / "corpus" / "records"

SCALE = values.CODINGS["scale"].mode

MEMORY = 1 << 26

Session = tuple[bytes, ...]
"""What a server says, in order."""


def _steps() -> Iterator[Model]:
    """Lossy differences from version 0 on, each coded as its device expects it after the one before."""
    where, known = np.array([1, 3, 12]), activity.initial(LAYOUT)
    for version in range(1, 4):
        changes = np.array([0.5, -0.5, 0.25], np.float32)
        coded = entries.encode(changes, where, LAYOUT, sparse.GRID, SCALE, known)
        assert coded.index_mode == sparse.GRID
        known = activity.follow(known, where, LAYOUT)
        yield Model(
            version, version - 1, coded.index_mode, coded.value_mode, 3, coded.indices, coded.values, True
        )


def _said(*records: Record) -> Session:
    return tuple(map(wire.encode, records))


_STEPS = tuple(_steps())
_START = Start(7, (Filling(UNIFORM, -0.5, 0.5), Filling(CONSTANT, 0.0, 0.0)))

GOOD: tuple[Session, ...] = (
    _said(
        WELCOME,
        model_at(3),
        Receipt(41, 4, model_at(4)),
        Samples(1, False, bytes(4), True, bytes(4)),
        Receipt(42, 5, replace(model_at(5), base=4, count=0, index_mode=sparse.RAW, values=b"")),
        Refusal("base-expired", "pull again", 43),
        model_at(6),
        Stop("the run is over"),
    ),
    _said(
        replace(WELCOME, start=_START, version=0, indices=sparse.GRID, values=SCALE),
        _STEPS[0],
        Receipt(41, 2, _STEPS[1]),
        Receipt(42, 3, _STEPS[2]),
        Refusal("dropped", "an operator does not want this device", None),
    ),
)

ODD: tuple[Any, ...] = (
    *(0, 1, -1, 2, 3, 255, 1 << 31, 1 << 40, 1 << 60, (1 << 63) - 1, (1 << 64) - 1),
    *(None, True, False, 0.5, -1.0, 1e30, float("nan"), float("inf")),
    *("", "x" * 100_000, "\x1b[2J\x1b]0;owned\x07", "\ud7ff\u202e"),
    *(b"", b"\xff" * 64, bytes(100_000), [], [[]], [0] * 1000, {}, {"a": 1}),
    [["w", [1 << 60]]],
    [["w", [1 << 20] * 40]],
    [[str(n), [1]] for n in range(10_001)],
    [["kernel", [2, 5]], ["kernel", [4]]],
)
_ODD = tuple(msgpack.packb(value) for value in ODD)


def hostile_sessions(seed: int) -> Iterator[Session]:
    """One after the other, without an end: in each, one record is not as it was."""
    random = Random(seed)
    while True:
        session = list(random.choice(GOOD))
        at = random.randrange(len(session))
        what = random.random()
        if what < 0.2:
            session[at] = with_damage(session[at], random)
        elif what < 0.3:
            session[at] = random.choice(random.choice(GOOD))
        else:
            record = msgpack.unpackb(session[at])
            for _ in range(random.choice((1, 1, 1, 2))):
                _change(record, random)
            session[at] = msgpack.packb(record, use_single_float=True)
        yield tuple(session)


def outcomes(sessions: Iterable[Session]) -> Counter[str]:
    """How the device's part ended: "over", or the class of the error. Raises what none may end with."""
    return run_virtually(_outcomes(sessions))


async def _outcomes(sessions: Iterable[Session]) -> Counter[str]:
    ended: Counter[str] = Counter()
    for session in sessions:
        ended[await _outcome(session)] += 1
    return ended


async def _outcome(session: Session) -> str:
    hello = Hello(PROTOCOL, "pi", b"", {}, shares=True)
    link = Link("http://192.0.2.1", None, hello, Random(0), _at_once, memory=MEMORY, insecure=True)
    link._dialer.http = _Http(session)  # type: ignore[assignment]
    good = worker(link, FakeBackend(), samples=50, compute=_here)  # type: ignore[arg-type]
    try:
        await good.run()
    except EdgeflockError as error:
        if len(str(error)) > 1000 or not str(error).isprintable():
            raise AssertionError(f"no line that can be read: {error!r}") from error
        return type(error).__name__
    return "over"


def _change(record: list[Any], random: Random) -> None:
    """One field, somewhere."""
    place = record
    while inner := [field for field in place if isinstance(field, list) and field]:
        if random.random() < 0.4:
            break
        place = random.choice(inner)
    at = random.randrange(len(place))
    what = random.randrange(8)
    if what == 0:
        place.insert(at, _odd(random))
    elif what == 1 and len(place) > 1:
        del place[at]
    elif isinstance(place[at], bytes) and what < 6:
        place[at] = with_damage(place[at], random)
    else:
        place[at] = _odd(random)


def _odd(random: Random) -> Any:
    """One of ODD, its own to be changed."""
    return msgpack.unpackb(random.choice(_ODD))


async def _at_once(seconds: float) -> None:
    await asyncio.sleep(0)


async def _here(function: Any, *arguments: Any) -> Any:
    return function(*arguments)


class _Http:
    """Opens one session; then it is no server any more."""

    def __init__(self, session: Session) -> None:
        self._sessions = [session]

    async def ws_connect(self, url: object, **settings: Any) -> "_Socket":
        if not self._sessions:
            raise ConfigError("the session is over")
        return _Socket(self._sessions.pop(), settings["max_msg_size"])


class _Socket:
    def __init__(self, session: Session, longest: int) -> None:
        self._left = list(session)
        self._longest = longest
        self.close_code = 1000

    async def send_bytes(self, octets: bytes) -> None:
        pass

    async def close(self) -> None:
        pass

    async def receive(self) -> SimpleNamespace:
        if not self._left:
            return SimpleNamespace(type=aiohttp.WSMsgType.CLOSE, data=1000)
        octets = self._left.pop(0)
        if len(octets) >= self._longest:
            error = aiohttp.WebSocketError(1009, "too long")
            return SimpleNamespace(type=aiohttp.WSMsgType.ERROR, data=error)
        return SimpleNamespace(type=aiohttp.WSMsgType.BINARY, data=octets)

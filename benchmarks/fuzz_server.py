"""Frames of a hostile device that has joined, in a large number, through the server's real sessions.

    python -m benchmarks.fuzz_server --frames 1000000 --seconds 600

Asynchronous and in rounds, in turn. No sockets: bytes go into the protocol that asyncio would call, through
door, aiohttp, session, writer and engine, with the journal in a temporary folder. Each frame is made from
what the session says (version, sequence number, what is held, the layout) and one part of it is wrong, or
none. It must be answered, or end the session; what is refused must change nothing of the engine, and what is
accepted must leave theta finite; nothing may raise; an honest device is served all the while. A frame that
breaks one of these is written to --keep. Prints one JSON object.
"""

import argparse
import asyncio
import base64
import json
import logging
import math
import os
import struct
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, cast
from zlib import crc32

import msgpack
import numpy as np
from aiohttp import web

from benchmarks.hosting import hosted_run
from edgeflock.server.app import create_app
from edgeflock.server.engine import Engine
from edgeflock.server.engine.outcomes import SEQUENCE_WINDOW
from edgeflock.server.http.keys import CONNECTION_LIMITS, HOST
from edgeflock.server.ledger import claim_run
from edgeflock.shared.codecs import sparse, values
from edgeflock.shared.errors import REFUSALS
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.protocol.wire import MAX_LEVEL
from edgeflock.shared.settings.config import Config, parse

LAYOUT = Layout.from_shapes(
    [
        ("conv.weight", (8, 5)),
        ("conv.bias", (8,)),
        ("scale", ()),
        ("dense.weight", (10, 6)),
        ("norm", (4,), True),
    ]
)
"""109 parameters and four running statistics."""

PING = b"\x89\x81\0\0\0\0?"

SECONDS = 120.0
"""Within which whatever is asked is answered, on however busy a machine."""

HALF_SECONDS = 0.02
"""How long the rest of what is no whole frame is waited for."""

MODES = ("async", "rounds")

_UPDATE, _RECEIPT, _REFUSAL = 5, 6, 7

BEFORE_ADMISSION = {"bad-sequence", "sequence-ahead", "superseded"}
"""Refusals of an update that stand before its content is looked at."""

MEMORY = next((folder for folder in ("/dev/shm",) if Path(folder).is_dir()), None)
"""Where journals lie: no disk is measured."""

SETTINGS = (
    "evaluation.every=3600",
    "server.open=true",
    "model.data=",
    # One at a time updates keep theta finite by arithmetic: this times the largest float, a million times.
    "coordination.learning_rate=1e-9",
    "coordination.window=16",
    "limits.expansion_bytes=2000",
    "journal.snapshot_every=100000",
    "journal.keep_updates=false",
    "injection.alpha=0.5",
    "injection.beta=0.5",
)


class Broken(AssertionError):
    """A frame did what none may."""


class Line(asyncio.Transport):
    """A device's end of a connection in memory: what the server writes is read as frames."""

    def __init__(self, factory: Callable[[], asyncio.Protocol]) -> None:
        super().__init__({"peername": ("192.0.2.1", 1)})
        self.closed = self.ponged = False
        self.answers: list[list[Any]] = []
        self.code = 0
        self._came = asyncio.Event()
        self._buffer = b""
        self._upgraded = False
        self._protocol = factory()
        self._protocol.connection_made(self)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._buffer += bytes(data)
        self._read()

    def writelines(self, parts: Any) -> None:
        self.write(b"".join(parts))

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._came.set()
            asyncio.get_running_loop().call_soon(self._protocol.connection_lost, None)

    abort = close

    def is_closing(self) -> bool:
        return self.closed

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def send(self, octets: bytes) -> None:
        if not self.closed:
            self._came.clear()
            self._protocol.data_received(octets)

    async def join(self, name: str) -> list[Any]:
        """The Welcome."""
        key = base64.b64encode(os.urandom(16)).decode()
        self.send(
            "GET /v1/session HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n".encode()
        )
        while not self._upgraded and not self.closed:  # noqa: ASYNC110
            await asyncio.sleep(0)
        self.send(framed(msgpack.packb([1, 2, name, b"", {}, True])))
        return await self.answer(SECONDS)

    async def heard(self, seconds: float) -> None:
        """Until the server has answered a ping, or hung up."""
        async with asyncio.timeout(seconds):
            while not self.ponged and not self.closed:
                await self._came.wait()
                self._came.clear()

    async def answer(self, seconds: float) -> list[Any]:
        """The next record; [] if the server hangs up, TimeoutError if nothing comes."""
        async with asyncio.timeout(seconds):
            while not self.answers and not self.closed:
                await self._came.wait()
                self._came.clear()
        return self.answers.pop(0) if self.answers else []

    def _read(self) -> None:
        if not self._upgraded:
            head, end, rest = self._buffer.partition(b"\r\n\r\n")
            if not end:
                return
            self._upgraded, self._buffer = head.startswith(b"HTTP/1.1 101 "), rest
        while len(self._buffer) >= 2:
            length, at = self._buffer[1], 2
            if length > 125:
                at = 4 if length == 126 else 10
                length = int.from_bytes(self._buffer[2:at], "big")
            if len(self._buffer) < at + length:
                return
            opcode, payload = self._buffer[0] & 15, self._buffer[at : at + length]
            self._buffer = self._buffer[at + length :]
            if opcode == 2:
                self.answers.append(msgpack.unpackb(payload))
                self._came.set()
            elif opcode == 9:
                self.send(framed(payload, 0x8A))
            elif opcode == 10:
                self.ponged = True
                self._came.set()
            elif opcode == 8:
                self.code = int.from_bytes(payload[:2], "big")
                self.close()


def framed(payload: bytes, first: int = 0x82) -> bytes:
    """Masked with zeros."""
    size = len(payload)
    length = bytes([0x80 | size]) if size < 126 else b"\xfe" + struct.pack(">H", size)
    return bytes([first]) + length + bytes(4) + payload


@dataclass(slots=True)
class Known:
    """What a device knows of the run, from its session."""

    version: int = 0
    sequence: int = 0
    settled: list[bytes] = field(default_factory=list)
    """Updates that were accepted, as they were sent."""


class Frames:
    """Frames of a device, by turns honest in all, wrong in one part, or noise."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self._numbers = np.random.default_rng(random.getrandbits(32))

    def next(self, known: Known) -> bytes:
        """The bytes of one frame."""
        pick = self.random.random()
        if pick < 0.01:
            return framed(self._noise(msgpack.packb(self.update(known))))
        if pick < 0.013:
            return framed(self._record())
        if pick < 0.0135:
            whole = framed(msgpack.packb(self.update(known)))
            return self._noise(whole[:6]) + whole[6:]
        if pick < 0.10:
            return framed(msgpack.packb([3, self._base(known), self._integer()]))
        if pick < 0.13:
            return framed(self._samples())
        if pick < 0.15 and known.settled:
            return self.random.choice(known.settled)
        update = self.update(known)
        for _ in range(self.random.choice((0, 1, 2, 2, 2, 3, 3, 3, 3, 3, 4, 4, 4))):
            self._spoil(update, known)
        return framed(msgpack.packb(update))

    def update(self, known: Known) -> list[Any]:
        """A good one."""
        random, size = self.random, LAYOUT.parameters.size
        where = np.sort(self._numbers.choice(size, random.randint(1, 12), replace=False))
        delta = self._numbers.standard_normal(where.size).astype(np.float32)
        if random.random() < 0.4:
            indices = sparse.encode(where, size)
            coding = random.choice(("f32", "f16", "int8", "codebook4", "sign"))
            mode, index_mode = values.CODINGS[coding].mode, sparse.GOLOMB
            octets = values.encode(delta, LAYOUT.parameters.counts(where), coding)
        else:
            index_mode, mode = 1, 0
            indices, octets = where.astype("<u4").tobytes(), delta.astype("<f4").tobytes()
        statistics = np.zeros(LAYOUT.buffers, "<f2").tobytes()
        return [
            _UPDATE, known.sequence + 1, known.version, where.size, indices, octets + statistics, -16,
            random.choice((1, 10, 64)), 0, index_mode, mode, None, random.random() < 0.3,
        ]  # fmt: skip

    def _spoil(self, update: list[Any], known: Known) -> None:
        """Make one part of it another."""
        random = self.random
        at = random.choice((2, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 6, 7, 8, 9, 10))
        if random.random() < 0.005:
            update[random.randrange(1, 13)] = self._anything()
        if random.random() < 0.03:
            at = random.choice((1, 1, 1, 11, 12))
        if at == 1:
            last = known.sequence
            update[1] = random.choice((0, last, last + 2, last + SEQUENCE_WINDOW, last + 1 + SEQUENCE_WINDOW,
                                       (1 << 63) - 1, 1 << 63, self._integer()))  # fmt: skip
        elif at == 2:
            update[2] = self._base(known)
        elif at == 3:
            update[3] = random.choice(
                (0, random.randrange(13), LAYOUT.size, LAYOUT.size + 1, self._integer())
            )
        elif at in (4, 5):
            update[at] = self._noise(update[at]) if isinstance(update[at], bytes) else b""
        elif at == 6:
            update[6] = random.choice((None, 0, MAX_LEVEL, -MAX_LEVEL, MAX_LEVEL + 1, 0.5, math.nan))
        elif at == 7:
            update[7] = random.choice((0, 1, 65_536, 65_537, self._integer()))
        elif at == 8:
            update[8] = self._integer()
        elif at in (9, 10):
            update[at] = random.choice((0, 1, 2, 3, 4, 5, 6, 255, self._integer()))
        elif at == 11:
            update[11] = random.choice(({}, {"depth": 3}, {"x": math.nan}, {"": ""}, self._anything()))
        else:
            update[12] = random.choice((True, False, 1, None))

    def _noise(self, octets: bytes) -> bytes:
        """Bits flipped, bytes put in, left out, doubled, or the end gone."""
        changed, random = bytearray(octets), self.random
        for _ in range(random.choice((1, 1, 2, 5))):
            place = random.randrange(len(changed) + 1)
            kind = random.randrange(5)
            if kind == 0 and place < len(changed):
                changed[place] ^= 1 << random.randrange(8)
            elif kind == 1 and place < len(changed):
                changed[place] = random.choice((0, 1, 127, 128, 255))
            elif kind == 2:
                changed[place:place] = random.randbytes(random.choice((1, 2, 8)))
            elif kind == 3:
                del changed[place : place + random.choice((1, 2, 8))]
            else:
                del changed[place:]
        return bytes(changed)

    def _base(self, known: Known) -> Any:
        version = known.version
        return self.random.choice((None, 0, version, max(0, version - 1), version + 1, max(0, version - 17),
                                   self._integer()))  # fmt: skip

    def _integer(self) -> int:
        random = self.random
        return random.choice((0, 1, 255, 65_535, 1 << 31, (1 << 63) - 1, random.getrandbits(16)))

    def _anything(self) -> Any:
        return self.random.choice((None, True, -1, 0.5, "text", b"bytes", [], [[[]]], {}, {"a": []}, 1 << 63))

    def _record(self) -> bytes:
        """Any array of anything."""
        random = self.random
        record = [random.randrange(-1, 15), *(self._anything() for _ in range(random.randrange(14)))]
        return cast(bytes, msgpack.packb(record))

    def _samples(self) -> bytes:
        random = self.random
        count = random.choice((0, 1, 3, self._integer()))
        octets = random.random() < 0.5
        x = bytes(random.choice((0, 1, 12, 24)))
        return cast(bytes, msgpack.packb([9, count, octets, x, True, bytes(random.choice((0, 4, 12)))]))


@dataclass(slots=True)
class Tally:
    """What came of the frames."""

    frames: int = 0
    past_sequence: int = 0
    """Updates whose content was looked at."""
    accepted: int = 0
    sessions: int = 0
    honest: int = 0
    """Updates of the honest device."""
    answers: Counter[str] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)
    last: bytes = b""
    """The frame that broke it."""


@contextmanager
def watched(found: list[str]) -> Iterator[None]:
    """Errors that are logged, and exceptions that nobody handles, go to `found`."""

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found.append(self.format(record))

    handler = Handler(logging.ERROR)
    logging.getLogger().addHandler(handler)
    asyncio.get_running_loop().set_exception_handler(lambda _, told: found.append(str(told)))
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)


@asynccontextmanager
async def served(config: Config, directory: Path) -> Any:
    """(the engine, what makes connections) of a server without sockets."""
    with ExitStack() as opened:
        theta = np.random.default_rng(7).standard_normal(LAYOUT.size).astype(np.float32)
        claim = opened.enter_context(claim_run(directory, "server.directory", LAYOUT, theta, config, None))
        hosted = opened.enter_context(hosted_run(claim, directory))
        app = create_app(config, hosted)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
        await runner.setup()
        try:
            assert runner.server is not None
            yield claim.engine, app[CONNECTION_LIMITS].protocol(runner.server, app[HOST].traffic.total)
        finally:
            await runner.cleanup()


def digest(engine: Engine) -> tuple[int, int, int, int]:
    """What no refusal may change."""
    parameters = engine.parameters
    return (
        parameters.version,
        crc32(parameters.theta.tobytes()),
        len(engine.held_updates),
        engine.receipts.last_sequence(1),
    )


async def attack(
    mode: str, frames: "Frames | Iterator[bytes]", tally: Tally, most: int, until: float
) -> None:
    """Send `most` frames, or as many as go until the time `until`, to a server in `mode`."""
    config = parse(overrides=[*SETTINGS, f"coordination.mode={mode}"])
    found: list[str] = []
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder, watched(found):
        async with served(config, Path(folder)) as (engine, connect):
            await _attack(engine, connect, frames, tally, most, until, found)


async def _attack(
    engine: Engine,
    connect: Callable[[], asyncio.Protocol],
    frames: "Frames | Iterator[bytes]",
    tally: Tally,
    most: int,
    until: float,
    found: list[str],
) -> None:
    hostile, honest, known = Line(connect), Line(connect), Known()
    welcome = await hostile.join("hostile")
    known.sequence = welcome[8]
    await honest.join("honest")
    honest_sequence = 0
    good = Frames(Random(1))

    async def be_honest() -> None:
        """The honest device takes part: its update is accepted, and so a round ends that waits for it."""
        nonlocal honest_sequence
        honest_sequence += 1
        update = good.update(Known(engine.published.version, honest_sequence - 1))
        honest.send(framed(msgpack.packb(update, use_single_float=True)))
        while (answer := await honest.answer(SECONDS))[:1] == [9]:
            pass
        if answer[:2] != [_RECEIPT, honest_sequence]:
            raise Broken(f"the honest device got {answer!r:.300}")
        tally.honest += 1

    while tally.frames < most and time.monotonic() < until:
        if tally.frames % 500 == 499 and not engine.parameters.regime.rounds:
            await be_honest()
        known.version = engine.published.version
        frame = frames.next(known) if isinstance(frames, Frames) else next(frames)
        before = digest(engine)
        try:
            answer = await _asked(engine, hostile, frame, be_honest)
            _judge(engine, frame, answer, before, known, tally)
            if found:
                raise Broken(found[0])
            if hostile.closed:
                tally.sessions += 1
                hostile = Line(connect)
                welcome = await hostile.join("hostile")
                if not welcome or welcome[0] != 2:
                    raise Broken(f"after it, the device is not let in: {welcome!r:.300}")
                known.sequence = welcome[8]
        except (Broken, TimeoutError) as broken:
            tally.broken.append(f"{frame[:200].hex()}: {broken!r:.500}")
            tally.last = frame
            return
        tally.frames += 1


async def _asked(
    engine: Engine, hostile: Line, frame: bytes, be_honest: Callable[[], Any]
) -> list[Any] | None:
    """The answer to a frame; [] if the session ended without one, None if there is none to it.

    A ping behind it is answered once the frame is settled, or held.
    """
    hostile.answers.clear()
    hostile.ponged = False
    hostile.send(frame + PING)
    try:
        await hostile.heard(SECONDS if is_whole(frame) else HALF_SECONDS)
    except TimeoutError:
        if is_whole(frame):
            raise
        hostile.close()  # half of a frame: what follows is taken for the rest of it
        return None
    if not hostile.answers and not hostile.closed and engine.held_updates:
        await be_honest()
        return await hostile.answer(SECONDS)
    if hostile.closed:
        return hostile.answers.pop(0) if hostile.answers else []
    return hostile.answers.pop(0) if hostile.answers else None


def is_whole(frame: bytes) -> bool:
    """Whether it is as long as it announces, as one of this fuzzer's: others are halves, or no frames."""
    return any(framed(frame[at:]) == frame for at in (6, 8))


def _judge(
    engine: Engine,
    frame: bytes,
    answer: list[Any] | None,
    before: tuple[int, int, int, int],
    known: Known,
    tally: Tally,
) -> None:
    """Raises Broken."""
    kind = answer[0] if answer else None
    if kind == _RECEIPT and answer is not None:
        tally.answers["receipt"] += 1
        if answer[1] > known.sequence:
            known.sequence = answer[1]
            known.settled = [*known.settled[-20:], frame]
            tally.accepted += 1
            tally.past_sequence += 1
            if not np.isfinite(engine.parameters.theta).all():
                raise Broken("theta is no longer finite")
            return
    elif kind == _REFUSAL and answer is not None:
        code = answer[1]
        tally.answers[code] += 1
        if code not in REFUSALS:
            raise Broken(f"the code {code} is unknown")
        if answer[3] is not None and code not in BEFORE_ADMISSION:
            tally.past_sequence += 1
    else:
        tally.answers["none" if answer is None else "closed" if not answer else str(kind)] += 1
    if digest(engine) != before:
        raise Broken(f"{answer!r:.200} changed {before} to {digest(engine)}")


async def run(total: int, seconds: float, seed: int, tallies: dict[str, Tally]) -> dict[str, Any]:
    """The figures of an attack of `total` frames, or of as many as go in so many seconds."""
    began = time.monotonic()
    for number, mode in enumerate(MODES):
        frames = Frames(Random(seed + number))
        until = began + seconds * (number + 1) / len(MODES)
        await attack(mode, frames, tallies[mode], total // len(MODES), until)
    return {
        "seconds": round(time.monotonic() - began, 1),
        "cpu_seconds": round(time.process_time(), 1),
        **{
            mode: {
                "frames": tally.frames,
                "past_sequence": tally.past_sequence,
                "accepted": tally.accepted,
                "sessions_ended": tally.sessions,
                "honest_updates": tally.honest,
                "answers": dict(tally.answers.most_common()),
                "broken": tally.broken,
            }
            for mode, tally in tallies.items()
        },
    }


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--frames", type=int, default=20_000)
    options.add_argument("--seconds", type=float, default=3600.0, help="the most that it takes")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--keep", type=Path, help="a folder for frames that broke something")
    given = options.parse_args()
    tallies = {mode: Tally() for mode in MODES}
    figures = asyncio.run(run(given.frames, given.seconds, given.seed, tallies))
    for tally in tallies.values():
        if tally.last and given.keep is not None:
            given.keep.mkdir(parents=True, exist_ok=True)
            (given.keep / f"{crc32(tally.last):08x}.bin").write_bytes(tally.last)
    print(json.dumps(figures, indent=1))
    modes = [figures[mode] for mode in MODES]
    sys.exit(any(mode["broken"] or 3 * mode["past_sequence"] < mode["frames"] for mode in modes))


if __name__ == "__main__":
    main()

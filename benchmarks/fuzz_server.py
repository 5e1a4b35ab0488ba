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
import json
import logging
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any
from zlib import crc32

import msgpack
import numpy as np
from aiohttp import web

from benchmarks.fuzz_frames import LAYOUT, Frames, Known, framed
from benchmarks.fuzz_line import SECONDS, Line
from benchmarks.hosting import hosted_run
from edgeflock.server.app import create_app
from edgeflock.server.engine import Engine
from edgeflock.server.http.keys import CONNECTION_LIMITS, HOST
from edgeflock.server.ledger import claim_run
from edgeflock.shared.errors import REFUSALS
from edgeflock.shared.settings.config import Config, parse

PING = b"\x89\x81\0\0\0\0?"

HALF_SECONDS = 0.02
"""How long the rest of what is no whole frame is waited for."""

MODES = ("async", "rounds")

_RECEIPT, _REFUSAL = 6, 7

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
    asyncio.get_running_loop().set_exception_handler(lambda _, reported: found.append(str(reported)))
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

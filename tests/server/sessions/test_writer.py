"""The group commit on a real engine: whatever happens to it, everybody has an answer and nothing is torn."""

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from edgeflock.server.coordination.cohort import Cohort
from edgeflock.server.coordination.rounds import RoundEnd, Rounds
from edgeflock.server.descent.regime import Regime
from edgeflock.server.engine.engine import Engine
from edgeflock.server.engine.outcomes import Accepted
from edgeflock.server.ledger.recovery import recover
from edgeflock.server.sessions.answers import PendingUpdate
from edgeflock.server.sessions.writer import Writer
from edgeflock.shared.errors import NonFinite, Superseded, Unavailable
from edgeflock.shared.protocol.messages import Receipt
from tests.server.pushes import LAYOUT, REGIME, open_engine, push, sparse_update

ROUNDS = Regime("none", 0.1, 6, rounds=True)


@asynccontextmanager
async def writing(directory: Path, regime: Regime = REGIME) -> AsyncIterator[tuple[Engine, Writer]]:
    """A writer at work; ended with the context, however it has ended."""
    journal, engine = open_engine(directory, regime)
    writer = Writer(engine)
    running = asyncio.create_task(writer.run())
    try:
        yield engine, writer
    finally:
        writer.stop()
        await asyncio.wait([running])
        running.cancelled() or running.exception()
        journal.abandon()


async def test_what_waits_at_a_stop_is_answered(tmp_path: Path) -> None:
    async with writing(tmp_path) as (engine, writer):
        pushing = [
            asyncio.ensure_future(writer.push(push(device, sparse_update(1, 0, {device: 1.0}))))
            for device in range(1, 5)
        ]
        await asyncio.sleep(0)
        writer.stop()
        assert [await one for one in pushing] == [Accepted(Receipt(1, v, None), v - 1) for v in range(1, 5)]
        assert engine.published.version == 4
        assert writer.unavailable_reason is not None


async def test_a_refusal_is_an_answer(tmp_path: Path) -> None:
    async with writing(tmp_path) as (engine, writer):
        with pytest.raises(NonFinite):
            await writer.push(push(1, sparse_update(1, 0, {0: float("nan")})))
        assert await writer.push(push(1, sparse_update(1, 0, {0: 1.0}))) == Accepted(Receipt(1, 1, None), 0)
        assert writer.unavailable_reason is None


async def test_a_writer_that_is_cancelled_answers_everybody_and_lets_go(tmp_path: Path) -> None:
    """Its thread is in the middle of a flush: nobody may touch the engine before that is over."""
    journal, engine = open_engine(tmp_path)
    flushing, go_on = threading.Event(), threading.Event()
    commit = journal.commit

    def slow() -> None:
        flushing.set()
        assert go_on.wait(60)
        commit()

    engine.publish(engine.stage([push(1, sparse_update(1, 0, {0: 1.0}))]))
    journal.commit = slow  # type: ignore[method-assign]
    writer = Writer(engine)
    running = asyncio.create_task(writer.run())
    under_way = asyncio.ensure_future(writer.push(push(1, sparse_update(2, 1, {0: 1.0}))))
    await asyncio.to_thread(flushing.wait, 60)
    waiting = asyncio.ensure_future(writer.push(push(2, sparse_update(1, 1, {0: 1.0}))))
    calling = asyncio.create_task(writer.call(engine.theta))
    await asyncio.sleep(0)
    running.cancel()
    await asyncio.sleep(0)
    assert not running.done(), "the flush goes on"
    assert engine.published.version == 1
    go_on.set()
    with suppress(asyncio.CancelledError):
        await running
    for one in (under_way, waiting, calling):
        with pytest.raises(Unavailable):
            await one
    assert writer.unavailable_reason is not None
    journal.commit = commit  # type: ignore[method-assign]
    engine.close()


@pytest.mark.parametrize("calls", [False, True])
async def test_a_journal_that_fails_ends_it_with_the_reason(tmp_path: Path, calls: bool) -> None:
    journal, engine = open_engine(tmp_path)

    def full() -> None:
        raise sqlite3.OperationalError("database or disk is full")

    journal.commit = full  # type: ignore[method-assign]
    writer = Writer(engine)
    running = asyncio.create_task(writer.run())
    one = push(1, sparse_update(1, 0, {0: 1.0}))
    with pytest.raises(Unavailable, match="journal"):
        await (writer.call(lambda: engine.steering.record(None, [])) if calls else writer.push(one))
    with pytest.raises(sqlite3.OperationalError, match="disk is full"):
        await running
    assert engine.published.version == 0, "what is not on the disk is not seen"
    assert isinstance(writer.error, sqlite3.OperationalError)
    engine.close()  # writes nothing: memory is ahead of the disk
    _, again = open_engine(tmp_path)
    assert again.published.version == 0


async def test_the_first_failure_is_the_reason(tmp_path: Path) -> None:
    """A group that waits for its turn meanwhile fails of that, and does not hide it."""
    async with writing(tmp_path) as (engine, writer):
        asked = threading.Event()

        def fails() -> None:
            assert asked.wait(60)
            raise sqlite3.OperationalError("database or disk is full")

        calling = asyncio.create_task(writer.call(fails))
        await asyncio.sleep(0)
        pushing = asyncio.ensure_future(writer.push(push(1, sparse_update(1, 0, {0: 1.0}))))
        while writer._waiting:
            await asyncio.sleep(0)
        asked.set()
        for one in (calling, pushing):
            with pytest.raises(Unavailable):
                await one
        assert isinstance(writer.error, sqlite3.OperationalError)


async def test_a_failure_that_nobody_waits_for_any_more_ends_it_all_the_same(tmp_path: Path) -> None:
    """Half of it may have been written: nothing may be acknowledged on top."""
    async with writing(tmp_path) as (engine, writer):
        at_work, go_on = threading.Event(), threading.Event()

        def fails() -> None:
            at_work.set()
            assert go_on.wait(60)
            raise sqlite3.OperationalError("database or disk is full")

        calling = asyncio.create_task(writer.call(fails))
        await asyncio.to_thread(at_work.wait, 60)
        calling.cancel()
        await asyncio.sleep(0)
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await calling
        with pytest.raises(Unavailable):
            await writer.push(push(1, sparse_update(1, 0, {0: 1.0})))
        assert isinstance(writer.error, sqlite3.OperationalError)


async def test_an_update_that_nobody_waits_for_any_more_is_held_without_an_answer(tmp_path: Path) -> None:
    async with writing(tmp_path, ROUNDS) as (engine, writer):
        pushing = asyncio.ensure_future(writer.push(push(1, sparse_update(1, 0, {0: 1.0}))))
        await asyncio.sleep(0)
        pushing.cancel()
        held = await writer.push(push(2, sparse_update(1, 0, {0: 1.0})))
        assert isinstance(held, PendingUpdate)
        assert sorted(engine.held_updates) == [1, 2]
        assert len(writer._held) == 1
        again = await writer.push(push(1, sparse_update(1, 0, {0: 1.0})))
        assert isinstance(again, PendingUpdate), "it comes back"


async def test_what_is_held_is_answered_when_it_applies(tmp_path: Path) -> None:
    async with writing(tmp_path, ROUNDS) as (engine, writer):
        together: list[int] = []
        writer._on_round = together.append
        first = await writer.push(push(1, sparse_update(1, 0, {0: 1.0})))
        assert isinstance(first, PendingUpdate)
        again = await writer.push(push(1, sparse_update(1, 0, {0: 1.0})))
        assert isinstance(again, PendingUpdate)
        with pytest.raises(Superseded):
            await first.answer
        assert list(engine.held_updates) == [1]


async def test_what_is_held_at_a_stop_is_sent_again(tmp_path: Path) -> None:
    async with writing(tmp_path, ROUNDS) as (engine, writer):
        held = await writer.push(push(1, sparse_update(1, 0, {0: 1.0})))
        assert isinstance(held, PendingUpdate)
        writer.prepare_stop()
        writer.set_presence(1, False)
        writer.stop()
        with pytest.raises(Unavailable, match="send it again"):
            await held.answer
        assert engine.published.version == 0, "the round has not ended because its devices were sent away"


async def test_a_round_does_not_end_while_its_devices_are_sent_away(tmp_path: Path) -> None:
    """Not by its quorum either: who has left already would not learn of it."""
    journal, _ = open_engine(tmp_path, ROUNDS)
    rounds = Rounds(RoundEnd(quorum=2, deadline=30), LAYOUT)
    engine = Engine(journal, LAYOUT, recover(journal, LAYOUT, ROUNDS), rounds)
    writer = Writer(engine)
    running = asyncio.create_task(writer.run())
    first = await writer.push(push(1, sparse_update(1, 0, {0: 1.0})))
    writer.prepare_stop()
    second = await writer.push(push(2, sparse_update(1, 0, {0: 1.0})))
    assert isinstance(first, PendingUpdate)
    assert isinstance(second, PendingUpdate)
    assert engine.published.version == 0
    writer.stop()
    await running
    engine.close()


@asynccontextmanager
async def one_at_a_time(directory: Path) -> AsyncIterator[tuple[Rounds, Writer]]:
    """A writer at work in a run where one device takes part at a time; device 1 does."""
    journal, _ = open_engine(directory, ROUNDS)
    rounds = Rounds(RoundEnd(quorum=0, deadline=3600), LAYOUT, cohort=Cohort(1, 1))
    engine = Engine(journal, LAYOUT, recover(journal, LAYOUT, ROUNDS), rounds)
    writer = Writer(engine)
    running = asyncio.create_task(writer.run())
    writer.set_presence(1, True)
    await writer.wait_for_turn(1)
    yield rounds, writer
    writer.stop()
    await running
    engine.close()


async def test_who_waits_for_a_turn_and_goes_is_forgotten(tmp_path: Path) -> None:
    async with one_at_a_time(tmp_path) as (_, writer):
        for device in range(2, 100):
            writer.set_presence(device, True)
        waiting = [asyncio.create_task(writer.wait_for_turn(device)) for device in range(2, 100)]
        while len(writer._turn_events) < 98:
            await asyncio.sleep(0)
        again = asyncio.create_task(writer.wait_for_turn(2))  # another session of it
        await asyncio.sleep(0)
        for one in waiting:
            one.cancel()
        await asyncio.wait(waiting)
        assert list(writer._turn_events) == [2]
        writer.set_presence(1, False)
        await again
        assert not writer._turn_events


async def test_who_comes_next_is_called_whatever_had_the_writer_look(tmp_path: Path) -> None:
    """Not only the alarm for it: anything may come just before that goes off, and take its work."""
    async with one_at_a_time(tmp_path) as (rounds, writer):
        writer.set_presence(2, True)
        waiting = asyncio.create_task(writer.wait_for_turn(2))
        while 2 not in writer._turn_events:
            await asyncio.sleep(0)
        await writer.call(lambda: None)
        assert rounds._wait_start is not None
        rounds._wait_start -= 1e9
        writer.wake()
        await waiting

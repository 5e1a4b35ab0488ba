"""Rounds of tasks over real sockets: who computes what, what counts, what becomes of who is late."""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from io import StringIO
from pathlib import Path
from random import Random

import msgpack
import numpy as np
import pytest
from aiohttp import ClientSession
from rich.console import Console

from edgeflock.client.transport import Link
from edgeflock.operations.status import print_status
from edgeflock.shared.codecs import sparse, values
from edgeflock.shared.errors import BaseExpired, Malformed, NoSuchTask, RunOver
from edgeflock.shared.protocol.frames import TaskRoundStatus
from edgeflock.shared.protocol.messages import PROTOCOL, Hello, Record, Task, Update
from tests.hosting import LAYOUT, Hosted, hosting
from tests.integration.foreign_client import HELLO, MODEL, OVER, PULL, TASK, WELCOME, connected
from tests.integration.operator import operating
from tests.integration.scene import update as packed

TASKS = (
    "coordination.mode=tasks",
    "coordination.deadline=3600",
    "coordination.tasks=3",
)


async def at_once(seconds: float) -> None:
    await asyncio.sleep(0)


def link(port: int, name: str, shards: str) -> Link:
    hello = Hello(PROTOCOL, name, LAYOUT.digest, {}, shards=shards)
    return Link(f"http://127.0.0.1:{port}", None, hello, Random(0), at_once)


def update(base: int, sequence: int, task: int | None) -> Update:
    delta = np.full(LAYOUT.size, sequence, np.float32)
    return Update(
        sequence,
        base,
        sparse.DENSE,
        values.CODINGS["f32"].mode,
        delta.size,
        b"",
        delta.tobytes(),
        0.5,
        10,
        pull=False,
        task=task,
    )


async def begun(device: Link) -> Task | None:
    """It has joined, and the model of the version that there is."""
    await device.join()
    await device.pull(None)
    return await device.task()


async def settled(hosted: Hosted, version: int) -> None:
    while hosted.engine.published.version < version:
        await asyncio.sleep(0.005)


async def test_a_round_has_one_update_of_each_shard(tmp_path: Path) -> None:
    async with hosting(tmp_path, *TASKS) as hosted:
        async with link(hosted.port, "a", "x,y,z") as a, link(hosted.port, "b", "y,z,x") as b:
            assert await begun(a) == Task(0)
            assert await begun(b) == Task(0)  # y
            assert await a.offer(update(0, 1, 0)) == Task(2)  # z: b computes y
            assert (await b.offer(update(0, 1, 0))).counted
            assert hosted.engine.published.version == 0
            over = asyncio.create_task(b.round_end())
            await a.offer(update(0, 2, 2))
            await over
            assert hosted.engine.published.version == 3
            assert (await a.pull(None)).version == 3
            assert await a.task() is not None
    devices = hosted.registry.devices
    assert [devices[name].statistics.updates for name in "ab"] == [2, 1]
    assert [devices[name].statistics.duplicates for name in "ab"] == [0, 0]
    assert [devices[name].shards for name in "ab"] == [3, 3]


async def test_a_round_ends_at_k_distinct_results(tmp_path: Path) -> None:
    async with hosting(tmp_path, *TASKS, "coordination.distinct=2") as hosted:
        async with link(hosted.port, "a", "x") as a, link(hosted.port, "b", "y") as b:
            async with link(hosted.port, "late", "z") as late:
                for device in (a, b, late):
                    assert await begun(device) == Task(0)
                await a.offer(update(0, 1, 0))
                await b.offer(update(0, 1, 0))
                await late.round_end()
                with pytest.raises(BaseExpired):
                    await late.offer(update(0, 1, 0))
                assert (await late.pull(None)).version == 2
                assert await late.task() == Task(0)
                assert await late.offer(update(2, 2, 0)) == Task(None)


async def test_who_has_nothing_to_do_waits_for_the_end_of_the_round(tmp_path: Path) -> None:
    async with hosting(tmp_path, *TASKS) as hosted:
        async with link(hosted.port, "a", "x") as a, link(hosted.port, "b", "y") as b:
            await begun(a)
            await begun(b)
            assert await a.offer(update(0, 1, 0)) == Task(None)
            waiting = asyncio.create_task(a.task())
            await asyncio.sleep(0.02)
            assert not waiting.done()
            await b.offer(update(0, 1, 0))
            assert await waiting is None


async def test_who_dies_leaves_its_shards_to_who_also_holds_them(tmp_path: Path) -> None:
    async with hosting(tmp_path, *TASKS) as hosted, link(hosted.port, "a", "x,y") as a:
        assert await begun(a) == Task(0)
        async with link(hosted.port, "b", "y") as b:
            await begun(b)
            await b.offer(update(0, 1, 0))
            assert await a.offer(update(0, 1, 0)) is not None
        await settled(hosted, 2)
        async with link(hosted.port, "b", "y,w") as b:
            await begun(b)
            await a.pull(None)
            await a.task()
            await a.offer(update(2, 2, 0))
            # w is b's alone. Once it is gone, nobody waits for it, and y is a's.
        assert await a.offer(update(2, 3, 1)) is not None
        await settled(hosted, 4)


async def test_without_names_all_data_are_one_shard(tmp_path: Path) -> None:
    async with hosting(tmp_path, *TASKS) as hosted, link(hosted.port, "a", "") as a:
        assert await begun(a) == Task(0)
        await a.offer(update(0, 1, 0))
        assert hosted.engine.published.version == 1


@pytest.mark.parametrize("task", [1, None])
async def test_what_is_of_no_shard_of_the_device_is_refused(tmp_path: Path, task: int | None) -> None:
    async with hosting(tmp_path, *TASKS) as hosted, link(hosted.port, "a", "x") as a:
        await begun(a)
        with pytest.raises(NoSuchTask):
            await a.offer(update(0, 1, task))
        assert hosted.engine.held_updates == {}
        await a.offer(update(0, 2, 0))
        assert hosted.engine.published.version == 1


@pytest.mark.parametrize("shards", ["x,x", "x,,y", ","])
async def test_shards_are_named_once_each(tmp_path: Path, shards: str) -> None:
    async with hosting(tmp_path, *TASKS) as hosted, link(hosted.port, "a", shards) as a:
        with pytest.raises(Malformed):
            await a.join()


async def test_a_line_that_drops_while_the_device_computes_loses_nothing(tmp_path: Path) -> None:
    async with hosting(tmp_path, *TASKS, "coordination.distinct=2") as hosted:
        async with link(hosted.port, "a", "x,y") as a, link(hosted.port, "b", "z") as b:
            await begun(a)
            await begun(b)
            assert await a.offer(update(0, 1, 0)) == Task(1)
            device = hosted.registry.devices["a"]
            assert device.connection.session is not None
            await device.connection.session.leave()
            # On a new line it is told to pull again: the server does not know which model it has.
            assert (await a.offer(update(0, 1, 0))).counted
            assert a.connections == 2
            assert await a.task() is None
            assert (await a.pull(None)).version == 0
            assert await a.task() == Task(1)
            await a.offer(update(0, 2, 1))
            assert hosted.engine.published.version == 2
            assert device.statistics.updates == 2
            assert device.statistics.duplicates == 0


async def test_a_server_that_begins_again_hands_out_its_round_anew(tmp_path: Path) -> None:
    async with AsyncExitStack() as devices:
        async with hosting(tmp_path, *TASKS) as hosted:
            a = await devices.enter_async_context(link(hosted.port, "a", "x,y"))
            await begun(a)
            await a.offer(update(0, 1, 0))  # and stays: a round without devices ends with what it has
    async with hosting(tmp_path, *TASKS) as hosted, link(hosted.port, "a", "x,y") as a:
        assert (await a.join()).sequence == 0
        assert (await a.pull(None)).version == 0
        assert await a.task() == Task(0)
        await a.offer(update(0, 2, 0))
        await a.offer(update(0, 3, 1))
        assert hosted.engine.published.version == 2


async def test_a_run_that_has_all_it_needs_says_so(tmp_path: Path) -> None:
    async with hosting(tmp_path, *TASKS, "end.updates=2") as hosted:
        async with link(hosted.port, "a", "x") as a, link(hosted.port, "b", "y") as b:
            await begun(a)
            await begun(b)
            await a.offer(update(0, 1, 0))
            waiting = asyncio.create_task(a.round_end())
            with pytest.raises(RunOver):
                await b.offer(update(0, 1, 0))
            with pytest.raises(RunOver):
                await waiting
            await a.pull(None)
            with pytest.raises(RunOver):
                await a.task()


def heard(device: Link) -> list[str]:
    """The kinds of the records that it gets from now on, in order."""
    kinds, read = [], device.conversation.read

    def noted(record: Record) -> Record | None:
        kinds.append(type(record).__name__)
        return read(record)

    device.conversation.read = noted  # type: ignore[method-assign]
    return kinds


async def test_the_end_of_a_round_and_of_the_run_are_told_once(tmp_path: Path) -> None:
    async with hosting(tmp_path, *TASKS, "end.updates=4") as hosted:
        async with link(hosted.port, "a", "x") as a, link(hosted.port, "b", "y") as b:
            await begun(a)
            await begun(b)
            kinds = heard(b)
            await a.offer(update(0, 1, 0))
            await b.offer(update(0, 1, 0))
            await a.pull(None)
            await b.pull(None)
            assert await a.task() == await b.task() == Task(0)
            assert sorted(kinds[: kinds.index("Model")]) == ["Over", "Task"]
            kinds.clear()
            await a.offer(update(2, 2, 0))
            with pytest.raises(RunOver):
                await b.offer(update(2, 2, 0))
            await b.pull(None)
            with pytest.raises(RunOver):
                await b.task()
            assert kinds == ["Stop", "Model", "Stop"]
            assert hosted.engine.published.version == 4


async def test_a_repeated_update_counts_once(tmp_path: Path) -> None:
    async with hosting(tmp_path, *TASKS) as hosted:
        async with link(hosted.port, "a", "x") as a, link(hosted.port, "b", "y") as b:
            await begun(a)
            await begun(b)
            for _ in range(3):
                assert await a.offer(update(0, 1, 0)) == Task(None)
            await b.offer(update(0, 1, 0))
            assert hosted.engine.published.version == 2
            assert await a.offer(update(0, 1, 0)) == Task(None)  # its receipt, as it were
            assert hosted.engine.published.version == 2


async def test_status_metrics_and_events_tell_of_it(tmp_path: Path) -> None:
    async with hosting(tmp_path, *TASKS) as hosted, ClientSession() as http:
        async with link(hosted.port, "a", "x,y,z") as a, link(hosted.port, "b", "y,x") as b:
            await begun(a)
            await begun(b)
            await a.offer(update(0, 1, 0))
            assert (await b.offer(update(0, 1, 1))).counted is False
            async with http.get(f"http://127.0.0.1:{hosted.port}/v1/status") as answer:
                status = await answer.json()
            assert status["tasks"] == {"shards": 3, "finished": 1, "wanted": 2, "duplicates": 1}
            assert [(one["shards"], one["duplicates"]) for one in status["devices"]] == [(3, 0), (2, 1)]
            async with operating(hosted.port, "") as viewer, viewer.feed() as frames:
                shown = await frames.next()
            assert shown.overview.tasks == TaskRoundStatus(3, 1, 2, 1)
            assert {(row.name, row.shards, row.repeated) for row in shown.devices} == {
                ("a", 3, 0),
                ("b", 2, 1),
            }
            async with http.get(f"http://127.0.0.1:{hosted.port}/metrics") as answer:
                assert "edgeflock_duplicates_total 1.0" in await answer.text()
            await a.offer(update(0, 2, 1))
            await a.offer(update(0, 3, 2))
    events, _ = hosted.hub.events.list_from(0)
    assert "3 updates made version 3, duplicates so far: 1" in [event.text for event in events]
    screen = Console(record=True, width=120, file=StringIO())
    print_status(screen, status)
    assert "Tasks: 1 of 3 shards in this round, 2 wanted; duplicates so far: 1" in screen.export_text()


async def test_a_client_of_its_own_takes_part_by_the_document(tmp_path: Path) -> None:
    """Record by record, of another implementation, beside one of ours."""
    async with hosting(tmp_path, *TASKS) as hosted, link(hosted.port, "ours", "y,z") as ours:
        assert await begun(ours) == Task(0)
        async with connected(hosted.port) as foreign:
            assert (await foreign.upgrade())[0] == 101
            welcome = await foreign.ask([HELLO, 2, "foreign", b"", {}, False, b"", "x,y"])
            assert (welcome[0], welcome[23]) == (WELCOME, True)
            assert (await foreign.ask([PULL, None]))[:2] == [MODEL, 0]
            assert await foreign.answer() == [TASK, 0]
            assert await foreign.ask(msgpack.unpackb(packed(sequence=1, base=0, task=0))) == [TASK, 1]
            assert await ours.offer(update(0, 1, 0)) == Task(1)
            answer = await foreign.ask(msgpack.unpackb(packed(sequence=2, base=0, task=1)))
            assert answer == [TASK, None, False]
            await ours.offer(update(0, 2, 1))
            assert await foreign.answer() == [OVER, 3]
            assert (await foreign.ask([PULL, 0]))[:2] == [MODEL, 3]
            assert await foreign.answer() == [TASK, 0]
    assert hosted.registry.devices["foreign"].statistics.updates == 1


async def test_updates_that_differ_in_nothing_but_their_shard_both_count(tmp_path: Path) -> None:
    async with hosting(tmp_path, *TASKS) as hosted, link(hosted.port, "a", "x,y") as a:
        await begun(a)
        one = update(0, 1, 0)
        await a.offer(one)
        await a.offer(replace(one, sequence=2, task=1))
        assert hosted.engine.published.version == 2

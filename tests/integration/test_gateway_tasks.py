"""Rounds of tasks through a gateway: what they promise directly, by the same tests, and over two of them."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edgeflock.shared.protocol.messages import Task
from tests.hosting import Hosted, gateway, hosting
from tests.integration import test_task_devices, test_tasks
from tests.integration.operator import ADMIN, operating
from tests.integration.test_gateway import order_servers
from tests.integration.test_task_devices import stored as stored
from tests.integration.test_tasks import TASKS, begun, link, settled, update

PROMISES = [
    test_tasks.test_a_round_has_one_update_of_each_shard,
    test_tasks.test_a_round_ends_at_k_distinct_results,
    test_tasks.test_who_has_nothing_to_do_waits_for_the_end_of_the_round,
    test_tasks.test_who_dies_leaves_its_shards_to_who_also_holds_them,
    test_tasks.test_without_names_all_data_are_one_shard,
    test_tasks.test_a_line_that_drops_while_the_device_computes_loses_nothing,
    test_tasks.test_a_run_that_has_all_it_needs_says_so,
    test_tasks.test_the_end_of_a_round_and_of_the_run_are_told_once,
    test_tasks.test_a_repeated_update_counts_once,
    test_tasks.test_a_client_of_its_own_takes_part_by_the_document,
    test_tasks.test_updates_that_differ_in_nothing_but_their_shard_both_count,
]


@asynccontextmanager
async def behind(directory: Path, *settings: str, **more: Any) -> AsyncIterator[Hosted]:
    """As `hosting`; its port is that of a gateway."""
    async with hosting(directory, *settings, **more) as leader, gateway(leader) as (_, url):
        yield replace(leader, port=int(url.rpartition(":")[2]))


@pytest.mark.parametrize("promise", PROMISES)
async def test_what_is_promised_holds_through_a_gateway(
    promise: Callable[[Path], Awaitable[None]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(test_tasks, "hosting", behind)
    await promise(tmp_path)


@pytest.mark.parametrize("task", [1, None])
async def test_what_is_of_no_shard_is_refused_through_a_gateway(
    task: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(test_tasks, "hosting", behind)
    await test_tasks.test_what_is_of_no_shard_of_the_device_is_refused(tmp_path, task)


async def test_whole_clients_train_through_a_gateway(stored: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(test_task_devices, "hosting", behind)
    await test_task_devices.test_they_train_until_the_run_is_over(stored, monkeypatch)


async def test_shards_are_shared_out_over_all_gateways(tmp_path: Path) -> None:
    """One round, of devices behind two gateways and of one that comes directly."""
    async with (
        hosting(tmp_path, *TASKS, admin_token=ADMIN) as leader,
        gateway(leader, "a") as (one, first),
        gateway(leader, "b") as (_, second),
        operating(leader.port) as operator,
    ):
        ports = [int(url.rpartition(":")[2]) for url in (first, second, leader.url)]
        async with (
            link(ports[0], "1", "x,y") as a,
            link(ports[1], "2", "y") as b,
            link(ports[2], "3", "z") as c,
        ):
            assert [await begun(device) for device in (a, b, c)] == [Task(0)] * 3
            assert (await a.offer(update(0, 1, 0))).counted
            assert (await b.offer(update(0, 1, 0))).counted
            assert await a.offer(update(0, 2, 1)) == Task(None, counted=False)
            over = [asyncio.create_task(device.round_end()) for device in (a, b)]
            await c.offer(update(0, 1, 0))
            await asyncio.gather(*over)
            assert leader.engine.published.version == 3
            assert leader.hub.tally.duplicates == 1
            assert [leader.registry.devices[n].statistics.updates for n in "123"] == [1, 1, 1]
            # Who is paused is told nothing, and others compute its shards.
            assert (await a.pull(None)).version == (await b.pull(None)).version == 3
            assert [await a.task(), await b.task()] == [Task(0), Task(0)]
            await operator.post("/v1/devices/1/pause", {"because": "hot"})
            assert await order_servers(one, "1") == "hot"
            offered = asyncio.create_task(a.offer(update(3, 3, 0)))
            while leader.registry.devices["1"].id not in leader.engine.held_updates:
                await asyncio.sleep(0.01)
            assert await b.offer(update(3, 3, 0)) is not None
            assert not offered.done()
            await operator.post("/v1/devices/1/resume")
            assert (await offered).counted
        await settled(leader, 3)

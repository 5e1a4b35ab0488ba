"""A model in processes of Ray, some of which are killed under load, or a whole node of them."""

import asyncio
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from io import StringIO
from pathlib import Path
from random import Random
from typing import Any

import aiohttp
import numpy as np
import pytest
from rich.console import Console

from benchmarks.updates import LAYOUT, random_update
from edgeflock.operations.status import print_status, status
from edgeflock.server.coordination import Push
from edgeflock.server.descent import Part, Place
from edgeflock.server.engine import Engine
from edgeflock.server.journal import Journal
from edgeflock.server.ledger import open_engine
from edgeflock.server.ledger.recovery import replay
from edgeflock.server.shards import Sharded
from edgeflock.shared.errors import ConfigError, EdgeflockError
from edgeflock.shared.protocol import wire
from edgeflock.shared.protocol.messages import PROTOCOL, Hello, Receipt, Welcome
from edgeflock.shared.settings.config import parse
from tests.hosting import Hosted, hosting, initial_theta

ray = pytest.importorskip("ray", reason="the extra ray is not installed")

pytestmark = [
    pytest.mark.long,
    # Of Ray's own, as it goes.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore:Tip.*accelerator:FutureWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

KILLS = 5
SETTINGS = (
    "coordination.average=8",
    "optimizer.kind=momentum",
    "optimizer.clip=0.2",
    "journal.snapshot_every=50",
)


async def _device(
    hosted: Hosted, number: int, over: asyncio.Event, receipts: dict[tuple[str, int], int]
) -> None:
    """Push until it is over."""
    random, name = np.random.default_rng(number), f"device-{number}"
    updates = [random_update(LAYOUT, 0.01, "codebook4", random) for _ in range(8)]
    async with aiohttp.ClientSession() as http, http.ws_connect(f"{hosted.url}/v1/session") as line:
        await line.send_bytes(wire.encode(Hello(PROTOCOL, name, b"", {})))
        welcome = wire.decode((await line.receive()).data)
        assert isinstance(welcome, Welcome)
        version = welcome.version
        for sequence in range(1, 1 << 30):
            if over.is_set():
                return
            update = replace(updates[sequence % 8], sequence=sequence, base=version)
            await line.send_bytes(wire.encode(update))
            answer = wire.decode((await line.receive()).data)
            assert isinstance(answer, Receipt), answer
            receipts[name, sequence] = version = answer.version


async def _check_shown(hosted: Hosted) -> None:
    """Whoever looks at the run sees the shards."""
    known = await status(hosted.url, feed=False)
    shards = known["shards"]
    assert [shard["parameters"] for shard in shards["processes"]] == [6382, 6382, 6382]
    assert shards["restored"] == KILLS
    console = Console(file=StringIO(), width=200)
    print_status(console, known)
    assert "In 3 shards on 1 node," in console.file.getvalue()  # type: ignore[attr-defined]
    async with aiohttp.ClientSession() as http, http.get(f"{hosted.url}/metrics") as response:
        text = await response.text()
    assert f"edgeflock_shards_restored_total {KILLS}.0" in text
    assert all(f'edgeflock_shard_bytes{{shard="{number}"}}' in text for number in range(3))


async def test_processes_killed_under_load_cost_no_update(tmp_path: Path) -> None:
    receipts: dict[tuple[str, int], int] = {}
    over, random = asyncio.Event(), Random(1)
    async with hosting(tmp_path, "scale.shards=3", *SETTINGS, layout=LAYOUT) as hosted:
        parameters = hosted.engine.parameters
        async with asyncio.TaskGroup() as group:
            for number in range(3):
                group.create_task(_device(hosted, number, over, receipts))
            for kill in range(KILLS):
                before = len(receipts)
                while len(receipts) < before + 40 or parameters.store.restorations < kill:
                    await asyncio.sleep(0.05)
                vectors = parameters.store.vectors
                assert isinstance(vectors, Sharded)
                os.kill(random.choice(vectors.shard_statuses).process, signal.SIGKILL)
            before = len(receipts)
            while len(receipts) < before + 40 or parameters.store.restorations < KILLS:
                await asyncio.sleep(0.05)
            over.set()
        theta = await hosted.writer.call(lambda: parameters.theta)
        average = await hosted.writer.call(lambda: parameters.average)
        memory = await hosted.writer.call(parameters.packed_memory)
        assert parameters.store.restorations == KILLS
        await _check_shown(hosted)
        again = replay(hosted.journal, LAYOUT)
        assert again.version == len(receipts) == len(set(receipts.values()))
        assert again.theta.tobytes() == theta.tobytes()
        assert average is not None
        assert again.average is not None
        assert again.average.tobytes() == average.tobytes()
        assert again.packed_memory() == memory
    # And one process takes it up.
    async with hosting(tmp_path, *SETTINGS, layout=LAYOUT) as hosted:
        assert hosted.engine.parameters.theta.tobytes() == theta.tobytes()


@pytest.fixture
def cluster() -> Iterator[Any]:
    """Two nodes, the second of which may go."""
    from ray.cluster_utils import Cluster

    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    yield nodes
    nodes.shutdown()  # type: ignore[no-untyped-call]


def test_a_node_that_goes_takes_nothing_along(cluster: Any, tmp_path: Path) -> None:
    from edgeflock.server.shards.rays import ray_placement

    second = cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()
    config = parse(overrides=["scale.shards=4", f"scale.ray={cluster.address}", *SETTINGS])
    random = np.random.default_rng(2)
    with ray_placement(cluster.address) as placement:
        engines: list[Engine] = []
        places: list[Place] = [partial(Sharded, placement, 4), Part]
        for name, place in zip(("shards", "one"), places, strict=True):
            (tmp_path / name).mkdir()
            journal = Journal(tmp_path / name / "journal.sqlite")
            journal.begin_run("run", "package:Model", LAYOUT, initial_theta(LAYOUT.size), 0.0)
            engines.append(open_engine(journal, LAYOUT, config, place=place))
        devices = {engine.device_id("one") for engine in engines}
        assert devices == {1}
        assert len({shard.node for shard in placement.status}) == 2
        for sequence in range(1, 121):
            if sequence == 70:
                cluster.remove_node(second, allow_graceful=False)
            version = engines[0].parameters.version
            base = max(0, version - int(random.integers(0, 8)))
            update = replace(random_update(LAYOUT, 0.01, "f32", random), sequence=sequence, base=base)
            push = Push(1, float(sequence), update, wire.encode(update))
            answers = [engine.commit([push], 0.0)[0][1] for engine in engines]
            assert answers[0] == answers[1]
        one, other = (engine.parameters for engine in engines)
        assert one.theta.tobytes() == other.theta.tobytes()
        assert one.packed_memory() == other.packed_memory()
        assert one.store.restorations >= 1
        assert len({shard.node for shard in placement.status}) == 1
        for engine in engines:
            engine.close()


def test_a_shard_in_the_place_of_a_lost_one_is_where_the_fewest_are(cluster: Any, tmp_path: Path) -> None:
    from edgeflock.server.shards.rays import ray_placement

    cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()
    config = parse(overrides=["scale.shards=2", f"scale.ray={cluster.address}"])
    with ray_placement(cluster.address) as placement:
        journal = Journal(tmp_path / "journal.sqlite")
        journal.begin_run("run", "package:Model", LAYOUT, initial_theta(LAYOUT.size), 0.0)
        engine = open_engine(journal, LAYOUT, config, place=partial(Sharded, placement, 2))
        kept = engine.parameters.store
        for kill in range(3):
            os.kill(placement.status[0].process, signal.SIGKILL)
            while kept.restorations == kill:
                assert engine.parameters.theta.tobytes() == initial_theta(LAYOUT.size).tobytes()
            assert len({shard.node for shard in placement.status}) == 2
        engine.close()


def test_a_shard_that_hangs_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from edgeflock.server.shards import rays

    config = parse(overrides=["scale.shards=2"])
    with rays.ray_placement("") as placement:
        journal = Journal(tmp_path / "journal.sqlite")
        journal.begin_run("run", "package:Model", LAYOUT, initial_theta(LAYOUT.size), 0.0)
        engine = open_engine(journal, LAYOUT, config, place=partial(Sharded, placement, 2))
        hung, other = (status.process for status in placement.status)
        os.kill(hung, signal.SIGSTOP)
        monkeypatch.setattr(rays, "_ANSWER_SECONDS", 20.0)
        assert engine.parameters.theta.tobytes() == initial_theta(LAYOUT.size).tobytes()
        assert engine.parameters.store.restorations == 1
        assert placement.status[0].process != hung
        assert placement.status[1].process == other
        os.kill(hung, signal.SIGKILL)
        engine.close()


def test_a_cluster_that_is_not_there_is_named() -> None:
    from edgeflock.server.shards.rays import ray_placement

    with (
        pytest.raises(ConfigError, match="scale.ray = '127.0.0.1:9': no Ray is found there"),
        ray_placement("127.0.0.1:9"),
    ):
        pass


def test_a_ray_that_does_not_come_up_in_time_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    from edgeflock.server.shards.rays import ray_placement

    def late(**_: object) -> None:
        raise Exception("The current node timed out during startup. This could happen because\nof much.")

    monkeypatch.setattr(ray, "init", late)
    with pytest.raises(EdgeflockError, match="Ray does not start: The current node timed out"):
        with ray_placement(""):
            pass

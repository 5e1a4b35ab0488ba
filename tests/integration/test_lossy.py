"""Lossy differences over real sockets: whatever is lost, killed or doubled, both ends hold the same."""

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

import numpy as np
import pytest

from benchmarks import audit, kill, updates
from edgeflock.client.training.replica import Replica
from edgeflock.client.transport import Link
from edgeflock.server.ledger.claim import claim_run
from edgeflock.server.ledger.recovery import replay
from edgeflock.shared.codecs import sparse, values
from edgeflock.shared.errors import BaseExpired, Superseded
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.model.start import NORMAL, Filling, Start
from edgeflock.shared.protocol.messages import PROTOCOL, Hello, Model, Update
from edgeflock.shared.settings.config import parse
from tests.hosting import LAYOUT, Hosted, hosting
from tests.integration.held import LOSSY, agree
from tests.proxy import proxying

START = Start(3, tuple(Filling(NORMAL, 0.0, 0.5) for _ in LAYOUT.tensors))
NORMED = Layout.from_shapes([("w", (10, 6)), ("b", (10,)), ("mean", (10,), True), ("variance", (10,), True)])
SETTINGS = (LOSSY, "coordination.learning_rate=0.05")


async def hurry(seconds: float) -> None:
    await asyncio.sleep(min(seconds, 0.02))


@dataclass(slots=True)
class Device:
    """Pushes made-up gradients, and keeps what it is sent."""

    link: Link
    replica: Replica
    layout: Layout
    sequence: int = 0
    models: list[Model] = field(default_factory=list)

    def take(self, model: Model | None) -> None:
        assert model is not None, "asked for"
        self.replica.take(model)
        self.models.append(model)

    async def pull(self) -> None:
        self.take(await self.link.pull(self.replica.version, self.replica.held))

    async def step(self) -> None:
        assert self.replica.version is not None
        while True:
            update = gradient(self.layout, self.sequence + 1, self.replica)
            try:
                receipt = await self.link.push(update)
            except BaseExpired:
                await self.pull()
                continue
            self.sequence += 1
            self.take(receipt.model)
            return

    @property
    def wholes(self) -> int:
        return sum(model.base is None for model in self.models)


def gradient(layout: Layout, sequence: int, replica: Replica) -> Update:
    """Of a tenth of the parameters, and statistics if there are any."""
    random = np.random.default_rng(sequence)
    p = layout.parameters.size
    where = np.sort(random.choice(p, p // 10, replace=False))
    delta = random.standard_normal(where.size).astype(np.float32)
    octets = values.encode(delta, layout.parameters.counts(where), "f32")
    octets += values.encode_statistics(random.random(layout.buffers, np.float32) + 1)
    assert replica.version is not None
    return Update(
        sequence,
        replica.version,
        sparse.GOLOMB,
        values.CODINGS["f32"].mode,
        where.size,
        sparse.encode(where, p),
        octets,
        0.5,
        10,
        pull=True,
        held=replica.held,
    )


@asynccontextmanager
async def joined(
    port: int, name: str, layout: Layout = LAYOUT, replica: Replica | None = None, secret: bytes = b""
) -> AsyncIterator[Device]:
    """A device that has joined; `replica` and `secret` are of an earlier session."""
    hello = Hello(PROTOCOL, name, b"", {}, secret=secret)
    link = Link(f"http://127.0.0.1:{port}", None, hello, Random(0), hurry)
    async with link:
        welcome = await link.join()
        device = Device(link, replica or Replica(layout, welcome.start), layout, welcome.sequence)
        if replica is None:
            await device.pull()
        yield device


def hold_the_same(hosted: Hosted, devices: Sequence[Device], names: Sequence[str]) -> bool:
    return all(
        agree(hosted.engine, hosted.registry.devices[name].id, device.replica)
        for device, name in zip(devices, names, strict=True)
    )


async def test_a_receipt_that_was_lost(tmp_path: Path) -> None:
    """The update is sent again; meanwhile the model has moved on, or not."""
    async with hosting(tmp_path, *SETTINGS, start=START) as hosted, proxying(hosted.port) as proxy:
        async with joined(proxy.port, "a") as a, joined(hosted.port, "b") as b:
            for turn in range(6):
                await a.step()
                lost = 0

                def lose_one(chunk: bytes) -> bool:
                    nonlocal lost
                    lost += 1
                    return lost == 1

                proxy.cut_downstream = lose_one
                stepping = asyncio.create_task(a.step())
                if turn % 2:
                    await b.step()
                await stepping
                assert lost > 1
                await b.step()
                assert hold_the_same(hosted, (a, b), "ab")
            assert a.link.connections == 7
            assert (a.wholes, b.wholes) == (0, 0), "nothing need be begun anew"
            assert all(model.changes for model in (*a.models, *b.models))
            assert hosted.engine.published.version == a.sequence + b.sequence


@pytest.mark.parametrize("crashed", [False, True], ids=["stopped", "crashed"])
async def test_a_server_that_was_restarted(crashed: bool, tmp_path: Path) -> None:
    """Each device gets one coded whole model, and then differences; nothing acknowledged is lost."""
    directories = [tmp_path / "first", tmp_path / "second"]
    for directory in directories:
        directory.mkdir()
    async with AsyncExitStack() as stack:
        async with hosting(directories[0], *SETTINGS, start=START) as hosted:
            proxy = await stack.enter_async_context(proxying(hosted.port))
            devices = [await stack.enter_async_context(joined(proxy.port, name)) for name in "abc"]
            for _ in range(4):
                for device in devices:
                    await device.step()
            if crashed:  # the journal as it is now is what there would be
                for file in directories[0].glob("journal.sqlite*"):
                    (directories[1] / file.name).write_bytes(file.read_bytes())
            version, theta = hosted.engine.theta()
            proxy.target = 1
            proxy.cut_all()
        async with hosting(directories[crashed], *SETTINGS, start=START) as hosted:
            proxy.target = hosted.port
            assert hosted.engine.theta()[0] == version == 12
            assert hosted.engine.theta()[1].tobytes() == theta.tobytes()
            for _ in range(4):
                for device in devices:
                    await device.step()
            assert hold_the_same(hosted, devices, "abc")
            assert hosted.engine.published.version == sum(device.sequence for device in devices) == 24
            for device in devices:
                (whole,) = (model for model in device.models if model.base is None)
                assert len(whole.values) < 2.1 * LAYOUT.size
                assert device.models.index(whole) == 5, "the first answer of the second server"
            assert replay(hosted.journal, LAYOUT).theta.tobytes() == hosted.engine.theta()[1].tobytes()


async def test_a_server_that_comes_back_exact(tmp_path: Path) -> None:
    """What a device holds is near the model: a difference of new values would leave it there for ever."""
    async with AsyncExitStack() as stack:
        async with hosting(tmp_path, *SETTINGS, start=START) as hosted:
            proxy = await stack.enter_async_context(proxying(hosted.port))
            device = await stack.enter_async_context(joined(proxy.port, "a"))
            for _ in range(4):
                await device.step()
            proxy.target = 1
            proxy.cut_all()
        async with hosting(tmp_path, *SETTINGS, "downlink.mode=exact", start=START) as hosted:
            proxy.target = hosted.port
            for _ in range(2):
                await device.step()
                assert device.replica.theta.tobytes() == hosted.engine.theta()[1].tobytes()


async def test_a_server_that_comes_back_lossy(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        async with hosting(tmp_path, *SETTINGS, "downlink.mode=exact", start=START) as hosted:
            proxy = await stack.enter_async_context(proxying(hosted.port))
            device = await stack.enter_async_context(joined(proxy.port, "a"))
            for _ in range(4):
                await device.step()
            proxy.target = 1
            proxy.cut_all()
        async with hosting(tmp_path, *SETTINGS, start=START) as hosted:
            proxy.target = hosted.port
            for _ in range(2):
                await device.step()
                assert hold_the_same(hosted, [device], ["a"])
            assert [model.base is None for model in device.models[-2:]] == [True, False]


async def test_a_server_process_that_is_killed(tmp_path: Path) -> None:
    port = kill._free_port(Random())
    server, kills = kill.Server(tmp_path, port, LOSSY), 2
    server.start()
    try:
        await server.ready()
        async with joined(port, "a", updates.LAYOUT) as a, joined(port, "b", updates.LAYOUT) as b:
            for number in range(kills + 1):
                for _ in range(5):
                    await asyncio.gather(a.step(), b.step())
                if number < kills:
                    stepping = [asyncio.create_task(device.step()) for device in (a, b)]
                    await asyncio.sleep(0)
                    server.kill()
                    server.start()
                    await server.ready()
                    await asyncio.gather(*stepping)
            sequences = {"a": a.sequence, "b": b.sequence}
            assert a.sequence == b.sequence == 5 * (kills + 1) + kills
            assert [device.wholes for device in (a, b)] == [1 + kills, 1 + kills], "and differences else"
    finally:
        server.kill()
    found = audit.Audit()
    path = tmp_path / "journal.sqlite"
    newest = found.journal(path, {})
    assert newest == sum(sequences.values()), "all are there, once"
    assert not found.doubled
    found.restarts(path)
    assert found.bit_identical


async def test_a_device_that_was_restarted_under_its_name(tmp_path: Path) -> None:
    async with hosting(tmp_path, *SETTINGS, start=START) as hosted:
        async with joined(hosted.port, "pi") as old:
            for _ in range(5):
                await old.step()
            secret = hosted.registry.devices["pi"].connection.secret
            async with joined(hosted.port, "pi", secret=secret) as new:
                assert new.sequence == 5
                assert new.models[0].base == 0, "it makes the first model by itself"
                await new.step()
                assert hold_the_same(hosted, [new], ["pi"])
                with pytest.raises(Superseded):
                    await old.step()
                await new.step()
                assert new.wholes == 0
                assert hold_the_same(hosted, [new], ["pi"])


async def test_two_devices_that_take_turns_at_one_name(tmp_path: Path) -> None:
    """What one is sent must not be put on what the other holds."""
    async with hosting(tmp_path, *SETTINGS, start=START) as hosted:
        held: list[Replica | None] = [None, None]
        wholes = 0
        for turn in range(8):
            async with joined(hosted.port, "pi", replica=held[turn % 2]) as device:
                await device.step()
                await device.step()
                assert hold_the_same(hosted, [device], ["pi"])
                held[turn % 2] = device.replica
                wholes += device.wholes
        assert wholes == 6, "one a turn, once either has left the first model behind"


async def test_rounds(tmp_path: Path) -> None:
    """Who is in step gets the same bytes; who missed a round gets what it lacks."""
    rounds = ("coordination.mode=rounds", "coordination.deadline=3600", *SETTINGS)
    async with hosting(tmp_path, *rounds, start=START) as hosted, AsyncExitStack() as stack:
        a, b = [await stack.enter_async_context(joined(hosted.port, name)) for name in "ab"]
        for _ in range(4):
            await asyncio.gather(a.step(), b.step())
            assert a.models[-1] == b.models[-1]
        async with joined(hosted.port, "c") as c:
            assert c.models[0].base == 0
            for _ in range(3):
                await asyncio.gather(a.step(), b.step(), c.step())
                assert hold_the_same(hosted, (a, b, c), "abc")
        await asyncio.gather(a.step(), b.step())
        async with joined(hosted.port, "c", replica=c.replica) as back:
            await asyncio.gather(a.step(), b.step(), back.step())
            assert hold_the_same(hosted, (a, b, back), "abc")
        assert {device.wholes for device in (a, b, c, back)} == {0}
        assert hosted.engine.published.version == 8 + 9 + 2 + 3


@pytest.mark.parametrize("layout", [LAYOUT, NORMED], ids=["parameters only", "running statistics"])
async def test_a_model_with_weights_of_its_own_comes_whole_and_coded(layout: Layout, tmp_path: Path) -> None:
    async with hosting(tmp_path, *SETTINGS, layout=layout) as hosted:
        async with joined(hosted.port, "a", layout) as a, joined(hosted.port, "b", layout) as b:
            first = a.models[0]
            assert (first.base, first.index_mode, first.count) == (None, sparse.DENSE, layout.size)
            assert len(first.values) < 2.1 * layout.size
            brought = 0
            for _ in range(20):
                await b.step()
                before = a.replica.theta[layout.parameters.size :].copy()
                await a.step()
                brought += (a.replica.theta[layout.parameters.size :] != before).any()
                assert hold_the_same(hosted, (a, b), "ab")
            assert (a.wholes, b.wholes) == (1, 1)
            assert brought == (1 if layout.buffers else 0)
            p = layout.parameters.size
            theta = hosted.engine.theta()[1]
            assert np.linalg.norm(theta[:p] - a.replica.theta[:p]) < 0.2 * np.linalg.norm(theta[:p])


async def test_lies_over_the_wire(tmp_path: Path) -> None:
    """Whatever a device says that it holds, it gets a model, and the others what they lack."""
    async with hosting(tmp_path, *SETTINGS, start=START) as hosted:
        async with joined(hosted.port, "good") as good, joined(hosted.port, "liar") as liar:
            await good.step()
            lies = [(None, 7), (1, 0), (1, 65536 + good.replica.held), (1 << 62, 1 << 62), (0, 65536)]
            for base, held in lies:
                assert (await liar.link.pull(base, held)).base is None
                await good.step()
            for _ in range(20):
                assert (await liar.link.pull(0, 0)).base == 0
            update = gradient(LAYOUT, 1, good.replica)
            assert (await liar.link.push(replace(update, held=(1 << 63) - 1))).model is not None
            await good.step()
            assert good.wholes == 0
            assert hold_the_same(hosted, [good], ["good"])
            assert replay(hosted.journal, LAYOUT).theta.tobytes() == hosted.engine.theta()[1].tobytes()


def test_a_run_that_ends_leaves_no_file_open(tmp_path: Path) -> None:
    """Sweeps and quickstarts open many runs in one process."""
    layout = Layout.from_shapes([("w", (1000, 100))])
    config = parse(overrides=[LOSSY, "limits.downlink_bytes=1048576"])
    before = set(os.listdir("/proc/self/fd"))
    with claim_run(tmp_path, "server.directory", layout, np.ones(layout.size, np.float32), config) as claim:
        for device in range(1, 8):
            claim.engine.outlet.model(None, 0, device)
    assert set(os.listdir("/proc/self/fd")) <= before

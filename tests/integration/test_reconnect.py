"""A device's line to its server: cut it, restart the server, and count what arrived."""

import asyncio
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest
from aiohttp import ClientWebSocketResponse, WSMsgType

from edgeflock.client.identity import ClientIdentity
from edgeflock.client.training.replica import Replica
from edgeflock.client.transport import Link, dialing
from edgeflock.server.sessions import records
from edgeflock.shared.codecs import sparse, values
from edgeflock.shared.errors import (
    BaseExpired,
    LayoutMismatch,
    RunOver,
    RunReplaced,
    Superseded,
    Unauthorized,
)
from edgeflock.shared.protocol.messages import PROTOCOL, Hello, Receipt, Update
from tests.hosting import LAYOUT, hosting
from tests.proxy import Proxy, proxying


async def at_once(seconds: float) -> None:
    """Sleep no longer than it takes the others to get a turn."""
    await asyncio.sleep(0)


def link(port: int, name: str = "pi", identity: ClientIdentity | None = None, secret: bytes = b"") -> Link:
    hello = Hello(PROTOCOL, name, LAYOUT.digest, {}, secret=secret)
    return Link(f"http://127.0.0.1:{port}", identity, hello, Random(0), at_once)


def update(sequence: int, base: int, *, pull: bool = False) -> Update:
    random = np.random.default_rng(sequence)
    where = np.sort(random.choice(LAYOUT.size, 9, replace=False))
    delta = random.standard_normal(9).astype(np.float32)
    return Update(
        sequence,
        base,
        sparse.GOLOMB,
        values.CODINGS["f32"].mode,
        9,
        sparse.encode(where, LAYOUT.size),
        values.encode(delta, LAYOUT.counts(where), "f32"),
        0.5,
        10,
        pull,
    )


def never_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device's line, however long an answer to its pings takes: half a short heartbeat is no time."""
    monkeypatch.setattr(ClientWebSocketResponse, "_pong_not_received", lambda line: None)


async def test_an_update_whose_receipt_was_lost_is_not_applied_twice(tmp_path: Path) -> None:
    async with hosting(tmp_path) as hosted, proxying(hosted.port) as proxy:
        async with link(proxy.port) as device:
            await device.join()
            first = await device.push(update(1, 0))
            answers = 0

            def lose_the_next_receipt(chunk: bytes) -> bool:
                nonlocal answers
                answers += 1
                return answers == 1

            proxy.cut_downstream = lose_the_next_receipt
            second = await device.push(update(2, 1))
            assert device.connections == 2
            assert (first.version, second.version) == (1, 2)
            assert hosted.engine.published.version == 2
            third = await device.push(update(3, 2))
            assert third.version == 3


async def test_a_device_pings_while_it_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not look at what comes meanwhile, so the server's pings would have to wait for their answer."""
    assert dialing.HEARTBEAT < records.HEARTBEAT
    monkeypatch.setattr(dialing, "HEARTBEAT", 0.4)
    never_given_up(monkeypatch)
    async with hosting(tmp_path) as hosted, proxying(hosted.port) as proxy, link(proxy.port) as device:
        await device.join()
        pings, often = 0, asyncio.Event()

        def count(chunk: bytes) -> bool:
            nonlocal pings
            pings += chunk[0] == 0x80 | WSMsgType.PING
            if pings == 3:
                often.set()
            return False

        proxy.cut_upstream = count
        await often.wait()
        assert (await device.pull(None)).version == 0
        assert device.connections == 1


async def test_an_update_that_never_arrived_is_sent_again(tmp_path: Path) -> None:
    async with hosting(tmp_path) as hosted, proxying(hosted.port) as proxy:
        async with link(proxy.port) as device:
            await device.join()
            chunks = 0

            def lose_the_next_update(chunk: bytes) -> bool:
                nonlocal chunks
                chunks += 1
                return chunks == 1

            proxy.cut_upstream = lose_the_next_update
            receipt = await device.push(update(1, 0))
            assert receipt.version == 1
            assert device.connections == 2
            assert hosted.engine.published.version == 1


async def test_a_device_outlives_its_server(tmp_path: Path) -> None:
    async with hosting(tmp_path) as hosted, proxying(hosted.port) as proxy, link(proxy.port) as device:
        await device.join()
        await device.push(update(1, 0))
        replica = Replica(LAYOUT)
        replica.take(await device.pull(None))
        before = hosted.engine.parameters.theta.copy()
        proxy.target = 1  # nobody listens there
        proxy.cut_all()
        waiting = asyncio.create_task(device.push(update(2, 1, pull=True)))
        while proxy.connections < 4:
            await asyncio.sleep(0)
        assert not waiting.done()
        async with asyncio.TaskGroup() as group:
            closed = group.create_task(_restart(tmp_path, proxy, waiting))
        version, theta = closed.result()
        receipt = waiting.result()
        assert receipt.version == version == 2
        assert receipt.model is not None
        replica.take(receipt.model)
        assert replica.theta.tobytes() == theta
        assert before.tobytes() != theta


async def _restart(directory: Path, proxy: Proxy, device: asyncio.Task[Receipt]) -> tuple[int, bytes]:
    """A second server on a copy of the journal as a crash would have left it; (version, theta) it reaches."""
    copy = directory / "copy"
    copy.mkdir()
    for file in directory.glob("journal.sqlite*"):
        (copy / file.name).write_bytes(file.read_bytes())
    async with hosting(copy) as again:
        proxy.target = again.port
        await device
        return again.engine.published.version, again.engine.parameters.theta.tobytes()


async def test_another_run_on_the_same_address_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    async with hosting(tmp_path / "a") as hosted, proxying(hosted.port) as proxy, link(proxy.port) as device:
        await device.join()
        await device.push(update(1, 0))
        async with hosting(tmp_path / "b", run="another-run-here") as other:
            proxy.target = other.port
            proxy.cut_all()
            with pytest.raises(RunReplaced):
                await device.push(update(2, 1))
            assert other.engine.published.version == 0
            welcome = await device.join()
            assert (welcome.run, welcome.sequence) == ("another-run-here", 0)


async def test_the_newer_session_of_a_device_wins(tmp_path: Path) -> None:
    async with hosting(tmp_path) as hosted, link(hosted.port) as old:
        secret = (await old.join()).secret
        await old.push(update(1, 0))
        async with link(hosted.port, secret=secret) as new:
            welcome = await new.join()
            assert welcome.sequence == 1
            assert (await new.push(update(2, 1))).version == 2
            with pytest.raises(Superseded):
                await old.push(update(2, 1))
            assert hosted.engine.published.version == 2


async def test_what_no_retry_can_mend_is_raised_at_once(tmp_path: Path) -> None:
    async with hosting(tmp_path, closed=True) as hosted:
        identity = hosted.enrol("pi")
        async with link(hosted.port, identity=replace(identity, credential="efd1.wrong")) as device:
            with pytest.raises(Unauthorized):
                await device.join()
        async with link(hosted.port, identity=identity) as device:
            device.announce_layout(bytes(16))
            with pytest.raises(LayoutMismatch):
                await device.join()


async def test_a_refused_update_leaves_the_session_open(tmp_path: Path) -> None:
    async with hosting(tmp_path, "coordination.window=2") as hosted, link(hosted.port) as device:
        await device.join()
        for sequence in range(1, 4):
            await device.push(update(sequence, sequence - 1))
        with pytest.raises(BaseExpired):
            await device.push(update(4, 0))
        assert (await device.push(update(4, 3))).version == 4
        assert device.connections == 1


async def test_a_complete_run_sends_its_devices_home(tmp_path: Path) -> None:
    async with hosting(tmp_path, "end.updates=2") as hosted, link(hosted.port) as device:
        await device.join()
        await device.push(update(1, 0))
        await device.push(update(2, 1))
        with pytest.raises(RunOver):
            await device.push(update(3, 2))
        assert (await device.push(update(2, 1))).version == 2
        assert hosted.engine.published.version == 2


async def test_traffic_is_what_passed_the_socket(tmp_path: Path) -> None:
    async with hosting(tmp_path) as hosted, proxying(hosted.port) as proxy:
        async with link(proxy.port) as device:
            await device.join()
            replica = Replica(LAYOUT)
            replica.take(await device.pull(None))
            for sequence in range(1, 6):
                receipt = await device.push(update(sequence, sequence - 1, pull=sequence % 2 == 0))
                assert receipt.version == sequence
            known = hosted.registry.devices["pi"]
            assert known.connection.traffic == (proxy.upstream, proxy.downstream)
            total = hosted.traffic
            assert (total.total.ingress, total.total.egress) == (proxy.upstream, proxy.downstream)
            # What is not a record's frame is the handshake: HTTP, once a connection.
            handshake = proxy.upstream - sum(total.received.values())
            assert 100 < handshake < 600
            assert {kind.__name__ for kind in total.received} == {"Hello", "Pull", "Update"}
            assert {kind.__name__ for kind in total.sent} == {"Welcome", "Model", "Receipt"}
        while hosted.registry.devices["pi"].connection.session is not None:
            await asyncio.sleep(0)
        assert known.connection.traffic == (proxy.upstream, proxy.downstream)

"""Samples from device to device through a real server: where run and owner agree, and at nobody's cost."""

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import aiohttp
import numpy as np
import pytest
from aiohttp import web

from edgeflock.client.backends.torch import TorchBackend
from edgeflock.client.run import run_client
from edgeflock.client.transport import Link
from edgeflock.server.roster import relay
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.protocol import wire
from edgeflock.shared.protocol.messages import PROTOCOL, Hello, Model, Samples
from edgeflock.shared.settings.client import ClientSettings
from tests.client.training.fakes import WELCOME as GREETING
from tests.hosting import LAYOUT, Hosted, hosting
from tests.integration.foreign_client import (
    HELLO,
    MODEL,
    PULL,
    RECEIPT,
    REFUSAL,
    SAMPLES,
    WELCOME,
    Device,
    connected,
    pack,
)
from tests.integration.scene import refused
from tests.integration.scene import update as packed_update
from tests.integration.test_reconnect import at_once, update
from tests.proxy import proxying

ON = ("injection.alpha=0.5", "injection.beta=0.5")


def samples(count: int, label: int = 0) -> Samples:
    """Of two values each."""
    return Samples(count, True, bytes(range(2 * count)), True, struct.pack(f"<{count}i", *[label] * count))


class Sharer(Link):
    """A Link that keeps what comes in."""

    def __init__(self, port: int, name: str, *, shares: bool = True) -> None:
        hello = Hello(PROTOCOL, name, LAYOUT.digest, {}, shares)
        super().__init__(f"http://127.0.0.1:{port}", None, hello, Random(0), at_once)
        self.got: list[Samples] = []
        self.listen(self.got.append)


@asynccontextmanager
async def sharing(port: int, *names: str, shares: bool = True) -> AsyncIterator[list[Sharer]]:
    """Devices that have joined."""
    async with AsyncExitStack() as stack:
        devices = [Sharer(port, name, shares=shares) for name in names]
        for device in devices:
            await stack.enter_async_context(device)
            await device.join()
        yield devices


@asynccontextmanager
async def foreign(port: int, name: str, *, shares: bool = True) -> AsyncIterator[Device]:
    async with connected(port) as device:
        await device.upgrade()
        assert (await device.ask([HELLO, 2, name, b"", {}, shares]))[0] == WELCOME
        yield device


async def until_shared(hosted: Hosted, count: int) -> None:
    """Until the server has got so many samples."""
    while hosted.relay.samples < count:
        await asyncio.sleep(0.005)


async def status_of(hosted: Hosted) -> dict[str, Any]:
    async with (
        aiohttp.ClientSession() as http,
        http.get(f"http://127.0.0.1:{hosted.port}/v1/status") as response,
    ):
        status: dict[str, Any] = await response.json()
        return status


# Who gets what


async def test_samples_are_dealt_out_among_others_that_share_and_nobody_else(tmp_path: Path) -> None:
    async with (
        hosting(tmp_path, *ON) as hosted,
        sharing(hosted.port, "a", "b", "c") as (a, b, c),
        sharing(hosted.port, "private", shares=False) as (private,),
    ):
        await a.share(samples(3))
        await b.share(samples(2, label=7))
        await until_shared(hosted, 5)
        for device in (a, b, c, private):
            await device.push(update(1, 0))
        large, small = relay.parts(samples(3), 2)
        one, other = relay.parts(samples(2, label=7), 2)
        assert (a.got, b.got, c.got, private.got) == ([other], [large], [small, one], [])
        for device in (a, b, c, private):
            await device.push(update(2, 1))
        assert [len(device.got) for device in (a, b, c, private)] == [1, 1, 2, 0], "once"


async def test_the_bytes_that_arrive_are_those_that_were_sent(tmp_path: Path) -> None:
    """They come before the answer, and none before the Welcome."""
    octets = b"\xdc\x00\x06\x09\xcd\x00\x02\xc3\xc4\x04abcd\xc3\xc5\x00\x08" + struct.pack("<2i", 1, -1)
    assert isinstance(wire.decode(octets), Samples), "in longer forms than our own"
    async with (
        hosting(tmp_path, *ON) as hosted,
        foreign(hosted.port, "a") as a,
        foreign(hosted.port, "b") as b,
    ):
        a.send(octets)
        await until_shared(hosted, 2)
        b.send(pack([PULL, None]))
        assert (await b.receive())[1] == octets
        assert (await b.answer())[0] == MODEL
        assert (await a.ask([PULL, None]))[0] == MODEL


async def test_bytes_and_samples_are_accounted_for(tmp_path: Path) -> None:
    async with hosting(tmp_path, *ON) as hosted:
        async with sharing(hosted.port, "a", "b", "c") as (a, b, c):
            before = {device["name"]: device for device in (await status_of(hosted))["devices"]}
            await a.share(samples(3))
            await until_shared(hosted, 3)
            for device in (a, b):
                await device.pull(None)
            status = await status_of(hosted)
            up = wire.framed_size(len(wire.encode(samples(3))), masked=True)
            down = wire.framed_size(len(wire.encode(samples(2))), masked=False)
            assert status["shared"] == {"samples": 3, "dropped": 0, "ingress": up, "egress": down}
            assert status["records"]["Samples"] == {"ingress": up, "egress": down}
            devices = {device["name"]: device for device in status["devices"]}
            reported = {name: (d["shares"], d["shared"], d["received"]) for name, d in devices.items()}
            assert reported == {"a": (True, 3, 0), "b": (True, 0, 2), "c": (True, 0, 0)}
            gain = {
                name: (d["ingress"] - before[name]["ingress"], d["egress"] - before[name]["egress"])
                for name, d in devices.items()
            }
            assert gain["a"][0] - gain["b"][0] == up
            assert gain["b"][1] - gain["a"][1] == down
            assert gain["c"] == (0, 0)
        while any(device.connection.is_connected for device in hosted.registry.devices.values()):
            await asyncio.sleep(0.005)
        status = await status_of(hosted)
        assert status["shared"]["dropped"] == 1, "c left without its own"


# Who may not


@pytest.mark.parametrize(
    ("settings", "shares", "part"),
    [
        ((), True, "injection.alpha"),
        (ON, False, "client.share"),
    ],
)
async def test_nothing_is_taken_without_the_consent_of_run_and_owner(
    settings: tuple[str, ...], shares: bool, part: str, tmp_path: Path
) -> None:
    async with hosting(tmp_path, *settings) as hosted, sharing(hosted.port, "other") as (other,):
        async with foreign(hosted.port, "a", shares=shares) as device:
            device.send(wire.encode(samples(3)))
            kind, code, detail, _ = await device.answer()
            assert (kind, code) == (REFUSAL, "unexpected-record")
            assert part in detail
            assert await device.closed() == (4405, "unexpected-record")
        await other.pull(None)
        assert other.got == []
        assert (await status_of(hosted))["shared"]["samples"] == 0


async def test_a_device_keeps_its_samples_to_itself_in_a_run_that_wants_none(tmp_path: Path) -> None:
    """Even if it drew them: the server may have been started anew with other settings."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    async with hosting(tmp_path / "a", *ON) as hosted, proxying(hosted.port) as proxy:
        async with sharing(proxy.port, "a") as (device,), hosting(tmp_path / "b") as quiet:
            await device.share(samples(3))
            await until_shared(hosted, 3)
            proxy.target = quiet.port
            proxy.cut_all()
            await device.share(samples(3))
            await device.pull(None)
            assert device.connections == 2
            await device.share(samples(3))
            await device.push(update(1, 0))
            assert device.connections == 2, "nothing was refused"
            assert quiet.traffic.received[Samples] == 0


ODD = wire.encode(samples(2))
MALFORMED: dict[str, tuple[str, bytes]] = {
    "no samples": ("malformed", pack([SAMPLES, 0, True, b"", True, b""])),
    "a count without bytes": ("malformed", pack([SAMPLES, 2, True, b"", True, b""])),
    "x that is no multiple": ("malformed", pack([SAMPLES, 2, True, bytes(3), True, bytes(8)])),
    "x of half a float": ("malformed", pack([SAMPLES, 2, False, bytes(12), True, bytes(8)])),
    "y too short": ("malformed", pack([SAMPLES, 2, True, bytes(4), True, bytes(4)])),
    "y that is no multiple": ("malformed", pack([SAMPLES, 2, True, bytes(4), True, bytes(12)])),
    "a negative count": ("malformed", pack([SAMPLES, -2, True, bytes(4), True, bytes(8)])),
    "1 for true": ("malformed", pack([SAMPLES, 2, 1, bytes(4), True, bytes(8)])),
    "text": ("malformed", pack([SAMPLES, 2, True, "abcd", True, bytes(8)])),
    "a field too few": ("malformed", pack([SAMPLES, 2, True, bytes(4), True])),
    "a field too many": ("malformed", pack([SAMPLES, 2, True, bytes(4), True, bytes(8), 1])),
    "cut short": ("malformed", ODD[:-1]),
    "a huge count": ("frame-too-large", pack([SAMPLES, 2**63 - 1, True, bytes(4), True, bytes(8)])),
    "too many": ("frame-too-large", wire.encode(samples(21))),
}


@pytest.mark.parametrize("name", MALFORMED)
async def test_malformed_samples_are_refused_and_go_to_nobody(name: str, tmp_path: Path) -> None:
    code, message = MALFORMED[name]
    async with hosting(tmp_path, *ON, "limits.samples=20") as hosted:
        async with sharing(hosted.port, "other") as (other,), foreign(hosted.port, "a") as device:
            device.send(message)
            await refused(device, code)
            async with sharing(hosted.port, "third") as (third,):
                await third.share(samples(20))
                await until_shared(hosted, 20)
            await other.push(update(1, 0))
            assert other.got == [samples(20)]


# At nobody's cost


async def test_samples_are_taken_while_an_update_waits_for_its_round(tmp_path: Path) -> None:
    rounds = ("coordination.mode=rounds", "coordination.deadline=3600")
    async with (
        hosting(tmp_path, *ON, *rounds) as hosted,
        foreign(hosted.port, "a") as a,
        sharing(hosted.port, "b") as (b,),
    ):
        a.send(packed_update(sequence=1, base=0))
        while not hosted.engine.held_updates:
            await asyncio.sleep(0.005)
        for count in (1, 2, 3):
            a.send(wire.encode(samples(count)))
        await until_shared(hosted, 6)
        await b.share(samples(4))
        await until_shared(hosted, 10)
        await b.push(update(1, 0))
        assert [record.count for record in b.got] == [1, 2, 3]
        assert (await a.answer())[:2] == [SAMPLES, 4]
        assert (await a.answer())[:2] == [RECEIPT, 1]

        a.send(packed_update(sequence=2, base=2))
        while not hosted.engine.held_updates:
            await asyncio.sleep(0.005)
        a.send(pack([PULL, None]))
        await refused(a, "unexpected-record")


async def test_a_device_that_never_reads_holds_up_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One asks and does not read, one does not even ask; what waits for them stays bounded."""
    monkeypatch.setattr(relay, "WAITING_BYTES", 50_000)
    large = Samples(3, True, bytes(60_000), True, bytes(12))
    part = wire.encode(relay.parts(large, 3)[0])
    async with (
        hosting(tmp_path, *ON, layout=Layout.from_shapes([("w", (4_000_000,))])) as hosted,
        connected(hosted.port) as deaf,
        foreign(hosted.port, "silent"),
        foreign(hosted.port, "a") as a,
        foreign(hosted.port, "b") as b,
    ):
        await deaf.upgrade()
        assert (await deaf.ask([HELLO, 2, "deaf", b"", {}, True]))[0] == WELCOME  # the last that it reads
        for _ in range(3):
            deaf.send(pack([PULL, None]))  # a model that no socket's buffer holds
        await b.ask([PULL, None])
        for number in range(1, 11):
            a.send(wire.encode(large))
            await until_shared(hosted, 3 * number)
            b.send(pack([PULL, 0]))
            assert (await b.receive())[1] == part
            assert (await b.answer())[0] == MODEL
        status = await status_of(hosted)
        assert status["shared"]["dropped"] >= 2 * (10 - 2), "there is room for two"
        deaf.writer.transport.abort()


async def test_samples_that_were_on_a_lost_line_are_lost_and_no_more(tmp_path: Path) -> None:
    async with hosting(tmp_path, *ON) as hosted, proxying(hosted.port) as proxy:
        async with sharing(proxy.port, "a") as (a,), sharing(hosted.port, "b") as (b,):
            await b.share(samples(3))
            await until_shared(hosted, 3)
            proxy.cut_all()
            for _ in range(3):
                await a.share(samples(2))
            assert (await a.push(update(1, 0))).version == 1
            assert a.got == []
            assert hosted.relay.samples == 3
            await a.share(samples(2))
            await until_shared(hosted, 5)
            await b.push(update(1, 0))
            assert b.got == [samples(2)]


async def test_samples_may_come_at_any_time_after_the_welcome() -> None:
    """Before and between questions, and before an answer: from a server that does not wait for questions."""
    model = Model(1, None, 0, 0, 0, b"", b"")

    async def session(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.receive()
        await socket.send_bytes(wire.encode(GREETING))
        await socket.send_bytes(wire.encode(samples(1)))
        for count in (2, 4):
            await socket.receive()
            await socket.send_bytes(wire.encode(samples(count)))
            await socket.send_bytes(wire.encode(model))
            await socket.send_bytes(wire.encode(samples(count + 1)))
        await socket.receive()
        return socket

    app = web.Application()
    app.router.add_get("/v1/session", session)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        async with sharing(runner.addresses[0][1], "a") as (device,):
            for _ in range(2):
                assert await device.pull(None) == model
            assert [record.count for record in device.got] == [1, 2, 3, 4]
    finally:
        await runner.cleanup()


# All of it


@pytest.mark.slow
async def test_devices_with_other_classes_train_on_each_others_samples(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Two whole clients, each with half of the classes, a third that shares nothing, and one that shares what
    no model can be trained on. All train to the end."""
    random = np.random.default_rng(0)
    for name, first in (("low", 0), ("high", 5), ("private", 0)):
        x, y = random.integers(0, 256, (60, 1, 8, 8), np.uint8), random.integers(first, first + 5, 60)
        np.savez(tmp_path / f"{name}.npz", x=x, y=y)
    module = "edgeflock.client.zoo:DigitsCNN"
    layout = TorchBackend(module, "cross_entropy").layout
    run = [*ON, f"model.module={module}", "end.updates=150", "coordination.learning_rate=0.001"]
    # Each of the three has a part in every round: none is done before the others come.
    run += ["coordination.mode=rounds", "coordination.quorum=3", "coordination.deadline=3600"]
    async with hosting(tmp_path, *run, layout=layout) as hosted, foreign(hosted.port, "vandal") as vandal:

        def client(name: str, *, share: bool) -> ClientSettings:
            server, data = f"http://127.0.0.1:{hosted.port}", f"npz:{tmp_path / name}.npz"
            return ClientSettings(server=server, name=name, data=data, share=share, backend="torch")

        async def spoil() -> None:
            bad = [
                Samples(1, True, bytes(64), True, struct.pack("<i", 10)),
                Samples(1, False, struct.pack("<64f", *[float("nan")] * 64), True, bytes(4)),
                Samples(1, True, bytes(65), True, bytes(4)),
                Samples(1, True, bytes(64), False, bytes(4)),
            ]
            while True:
                for record in bad:
                    vandal.send(wire.encode(record))
                vandal.send(pack([PULL, None]))
                while (await vandal.answer())[0] != MODEL:
                    pass

        spoiling = asyncio.create_task(spoil())
        await asyncio.gather(
            *(run_client(client(name, share=name != "private")) for name in ("low", "high", "private"))
        )
        spoiling.cancel()
        await asyncio.wait((spoiling,))
        assert hosted.engine.published.version == 150
        devices = hosted.registry.devices
    low, high, private, vandal_ = (devices[name] for name in ("low", "high", "private", "vandal"))
    assert (private.statistics.shared, private.statistics.received) == (0, 0)
    for device, other in ((low, high), (high, low)):
        assert device.statistics.updates > 3
        assert device.statistics.shared > 0
        assert device.statistics.received <= other.statistics.shared + vandal_.statistics.shared
        assert device.statistics.received > 0
    skipped = {message.partition(":")[0] for message in caplog.messages if "skipped" in message}
    assert {message.removeprefix("skipped a record that is ") for message in skipped} >= {
        "out of range",
        "of another shape",
        "of another target",
    }

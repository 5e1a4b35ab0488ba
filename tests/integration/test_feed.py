"""The feed over real sockets: what a watcher sees, and what one costs that does not read."""

import asyncio
import json
import socket
import ssl
from asyncio.sslproto import SSLProtocol
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import psutil
import pytest
from aiohttp import WSMsgType, WSServerHandshakeError

from edgeflock.server.http import watchers
from edgeflock.server.roster.hub import LIMIT
from edgeflock.shared.errors import Refused
from edgeflock.shared.protocol.feed import decode, device_history, encode
from edgeflock.shared.protocol.frames import Delta, Event, Frame, Snapshot
from edgeflock.shared.protocol.messages import Facts
from edgeflock.shared.settings.config import ADAFACTOR_RATE
from tests.hosting import LAYOUT, Hosted, hosting
from tests.integration.foreign_client import BINARY, Device
from tests.integration.operator import ADMIN, Frames, operating
from tests.integration.test_reconnect import link, update


async def until_told(frames: Frames, device: str, **wanted: object) -> Delta:
    """The first delta by which a device is as wanted."""
    while True:
        frame = await frames.next()
        assert isinstance(frame, Delta)
        for row in frame.devices:
            if row.name == device and all(getattr(row, key) == value for key, value in wanted.items()):
                return frame


async def test_a_snapshot_and_then_what_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgeflock.server.roster.statistics._MIN_SILENCE", 3600.0)  # nobody is idle yet
    async with hosting(tmp_path, closed=True, admin_token=ADMIN, viewer_token="look") as hosted:
        async with (
            link(hosted.port, "early", hosted.enrol("early")) as early,
            operating(hosted.port, "look") as viewer,
        ):
            await early.join()
            await early.push(replace(update(1, 0), facts={"rate": 12.5, "depth": 3, "undervoltage": 1}))
            async with viewer.feed() as frames, link(hosted.port, "late", hosted.enrol("late")) as late:
                snapshot = await frames.next()
                assert isinstance(snapshot, Snapshot)
                assert (snapshot.role, snapshot.run.parameters) == ("viewer", LAYOUT.size)
                (row,) = snapshot.devices
                assert (row.name, row.state, row.updates, row.staleness) == ("early", "training", 1, 0)
                assert (row.rate, row.depth, row.undervoltage, row.cpu) == (12.5, 3, True, None)
                assert [event.kind for event in snapshot.events] == ["joined"]
                await late.join()
                await late.push(update(1, 0))
                delta = await until_told(frames, "late", updates=1)
                assert [row.name for row in delta.devices] == ["late"], "nothing else has changed"
                assert (delta.overview.version, delta.overview.up) == (2, 2)
                assert delta.overview.staleness[:2] == [1, 1]
                assert delta.overview.dense_bytes == 2 * 4 * LAYOUT.size
                assert not (await frames.next()).devices
            history = hosted.registry.devices["early"].connection.traffic[0]
            status, text = await viewer.get("/v1/devices/early")
            assert status == 200
            row, (point,) = device_history(json.loads(text))
            assert (row.name, point.loss, point.staleness) == ("early", 0.5, 0)
            assert 0 < point.bytes <= history
            assert (await viewer.get("/v1/devices/nobody"))[0] == 404


async def test_a_device_that_lies_about_itself_does_not_break_the_feed(tmp_path: Path) -> None:
    lies: Facts = {
        "rate": "fast",
        "depth": 0.5,
        "drops": -1,
        "cpu": 1 << 63,
        "temperature": "hot",
        "battery": 3e38,
        "ram": -(1 << 62),
        "undervoltage": 0.1,
    }
    async with hosting(tmp_path) as hosted, link(hosted.port) as device, operating(hosted.port, "") as viewer:
        await device.join()
        await device.push(replace(update(1, 0), facts=lies, loss=float("nan")))
        async with viewer.feed() as frames:
            snapshot = await frames.next()
            assert isinstance(snapshot, Snapshot)
            (row,) = snapshot.devices
            assert (row.rate, row.depth, row.temperature, row.undervoltage, row.loss) == (None,) * 5
            assert (row.battery, row.ram, row.cpu) == (None, None, None)
            assert row.drops == -1


async def test_a_changed_setting_begins_the_feed_anew(tmp_path: Path) -> None:
    async with hosting(tmp_path, admin_token=ADMIN) as hosted, operating(hosted.port) as admin:
        async with admin.feed() as frames:
            first = await frames.next()
            assert isinstance(first, Snapshot)
            assert first.role == "admin"
            assert first.run.config["coordination"]["learning_rate"] == ADAFACTOR_RATE
            assert not {"certificate", "key"} & first.run.config["server"].keys()
            await admin.post("/v1/learning_rate", {"value": 0.5})
            second = await frames.next()
            while isinstance(second, Delta):  # it was under way
                second = await frames.next()
            assert second.run.config["coordination"]["learning_rate"] == 0.5
            assert [event.kind for event in second.events] == ["config"]
            assert isinstance(await frames.next(), Delta)


async def test_a_silent_device_is_told_to_be_idle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgeflock.server.roster.statistics._MIN_SILENCE", 0.01)
    monkeypatch.setattr("edgeflock.server.roster.statistics._UNKNOWN_INTERVAL", 0.01)
    async with hosting(tmp_path) as hosted, link(hosted.port) as device, operating(hosted.port, "") as viewer:
        await device.join()
        async with viewer.feed() as frames:
            await frames.next()
            await until_told(frames, "pi", state="idle")


async def stuck(port: int) -> Device:
    """A watcher whose socket takes almost nothing until it is read."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
    reader, writer = await asyncio.open_connection(sock=sock, limit=1024)
    writer.write(
        b"GET /v1/feed?interval=0.2 HTTP/1.1\r\nHost: server\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
    assert b" 101 " in await reader.readuntil(b"\r\n\r\n")
    return Device(reader, writer)


async def turns() -> None:
    """Let the server have a hundred of them: more than it takes to make a frame that is due at once."""
    for _ in range(100):
        await asyncio.sleep(0.002)


def crowd(hosted: Hosted, count: int) -> None:
    """Devices of long names, so that frames are large."""
    for number in range(count):
        device = hosted.registry.admit(f"{number:0200d}")
        device.id = 1000 + number
        hosted.hub.mark_changed(device)


@pytest.mark.slow
async def test_a_reader_that_is_stuck_costs_nothing_and_gets_one_merged_frame(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Frame] = []

    def counted(frame: Frame) -> bytes:
        made.append(frame)
        return encode(frame)

    in_time: Any = watchers._wait_for_next
    monkeypatch.setattr(watchers, "_wait_for_next", lambda transport, _: in_time(transport, 0.001))
    monkeypatch.setattr(watchers, "encode", counted)
    monkeypatch.setattr(watchers, "HEARTBEAT", 3600.0)  # it is patient
    async with hosting(tmp_path) as hosted, link(hosted.port) as device:
        await device.join()
        crowd(hosted, 5_000)
        watcher = await stuck(hosted.port)
        before = -1
        while len(made) > before:  # until no buffer on the way takes more
            before = len(made)
            crowd(hosted, 5_000)
            await turns()
        egress = hosted.traffic.total.egress
        for sequence in range(1, 101):
            assert (await device.push(update(sequence, sequence - 1))).version == sequence
            hosted.hub.note("config", None, f"event {sequence}")
        for number in range(LIMIT):
            hosted.hub.note("config", None, f"flood {number}")
        await turns()
        assert len(made) == before, "no frame is made while one waits"
        sent = hosted.registry.devices["pi"].connection.traffic[1]
        assert hosted.traffic.total.egress - egress < sent

        frames: list[Frame] = []
        while len(frames) <= before:
            opcode, payload = await watcher.receive()
            assert opcode == BINARY
            frames.append(decode(payload))
        assert isinstance(frames[0], Snapshot)
        last = frames[-1]
        assert isinstance(last, Delta)
        assert len(frames) == before + 1
        row = last.devices[0]
        assert len(last.devices) == 5_001
        assert (row.name, row.updates, last.overview.version) == ("pi", 100, 100)
        assert len(last.events) == LIMIT
        assert last.missed_events == 100, "the events that 1,000 later ones have displaced"
        watcher.writer.close()
        await watcher.writer.wait_closed()


async def test_a_reader_that_is_stuck_for_long_is_let_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchers, "HEARTBEAT", 0.5)
    async with hosting(tmp_path) as hosted:
        crowd(hosted, 9_000)
        watcher = await stuck(hosted.port)
        while hosted.hub.watchers:
            crowd(hosted, 9_000)
            await asyncio.sleep(0.1)
        mine = watcher.writer.get_extra_info("sockname")
        while any(there.raddr == mine for there in psutil.Process().net_connections("tcp4")):
            await asyncio.sleep(0.1)  # until nothing is kept for it
        watcher.writer.close()


async def test_watchers_are_limited_and_leave_room_when_they_go(tmp_path: Path) -> None:
    async with hosting(tmp_path, "limits.watchers=2") as hosted, operating(hosted.port, "") as viewer:
        async with viewer.feed(), viewer.feed():
            status, text = await viewer.get("/v1/feed")
            assert status == 429
            assert "limits.watchers" in text
        while hosted.hub.watchers:
            await asyncio.sleep(0.01)
        async with viewer.feed() as frames:
            assert isinstance(await frames.next(), Snapshot)


@pytest.mark.parametrize("interval", ["0.1", "61", "nan", "soon", ""])
async def test_an_interval_that_cannot_be(tmp_path: Path, interval: str) -> None:
    async with hosting(tmp_path) as hosted, operating(hosted.port, "") as viewer:
        assert (await viewer.get(f"/v1/feed?interval={interval}"))[0] == 400


async def test_a_watcher_has_nothing_to_say(tmp_path: Path) -> None:
    async with hosting(tmp_path) as hosted, operating(hosted.port, "") as viewer:
        async with viewer.feed() as frames:
            await frames.next()
            await frames.socket.send_str("hello")
            while (message := await frames.socket.receive()).type is WSMsgType.BINARY:
                pass
            assert (message.type, message.data) == (WSMsgType.CLOSE, 1003)
        while hosted.hub.watchers:
            await asyncio.sleep(0.01)


async def test_a_server_that_stops_says_so(tmp_path: Path) -> None:
    async with hosting(tmp_path) as hosted:
        admin = operating(hosted.port, "")
        viewer = await admin.__aenter__()
        feed = viewer.feed(interval=60)
        frames = await feed.__aenter__()
        await frames.next()
    message = await frames.socket.receive()
    assert (message.type, message.data) == (WSMsgType.CLOSE, 1001)
    await feed.__aexit__(None, None, None)
    await admin.__aexit__(None, None, None)


async def test_refusals_are_told(tmp_path: Path) -> None:
    async with hosting(tmp_path) as hosted, link(hosted.port) as device:
        await device.join()
        with pytest.raises(Refused):
            await device.push(update(1, 9))
        events, _ = hosted.hub.events.list_from(0)
        assert any(
            isinstance(event, Event) and event.kind == "refused" and "base-in-future" in event.text
            for event in events
        )
        assert hosted.hub.tally.refusals == {"base-in-future": 1}


async def test_the_feed_needs_the_token(tmp_path: Path) -> None:
    async with hosting(tmp_path, closed=True) as hosted, operating(hosted.port, "wrong") as stranger:
        with pytest.raises(WSServerHandshakeError, match="401"):
            async with stranger.feed():
                pass


async def test_a_tls_line_that_was_closed_twice_keeps_nothing() -> None:
    loop = asyncio.get_running_loop()
    context = ssl.create_default_context()
    protocol = SSLProtocol(loop, asyncio.Protocol(), context, loop.create_future())
    transport = cast(asyncio.Transport, protocol._get_app_transport())  # type: ignore[attr-defined]
    transport.close()
    transport.close()
    assert not watchers.has_unsent(transport)

"""Devices behind gateways, over real sockets: what a device is promised holds through any of them."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import replace
from io import StringIO
from pathlib import Path
from random import Random

import aiohttp
import numpy as np
import pytest
from rich.console import Console

from edgeflock.client.identity import ClientIdentity
from edgeflock.client.training.replica import Replica
from edgeflock.client.transport import Link
from edgeflock.client.transport.credentials import join
from edgeflock.operations.status import print_status, status
from edgeflock.server.gateway import Gateway, GatewayAddress
from edgeflock.server.identity import Register
from edgeflock.server.ledger.recovery import replay
from edgeflock.server.sessions.gateways import gateways
from edgeflock.shared.codecs import labels, moments
from edgeflock.shared.errors import (
    ConfigError,
    Dropped,
    EdgeflockError,
    NameInUse,
    NonFinite,
    Superseded,
    Unauthorized,
)
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.model.start import NORMAL, Filling, Start
from edgeflock.shared.protocol import feed, gateway_coding
from edgeflock.shared.protocol import gateway as protocol
from edgeflock.shared.protocol.frames import SERVER_STOPPED
from edgeflock.shared.protocol.messages import PROTOCOL, Hello
from edgeflock.tui.sources.feed_client import FeedClient
from tests.hosting import LAYOUT, Hosted, gateway, hosting, initial_theta, store_token
from tests.integration.held import LOSSY, believed
from tests.integration.operator import ADMIN, operating
from tests.integration.test_first_model import HEADS, LARGE, begun
from tests.integration.test_lossy import NORMED, Device, gradient, hurry
from tests.ports import lasting
from tests.proxy import Proxy, proxying

START = Start(3, tuple(Filling(NORMAL, 0.0, 0.5) for _ in LAYOUT.tensors))
RATE = "coordination.learning_rate=0.05"


class Waited(Exception):
    """The device would wait now."""


async def never(seconds: float) -> None:
    raise Waited


@asynccontextmanager
async def joined(
    servers: str,
    name: str,
    layout: Layout = LAYOUT,
    identity: ClientIdentity | None = None,
    replica: Replica | None = None,
    secret: bytes = b"",
) -> AsyncIterator[Device]:
    """A device that has joined at one of the `servers`."""
    hello = Hello(PROTOCOL, name, layout.digest, {}, secret=secret)
    async with Link(servers, identity, hello, Random(0), hurry) as link:
        welcome = await link.join()
        device = Device(link, replica or Replica(layout, welcome.start), layout, welcome.sequence)
        if replica is None:
            await device.pull()
        yield device


def replays(hosted: Hosted) -> bool:
    """Whether the journal comes to the model, bit for bit."""
    again = replay(hosted.journal, hosted.engine.layout)
    return again.theta.tobytes() == hosted.engine.parameters.theta.tobytes()


async def keep_pulling(device: Device) -> None:
    while True:
        await device.pull()
        await asyncio.sleep(0.02)


async def same(hosted: Hosted, device: Device) -> bool:
    """Whether a device that pulls holds the leader's model, bit for bit, once its gateway has it."""
    await device.pull()
    while device.replica.version != hosted.engine.published.version:
        await asyncio.sleep(0.01)
        await device.pull()
    return device.replica.theta.tobytes() == hosted.engine.parameters.theta.tobytes()


@pytest.mark.parametrize("layout", [LAYOUT, NORMED])
async def test_devices_train_through_a_gateway(tmp_path: Path, layout: Layout) -> None:
    async with hosting(tmp_path, RATE, layout=layout) as leader, gateway(leader) as (_, url):
        async with AsyncExitStack() as stack:
            devices = [await stack.enter_async_context(joined(url, f"d{n}", layout)) for n in range(3)]
            direct = await stack.enter_async_context(joined(leader.url, "direct", layout))
            for _ in range(5):
                await asyncio.gather(*(device.step() for device in (*devices, direct)))
            assert leader.engine.published.version == 20
            assert all([await same(leader, device) for device in devices])
            assert replays(leader)
            roster = leader.registry.devices
            assert [roster[f"d{n}"].statistics.updates for n in range(3)] == [5, 5, 5]
            assert all(roster[f"d{n}"].connection.is_connected for n in range(3))
            assert leader.hub.tally.updates == 20
        while any(device.connection.is_connected for device in leader.registry.devices.values()):
            await asyncio.sleep(0.01)
        assert leader.registry.devices["d0"].connection.leave_reason == "retired: it closed its session"


def of(one: Gateway, device: Device, number: int) -> bytes:
    """What a gateway knows that a device holds."""
    assert one.upstream.mirror is not None
    there = believed(one.upstream.mirror, number, device.replica.version, device.replica.held)
    assert there is not None
    return there.tobytes()


async def gone(hosted: Hosted, name: str) -> str:
    """Why a device has left, once it has."""
    device = hosted.registry.devices[name]
    while device.connection.is_connected:
        await asyncio.sleep(0.01)
    return device.connection.leave_reason or ""


async def test_a_gateway_knows_what_each_of_its_devices_holds(tmp_path: Path) -> None:
    async with hosting(tmp_path, RATE, LOSSY, start=START) as leader, gateway(leader) as (one, url):
        async with joined(url, "pi") as pi, joined(url, "jetson") as jetson:
            for _ in range(6):
                await pi.step()
                await asyncio.gather(pi.step(), jetson.step())
            for device, name in ((pi, "pi"), (jetson, "jetson")):
                await device.pull()
                number = leader.registry.devices[name].id
                assert of(one, device, number) == device.replica.theta.tobytes()
                assert device.wholes == 0, "all of them begin with the first model"
                lacks = device.replica.theta - leader.engine.parameters.theta
                assert np.abs(lacks).max() < 1
        assert replays(leader)


async def test_second_moments_are_the_whole_fleet_s_behind_any_gateway(tmp_path: Path) -> None:
    report = [moments.encode(np.full(LAYOUT.lines[-1], level, np.float32)) for level in (4, 16, 8)]
    async with hosting(tmp_path, RATE, start=START) as leader, gateway(leader) as (_, url):
        async with joined(url, "pi") as pi, joined(leader.url, "jetson") as jetson:
            update = replace(gradient(LAYOUT, 1, pi.replica), moments=report[0])
            assert (await pi.link.push(update)).moments == report[0]
            update = replace(gradient(LAYOUT, 1, jetson.replica), moments=report[1])
            assert (await jetson.link.push(update)).moments == report[2]
            update = replace(gradient(LAYOUT, 2, pi.replica), moments=report[1])
            assert (await pi.link.push(update)).moments == report[1]
            assert (await pi.link.push(gradient(LAYOUT, 3, pi.replica))).moments == b""


async def test_labels_are_the_whole_fleet_s_behind_any_gateway(tmp_path: Path) -> None:
    own = [labels.encode(np.array(shares)) for shares in ((1, 0), (0, 1))]
    async with hosting(tmp_path, RATE, start=START) as leader, gateway(leader) as (_, url):
        async with joined(url, "pi") as pi, joined(leader.url, "jetson") as jetson:
            for sequence in (1, 2):
                await pi.link.push(replace(gradient(LAYOUT, sequence, pi.replica), labels=own[0]))
            receipt = await jetson.link.push(replace(gradient(LAYOUT, 1, jetson.replica), labels=own[1]))
            fleet, lately = labels.decode(receipt.labels, rows=2)
            assert fleet.tolist() == [0.5, 0.5]
            assert lately == pytest.approx([2 / 3, 1 / 3], abs=1e-3)
            receipt = await pi.link.push(replace(gradient(LAYOUT, 3, pi.replica), labels=own[0]))
            assert labels.decode(receipt.labels, rows=2)[1] == pytest.approx([3 / 4, 1 / 4], abs=1e-3)


@pytest.mark.parametrize("mode", ["downlink.mode=exact", LOSSY])
async def test_a_device_goes_on_through_another_gateway(tmp_path: Path, mode: str) -> None:
    """What it has no receipt for it sends again, and it counts once."""
    async with hosting(tmp_path, RATE, mode, start=START) as leader, gateway(leader, "b") as (_, second):
        async with AsyncExitStack() as first:
            _, url = await first.enter_async_context(gateway(leader, "a"))
            async with joined(f"{url},{second}", "pi") as pi:
                for _ in range(3):
                    await pi.step()
                update = gradient(LAYOUT, 4, pi.replica)
                receipt = await pi.link.push(update)
                await first.aclose()
                assert (await pi.link.push(update)).version == receipt.version == 4
                pi.sequence = 4
                await pi.pull()
                await pi.step()
                assert leader.engine.published.version == 5
                assert leader.hub.tally.updates == 5
                while len(leader.gateways.connections) > 1:
                    await asyncio.sleep(0.01)
                assert [line.name for line in leader.gateways.connections] == ["b"]
        assert replays(leader)


async def test_the_newest_session_has_the_name_whichever_gateway_it_comes_through(tmp_path: Path) -> None:
    async with (
        hosting(tmp_path, RATE) as leader,
        gateway(leader, "a") as (_, a),
        gateway(leader, "b") as (_, b),
        joined(a, "pi") as old,
    ):
        await old.step()
        living = asyncio.create_task(keep_pulling(old))
        with pytest.raises(NameInUse):
            async with joined(b, "pi"):
                pass
        living.cancel()
        async with joined(b, "pi", secret=old.link.conversation.hello.secret) as new:
            assert new.sequence == 1
            await new.step()
            assert leader.registry.devices["pi"].connection.is_connected
            events = [event.text for event in leader.hub.events.list_from(0)[0] if event.device == "pi"]
            assert "replaced: a newer session has its name" in events
            with pytest.raises(Superseded):
                await old.link.pull(None)
        async with joined(leader.url, "pi", secret=new.link.conversation.hello.secret) as direct:
            await direct.step()
        assert leader.engine.published.version == 3


async def test_who_a_device_is_its_leader_says(tmp_path: Path) -> None:
    async with (
        hosting(tmp_path, RATE, closed=True, with_tls=True) as leader,
        gateway(leader, tls=tmp_path) as (_, url),
    ):
        pi, jetson = leader.enrol("pi"), leader.enrol("jetson")
        async with joined(url, "pi", identity=replace(pi, server=url)) as device:
            await device.step()
        with pytest.raises(Unauthorized, match="this credential is that of 'pi'"):
            async with joined(url, "jetson", identity=pi):
                pass
        with pytest.raises(Unauthorized, match="key does not fit"):
            async with joined(url, "pi", identity=replace(pi, key=jetson.key)):
                pass
        with pytest.raises(Unauthorized):
            async with joined(url, "pi", identity=replace(pi, credential="efd1.guessed")):
                pass
        token = leader.register.create("device").text
        late = await join(url, token, "late")
        async with joined(url, "late", identity=late) as device:
            await device.step()
            with closing(Register(tmp_path)) as command:
                command.revoke("late")
            assert await gone(leader, "late") == "refused: unauthorized"
        with pytest.raises(Unauthorized):
            await join(url, token, "later")
        assert leader.engine.published.version == 2


async def test_an_operator_is_told_the_leader_s_address(tmp_path: Path) -> None:
    async with (
        hosting(tmp_path, RATE, closed=True, admin_token=ADMIN) as leader,
        gateway(leader) as (_, url),
    ):
        with pytest.raises(Unauthorized, match=f"ask the leader, {leader.url}$"):
            await status(url, ADMIN)


async def test_an_open_gateway_names_its_leader_for_more(tmp_path: Path) -> None:
    async with hosting(tmp_path, RATE) as leader, gateway(leader) as (_, url):
        reported, screen = await status(url), StringIO()
        print_status(Console(file=screen, width=200), reported)
        assert f"ask its leader: edgeflock status {leader.url}" in screen.getvalue()
        assert "token" not in screen.getvalue()


async def test_what_an_operator_wants_holds_behind_a_gateway(tmp_path: Path) -> None:
    async with (
        hosting(tmp_path, RATE, admin_token=ADMIN) as leader,
        gateway(leader) as (_, url),
        operating(leader.port) as operator,
        joined(url, "pi") as pi,
    ):
        await operator.post("/v1/devices/pi/pause", {"because": "hot"})
        stepping = asyncio.create_task(pi.step())
        while leader.engine.published.version < 1:
            await asyncio.sleep(0.01)
        assert not stepping.done()
        await operator.post("/v1/devices/pi/resume")
        await stepping
        reported = json.loads((await operator.get("/v1/status"))[1])
        assert [(one["name"], one["devices"], one["updates"]) for one in reported["gateways"]] == [
            ("gateway", 1, 1)
        ]
        assert reported["devices"][0]["gateway"] == "gateway"
        screen = StringIO()
        print_status(Console(file=screen, width=200), reported)
        assert "Gateway gateway at 127.0.0.1: 1 device, 1 update, 0 B waiting" in screen.getvalue()
        frame = feed.decode(await anext(FeedClient(leader.url, ADMIN).frames()))
        rows = frame.overview.gateways
        assert [(row.name, row.devices, row.updates_per_s) for row in rows] == [("gateway", 1, None)]
        metrics = (await operator.get("/metrics"))[1]
        assert 'edgeflock_gateway_devices{gateway="gateway"} 1.0' in metrics
        await operator.post("/v1/devices/pi/drop", {"because": "no"})
        with pytest.raises(Dropped, match="an operator has dropped 'pi': no"):
            await pi.link.pull(None)
        assert await gone(leader, "pi") == "refused: dropped"


async def order_servers(one: Gateway, name: str) -> str:
    """Why a device waits, once its gateway knows."""
    (device,) = [device for device in one.upstream.devices if device.name == name]
    while (order := device.connection.order) is None:
        await asyncio.sleep(0.01)
    return order.reason


async def test_a_device_that_is_paused_gets_no_answer(tmp_path: Path) -> None:
    """Not to a pull either; whether it was there when an operator paused it, or came later."""
    async with (
        hosting(tmp_path, RATE, admin_token=ADMIN) as leader,
        gateway(leader) as (one, url),
        operating(leader.port) as operator,
        joined(url, "other") as other,
    ):
        async with joined(url, "pi") as pi:
            await operator.post("/v1/devices/pi/pause", {"because": "hot"})
            assert await order_servers(one, "pi") == "hot"
            pulling = asyncio.create_task(pi.pull())
            for _ in range(5):
                await other.step()
            assert not pulling.done()
            await operator.post("/v1/devices/pi/resume")
            await pulling
            assert pi.replica.version == 5
            assert await same(leader, pi)
        await gone(leader, "pi")
        await operator.post("/v1/devices/pi/pause", {"because": "still hot"})
        async with Link(url, None, Hello(PROTOCOL, "pi", LAYOUT.digest, {}), Random(0), hurry) as link:
            await link.join()
            first = asyncio.create_task(link.pull(None))
            for _ in range(5):
                await other.step()
            assert not first.done()
            assert await order_servers(one, "pi") == "still hot"
            await operator.post("/v1/devices/pi/resume")
            assert (await first).version == 10


async def test_refusals_come_through_and_count(tmp_path: Path) -> None:
    settings = ("limits.refusals=2", RATE)
    async with (
        hosting(tmp_path, *settings, closed=True) as leader,
        gateway(leader) as (_, url),
        joined(url, "pi", identity=leader.enrol("pi")) as pi,
    ):
        bad = replace(gradient(LAYOUT, 1, pi.replica), values=b"\xff" * 44)
        for _ in range(2):
            with pytest.raises(NonFinite):
                await pi.link.push(bad)
        while leader.registry.devices["pi"].statistics.refused < 2:
            await asyncio.sleep(0.01)
        pi.link._retries._sleep = never
        with pytest.raises(NonFinite):
            await pi.link.push(bad)
        assert await gone(leader, "pi") == "refused: quarantined"
        assert leader.register.find_quarantine("pi") is not None
        assert leader.hub.tally.refusals["non-finite"] == 3
        with pytest.raises(Waited):
            await pi.link.pull(None)
        assert leader.engine.published.version == 0


async def test_a_leader_that_starts_again_finds_its_gateways(tmp_path: Path) -> None:
    port = lasting()
    async with AsyncExitStack() as stack:
        life = AsyncExitStack()
        leader = await life.enter_async_context(hosting(tmp_path, RATE, port=port))
        one, url = await stack.enter_async_context(gateway(leader))
        pi = await stack.enter_async_context(joined(url, "pi"))
        await pi.step()
        await life.aclose()
        assert await gone(leader, "pi") == SERVER_STOPPED
        stepping = asyncio.create_task(pi.step())
        await asyncio.sleep(0.2)
        assert not stepping.done()
        leader = await stack.enter_async_context(hosting(tmp_path, RATE, port=port))
        store_token(leader.register, one.leaders.headers["Authorization"][7:], "gateway")
        await stepping
        assert leader.engine.published.version == 2
        assert await same(leader, pi)


@asynccontextmanager
async def with_a_line(leader: Hosted) -> AsyncIterator[tuple[Gateway, str, Proxy]]:
    """(A gateway, its URL, what its line to the leader goes through)."""
    async with proxying(leader.port) as proxy:
        async with gateway(leader, leaders=f"http://127.0.0.1:{proxy.port}") as (one, url):
            yield one, url, proxy


async def cut(proxy: Proxy, one: Gateway) -> None:
    """The leader cannot be reached any more, until the proxy has its target again."""
    proxy.target = 1  # where nobody is
    proxy.cut_all()
    while one.upstream.mirror is not None:
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("mode", ["downlink.mode=exact", LOSSY])
async def test_a_line_that_breaks_for_a_moment_costs_no_model(tmp_path: Path, mode: str) -> None:
    """Neither the gateway nor its devices; what happened meanwhile they are told."""
    async with (
        hosting(tmp_path, RATE, mode, start=START) as leader,
        with_a_line(leader) as (one, url, proxy),
        joined(url, "pi") as pi,
        joined(leader.url, "direct") as direct,
    ):
        for _ in range(3):
            await pi.step()
        mirror, wholes = one.upstream.mirror, pi.wholes
        for _ in range(2):
            await cut(proxy, one)
            await direct.step()
            proxy.target = leader.port
            await pi.step()
            assert one.upstream.mirror is mirror
            assert pi.wholes == wholes
        assert leader.engine.published.version == 7
        assert mirror is not None
        assert mirror.theta.tobytes() == leader.engine.parameters.theta.tobytes()
        await pi.pull()
        number = leader.registry.devices["pi"].id
        held = of(one, pi, number) if mode == LOSSY else mirror.theta.tobytes()
        assert pi.replica.theta.tobytes() == held
        assert replays(leader)


async def test_a_line_that_breaks_for_long_begins_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateways, "_RETAINED_BYTES", 0)
    async with (
        hosting(tmp_path, RATE, "downlink.mode=exact") as leader,
        with_a_line(leader) as (one, url, proxy),
        joined(url, "pi") as pi,
        joined(leader.url, "direct") as direct,
    ):
        await pi.step()
        mirror, wholes = one.upstream.mirror, pi.wholes
        await cut(proxy, one)
        while leader.gateways._changes is not None:  # until they come to as much as the model
            await direct.step()
        proxy.target = leader.port
        await pi.step()
        assert one.upstream.mirror is not mirror
        assert pi.wholes == wholes + 1
        assert await same(leader, pi)


async def test_a_copy_that_went_astray_begins_anew(tmp_path: Path) -> None:
    """Whoever goes on where it was comes to the leader's model, to the last bit, or asks for all of it."""
    async with (
        hosting(tmp_path, RATE) as leader,
        with_a_line(leader) as (one, url, proxy),
        joined(url, "pi") as pi,
    ):
        await pi.step()
        mirror = one.upstream.mirror
        assert mirror is not None
        await cut(proxy, one)
        mirror.theta[7] += 1
        proxy.target = leader.port
        await pi.step()
        assert one.upstream.mirror is not mirror
        assert await same(leader, pi)


async def test_marks_that_nobody_knows_begin_anew(tmp_path: Path) -> None:
    async with hosting(tmp_path, RATE) as leader, aiohttp.ClientSession() as http, gateway(leader):
        for mark in ("", "00", "00" * len(protocol.first_mark(bytes(protocol.LIFE)))):
            line = f"{leader.url}/v1/gateway?name=x&mark={mark}"
            async with http.ws_connect(line, max_msg_size=0) as socket:
                first = next(gateway_coding.items((await socket.receive()).data, protocol.OF_LEADERS))
                assert isinstance(first, protocol.Sync)
        async with http.get(f"{leader.url}/v1/gateway?name=x&mark=zz") as answer:
            assert answer.status == 400


async def test_rounds_wait_for_devices_behind_any_gateway(tmp_path: Path) -> None:
    settings = ("coordination.mode=rounds", "coordination.deadline=3600")
    async with (
        hosting(tmp_path, *settings) as leader,
        gateway(leader, "a") as (_, a),
        gateway(leader, "b") as (_, b),
        joined(a, "1") as one,
        joined(b, "2") as two,
        joined(leader.url, "3") as three,
    ):
        first = [asyncio.create_task(device.step()) for device in (one, two)]
        while len(leader.engine.held_updates) < 2:
            await asyncio.sleep(0.01)
        assert leader.engine.published.version == 0
        await asyncio.gather(*first, three.step())
        assert {device.replica.version for device in (one, two, three)} == {3}
        assert await same(leader, one)
        pair = [asyncio.create_task(device.step()) for device in (one, three)]
        while len(leader.engine.held_updates) < 2:
            await asyncio.sleep(0.01)
        await two.link.leave("retired: enough")
        await two.link._dialer.hang_up()
        await asyncio.gather(*pair)
        assert leader.engine.published.version == 5
        assert leader.registry.devices["2"].connection.leave_reason == "retired: enough"


async def test_an_update_that_waits_is_sent_again_through_the_same_gateway(tmp_path: Path) -> None:
    """Its answer goes to the session that there is, and nothing of the one before it."""
    settings = ("coordination.mode=rounds", "coordination.deadline=3600")
    async with (
        hosting(tmp_path, *settings) as leader,
        gateway(leader) as (_, url),
        proxying(int(url.rpartition(":")[2])) as proxy,
        joined(f"http://127.0.0.1:{proxy.port}", "1") as one,
        joined(url, "2") as two,
    ):
        stepping = asyncio.create_task(one.step())
        while not leader.engine.held_updates:
            await asyncio.sleep(0.01)
        (held,) = leader.engine.held_updates.values()
        for _ in range(3):
            last = leader.engine._resent.get(held)
            proxy.cut_all()
            while leader.engine._resent.get(held) is last:  # until it is sent again
                await asyncio.sleep(0.01)
            assert not stepping.done()
        await two.step()
        await stepping
        assert leader.engine.published.version == 2
        assert await same(leader, one)
        assert replays(leader)


@pytest.mark.parametrize("mode", ["downlink.mode=exact", LOSSY])
async def test_a_model_that_is_rolled_back_reaches_everybody(tmp_path: Path, mode: str) -> None:
    async with (
        hosting(tmp_path, RATE, mode, admin_token=ADMIN) as leader,
        gateway(leader) as (one, url),
        operating(leader.port) as operator,
        joined(url, "pi") as pi,
    ):
        for _ in range(3):
            await pi.step()
        status, _ = await operator.post("/v1/rollback", {"version": 1})
        assert status == 200
        while one.context.published.version < 4:
            await asyncio.sleep(0.01)
        before = pi.wholes
        await pi.pull()
        assert pi.wholes == before + 1
        assert pi.replica.version == leader.engine.published.version == 4
        assert np.allclose(pi.replica.theta, leader.engine.parameters.theta, atol=0.05)
        await operator.post("/v1/learning_rate", {"value": 0.5})
        await pi.step()
        assert replays(leader)


@pytest.mark.parametrize("mode", ["downlink.mode=exact", LOSSY])
async def test_the_first_model_is_loaded_from_a_gateway(tmp_path: Path, mode: str) -> None:
    async with hosting(tmp_path / "run", mode, layout=LARGE, offered=True) as leader:
        async with gateway(leader) as (one, url):
            hello = Hello(PROTOCOL, "pi", LARGE.digest, {})
            async with Link(url, None, hello, Random(0), hurry) as device:
                replica = await begun(device, tmp_path / "kept")
                if mode == LOSSY:
                    number = leader.registry.devices["pi"].id
                    held = Device(device, replica, LARGE)
                    assert of(one, held, number) == replica.theta.tobytes()
                else:
                    assert replica.theta.tobytes() == initial_theta(LARGE.size).tobytes()
            offered = leader.engine.outlet.first_model
            assert offered is not None
            await gone(leader, "pi")
            egress = leader.registry.devices["pi"].connection.traffic[1]
            assert offered.size < egress < offered.size + HEADS


async def test_a_gateway_that_cannot_be_says_why(tmp_path: Path) -> None:
    async with hosting(tmp_path / "a", closed=True, with_tls=True) as leader:
        with pytest.raises(ConfigError, match="this needs a token of the role gateway"):
            async with gateway(leader, token=leader.register.create("viewer").text):
                pass
        async with hosting(tmp_path / "b", with_tls=True):
            with pytest.raises(ConfigError, match="another public key than the leader's, which tokens name"):
                async with gateway(leader, tls=tmp_path / "b"):
                    pass
        token = leader.register.create("gateway").text
        headers = {"Authorization": f"Bearer {token}"}
        async with aiohttp.ClientSession() as http:
            for path, status in (("/v1/feed", 403), ("/v1/devices/pi", 403), ("/v1/model", 403)):
                async with http.get(leader.url + path, headers=headers, ssl=False) as answer:
                    assert answer.status == status
        port = int(leader.url.rpartition(":")[2])
        with pytest.raises(EdgeflockError, match=rf"cannot listen on 127.0.0.1:{port}: .*--port"):
            async with Gateway(leader.url, token, "", GatewayAddress(port=port)).serving():
                pass
    with pytest.raises(ConfigError, match="give --certificate and --key"):
        Gateway("https://127.0.0.1:1", "", "one", GatewayAddress(host="0.0.0.0"))
    with pytest.raises(ConfigError, match="--insecure"):
        Gateway("http://192.0.2.1:1", "", "one", GatewayAddress())


async def test_a_gateway_without_a_leader_sends_devices_on(tmp_path: Path) -> None:
    one = Gateway("http://127.0.0.1:1", "", "", GatewayAddress(port=0))
    async with one.serving() as port, hosting(tmp_path, RATE) as leader, aiohttp.ClientSession() as http:
        assert one.name == one.upstream.name == f"{socket.gethostname()}:{port}"
        async with http.get(f"http://127.0.0.1:{port}/readyz") as answer:
            assert (answer.status, await answer.text()) == (503, "this gateway has no leader\n")
        async with joined(f"http://127.0.0.1:{port},{leader.url}", "pi") as pi:
            await pi.step()
        async with gateway(leader) as (_, url), http.get(f"{url}/readyz") as answer:
            assert answer.status == 200
            async with http.get(f"{url}/v1/status") as reported:
                assert (await reported.json())["version"] == 1
            async with http.get(f"{url}/v1/start") as reported:
                assert reported.status == 404
            with pytest.raises(aiohttp.WSServerHandshakeError, match="403"):
                await http.ws_connect(f"{url}/v1/session", headers={"Origin": "http://elsewhere.example"})


async def test_operators_are_sent_to_the_leader(tmp_path: Path) -> None:
    async with hosting(tmp_path) as leader, gateway(leader) as (_, url):
        one = FeedClient(url, "")
        with pytest.raises(
            ConfigError, match=r"is a gateway \(it answers 421\): give the address of its leader"
        ):
            async for _ in one.frames():
                pass
        with pytest.raises(
            EdgeflockError, match=f"a gateway has no /v1/history: ask its leader, {leader.url}"
        ):
            await one.history()
        with pytest.raises(EdgeflockError, match="a gateway has no /v1/rollback"):
            await one.roll_back(0)


async def test_a_browser_at_a_gateway_is_told_where_to_go(tmp_path: Path) -> None:
    async with hosting(tmp_path, "server.browsers=true") as leader, gateway(leader) as (_, url):
        async with aiohttp.ClientSession() as http:
            for path, headers, status in (
                ("/", {}, 404),
                ("/train", {}, 404),
                ("/train", {"Origin": url}, 403),
            ):
                async with http.get(f"{url}{path}", headers=headers) as answer:
                    assert answer.status == status
                    assert f"{leader.url}/train" in await answer.text()

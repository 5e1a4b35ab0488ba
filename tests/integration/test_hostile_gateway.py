"""Whoever has a gateway's token, and says what no gateway says: nothing of it reaches the journal or another
device.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import aiohttp
import numpy as np
import pytest

from benchmarks.updates import record_update
from edgeflock.server.identity.quarantine import FIRST_SECONDS
from edgeflock.server.ledger import verify
from edgeflock.server.sessions.gateways import relayed_device
from edgeflock.server.sessions.records import LONGEST_HELLO
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.identity import NO_PIN, from_base64url, session_message, sign
from edgeflock.shared.protocol import gateway as protocol
from edgeflock.shared.protocol import gateway_coding, wire
from edgeflock.shared.protocol.messages import PROTOCOL, Hello, Pull
from tests.hosting import LAYOUT, Hosted, gateway, hosting
from tests.integration.operator import ADMIN, operating
from tests.integration.test_gateway import RATE, gone, joined, replays

HELLO = wire.encode(Hello(PROTOCOL, "pi", LAYOUT.digest, {}))
KNOCK, ENTER = protocol.AccessRequest(1, "", "/v1/session", b""), protocol.Enter(1, HELLO)
UPDATE = record_update(LAYOUT, np.random.default_rng(0))


def given(sequence: int, octets: bytes | None = None, ingress: int = 0) -> protocol.DeviceUpdate:
    """An update of the first device."""
    update = wire.encode(replace(UPDATE, sequence=sequence)) if octets is None else octets
    return protocol.DeviceUpdate(1, ingress, 0, update)


class Hostile:
    """One end of a gateway's line. Use `hostile`."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket = socket

    async def say(self, *items: gateway_coding.Item) -> None:
        await self.socket.send_bytes(gateway_coding.message(map(gateway_coding.pack, items)))

    async def until(self, kind: type[gateway_coding.Item]) -> gateway_coding.Item:
        """The next item of this kind that the leader says."""
        while True:
            for item in gateway_coding.items((await self.socket.receive()).data, protocol.OF_LEADERS):
                if isinstance(item, kind):
                    return item

    async def closed(self) -> tuple[int, str]:
        """How the leader closes the line."""
        while (message := await self.socket.receive()).type is aiohttp.WSMsgType.BINARY:
            pass
        return message.data, message.extra or ""

    async def let_in(self) -> gateway_coding.Item:
        """A device comes."""
        await self.say(KNOCK, ENTER)
        return await self.until(protocol.Entered)


@asynccontextmanager
async def hostile(leader: Hosted) -> AsyncIterator[Hostile]:
    headers = {"Authorization": f"Bearer {leader.register.create('gateway').text}"}
    async with (
        aiohttp.ClientSession(headers=headers) as http,
        http.ws_connect(f"{leader.url}/v1/gateway?name=x", max_msg_size=0) as socket,
    ):
        yield Hostile(socket)


def events(leader: Hosted, kind: str) -> list[str]:
    return [event.text for event in leader.hub.events.list_from(0)[0] if event.kind == kind]


async def test_an_update_that_does_not_decode_never_reaches_the_journal(tmp_path: Path) -> None:
    """Not one, wherever it comes among others; and who handed it on is named."""
    async with hosting(tmp_path, RATE) as leader, hostile(leader) as line:
        await line.let_in()
        for sequence in range(1, 80):
            forged = wire.encode(replace(UPDATE, sequence=sequence, values=b"\xff"))
            await line.say(given(sequence, forged))
            denied = await line.until(protocol.Denied)
            assert isinstance(denied, protocol.Denied)
            assert denied.code == "wrong-dtype"
            await line.say(given(sequence))
            await line.until(protocol.UpdateTaken)
        assert leader.engine.published.version == 79
        assert leader.registry.devices["pi"].statistics.refused == 79
        assert any(text.startswith("wrong-dtype, through gateway x: ") for text in events(leader, "refused"))
        assert replays(leader)
    found = verify(tmp_path / "journal.sqlite")
    assert (found.damage, found.whole) == ([], 79)


@pytest.mark.parametrize(
    "items",
    [
        [KNOCK],
        [protocol.Enter(1, HELLO)],
        [protocol.AccessRequest(2, "", "/v1/session", b""), protocol.Enter(2, bytes(LONGEST_HELLO + 1))],
        [given(1), given(2)],
        [given(1, octets=wire.encode(replace(UPDATE, values=bytes(1 << 17))))],
        [given(1, octets=wire.encode(Pull(None)))],
        [given(1, octets=b"\x91" * 1000)],
        [given(1, ingress=1 << 62), given(2, ingress=(1 << 63) - 1)],
        [protocol.Spilled(1, 1)],
        [protocol.Shared(1, wire.encode(Pull(None)))],
        [protocol.DeviceTelemetry(1, wire.encode(Pull(None)))],
        [protocol.Ready(1, 0, True)],
        [protocol.UpdateTaken(1, 1, 1, 0, b"", b"")],
    ],
    ids=lambda items: "-".join(type(item).__name__ for item in items),
)
async def test_what_no_gateway_says_ends_its_line(
    tmp_path: Path, items: Sequence[gateway_coding.Item]
) -> None:
    """With one line at both ends; and everybody else goes on."""
    async with hosting(tmp_path, RATE) as leader, hostile(leader) as line:
        await line.let_in()
        await line.say(*items)
        code, reason = await line.closed()
        named = ("malformed", "unexpected-record")
        assert code in (4400, 4405)
        assert reason.startswith(named)
        assert await gone(leader, "pi") == "killed: the connection to its gateway x broke"
        (refused,) = events(leader, "refused")
        assert refused.startswith(tuple(f"{code}, through gateway x: " for code in named))
        async with joined(leader.url, "direct") as direct:
            await direct.step()
        assert leader.hub.tally.updates == leader.engine.published.version
        assert replays(leader)


async def test_the_bytes_that_one_gateway_counts_send_no_other_one_away(tmp_path: Path) -> None:
    """All that there is room for."""
    async with hosting(tmp_path, RATE) as leader, gateway(leader) as (_, url), hostile(leader) as line:
        await line.let_in()
        await line.say(given(1, ingress=1 << 62))
        await line.until(protocol.UpdateTaken)
        async with joined(url, "honest") as honest:
            await honest.step()
            await honest.step()
        assert events(leader, "refused") == []
        assert leader.engine.published.version == 3


async def test_no_message_is_longer_than_one_record_of_a_device(tmp_path: Path) -> None:
    async with hosting(tmp_path, RATE) as leader, hostile(leader) as line:
        await line.let_in()
        await line.socket.send_bytes(bytes(gateway_coding.LONGEST + 100))
        assert (await line.closed())[0] == 1009


async def test_a_gateway_has_no_more_sessions_than_there_can_be(tmp_path: Path) -> None:
    async with hosting(tmp_path, RATE, "limits.devices=3", "limits.unauthenticated=2") as leader:
        async with hostile(leader) as line:
            for ticket in range(1, 6):
                await line.say(KNOCK._replace(ticket=ticket))
                await line.until(protocol.AccessGranted)
            await line.say(KNOCK._replace(ticket=6))
            denied = await line.until(protocol.Denied)
            assert isinstance(denied, protocol.Denied)
            assert (denied.ticket, denied.code) == (6, "too-many-devices")
            await line.say(protocol.SessionEnded(3, "", 0, 0), KNOCK._replace(ticket=6))
            await line.until(protocol.AccessGranted)


async def test_a_device_that_is_dropped_is_out_whatever_its_gateway_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relayed_device, "_LEAVE_SECONDS", 0.05)
    async with (
        hosting(tmp_path, RATE, admin_token=ADMIN) as leader,
        operating(leader.port) as operator,
        hostile(leader) as line,
    ):
        await line.let_in()
        await operator.post("/v1/devices/pi/drop", {"because": "no"})
        await line.until(protocol.End)
        for _ in range(2):
            await line.say(given(1))
            denied = await line.until(protocol.Denied)
            assert isinstance(denied, protocol.Denied)
            assert denied.code == "dropped"
            assert await gone(leader, "pi") == "killed: its gateway x did not end its session in 0.05 s"
        assert leader.engine.published.version == 0


async def test_no_gateway_keeps_a_device_that_has_left_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relayed_device, "_LEAVE_SECONDS", 0.05)
    async with hosting(tmp_path, RATE) as leader, hostile(leader) as line:
        entered = await line.let_in()
        assert isinstance(entered, protocol.Entered)
        await line.say(given(1))
        await line.until(protocol.UpdateTaken)
        async with joined(leader.url, "pi", secret=entered.secret) as pi:
            await pi.step()
            await line.say(given(3))
            denied = await line.until(protocol.Denied)
            assert isinstance(denied, protocol.Denied)
            assert denied.code == "superseded"
            await line.say(
                protocol.DeviceRefused(1, "quarantined", "it is mine"), protocol.SessionEnded(1, "", 9, 9)
            )
            await pi.step()
            assert leader.registry.devices["pi"].connection.is_connected
        assert leader.engine.published.version == 3
        assert replays(leader)


async def test_blame_puts_a_device_out_once(tmp_path: Path) -> None:
    async with hosting(tmp_path, "limits.refusals=2", closed=True) as leader, hostile(leader) as line:
        pi = leader.enrol("pi")
        await line.say(KNOCK._replace(bearer=pi.credential))
        known = await line.until(protocol.AccessGranted)
        assert isinstance(known, protocol.AccessGranted)
        proof = sign(pi.key, session_message(from_base64url(known.challenge), pi.realm, NO_PIN, "pi"))
        await line.say(protocol.Enter(1, wire.encode(Hello(PROTOCOL, "pi", LAYOUT.digest, {}, proof=proof))))
        await line.until(protocol.Entered)
        await line.say(*[protocol.DeviceRefused(1, "malformed", "it says so")] * 100)
        await line.until(protocol.End)
        assert leader.register.quarantines["pi"].seconds == FIRST_SECONDS
        await line.say(
            *[protocol.DeviceRefused(1, "malformed", "it says so")] * 100, protocol.SessionEnded(1, "", 0, 0)
        )
        await gone(leader, "pi")
        assert leader.register.quarantines["pi"].seconds == FIRST_SECONDS


async def test_what_a_gateway_says_of_a_device_is_shown_for_what_it_is(tmp_path: Path) -> None:
    async with hosting(tmp_path, RATE) as leader, hostile(leader) as line:
        await line.let_in()
        await line.say(
            protocol.DeviceRefused(1, "non-finite", "\x1b[2J" * 1000),
            protocol.SessionEnded(1, "\x1b[2J" + "a" * 8000, 0, 0),
        )
        why = await gone(leader, "pi")
        assert why.startswith("\\x1b[2Jaaa")
        assert len(why) < 320
        assert events(leader, "refused")[0].startswith("non-finite, through gateway x: \\x1b[2J\\x1b[2J")


async def test_a_paused_device_is_not_let_go_on(tmp_path: Path) -> None:
    """One update may have been under way; for its answer a device waits."""
    async with (
        hosting(tmp_path, RATE, admin_token=ADMIN) as leader,
        operating(leader.port) as operator,
        hostile(leader) as line,
    ):
        await line.let_in()
        for sequence in (1, 2):
            await line.say(given(sequence))
            assert await line.until(protocol.UpdateTaken) is not None
            if sequence == 1:
                await operator.post("/v1/devices/pi/pause", {"because": "hot"})
                assert await line.until(protocol.Paused) == protocol.Paused(1, "hot")
        await line.say(given(3))
        assert (await line.closed())[0] == 4400
        assert leader.engine.published.version == 2


async def test_nonsense_harms_nobody(tmp_path: Path) -> None:
    async with hosting(tmp_path, RATE) as leader, joined(leader.url, "pi") as pi:
        unknown = gateway_coding.message([b"\x92\xcc\xff\x00"])
        for nonsense in (b"", b"\x91\x01", b"\x91\x92\x03\x05", unknown, b"\xc1"):
            async with hostile(leader) as line:
                await line.until(protocol.Sync)
                await line.socket.send_bytes(nonsense)
                assert (await line.closed())[0] == 4400
        async with hostile(leader) as line:
            await line.until(protocol.Sync)
            await line.say(protocol.DeviceUpdate(1, 0, 0, b"\x91\x05"))  # of a device that is not its own
            await pi.step()
            await line.until(protocol.Change)
        assert leader.engine.published.version == 1


async def test_a_gateway_that_is_sent_away_says_why_and_comes_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    async with hosting(tmp_path, RATE) as leader, gateway(leader) as (one, url), joined(url, "pi") as pi:
        await pi.step()
        one.upstream.send(protocol.Spilled(1, 1))
        while "sends this gateway away" not in caplog.text:
            await asyncio.sleep(0.01)
        assert "it sends this gateway away: malformed: a gateway has lost more samples" in caplog.text
        await pi.step()
        assert leader.engine.published.version == 2


async def test_a_gateway_whose_token_is_revoked_is_out_at_once(tmp_path: Path) -> None:
    async with hosting(tmp_path, RATE, closed=True) as leader, gateway(leader) as (one, url):
        async with joined(url, "pi", identity=replace(leader.enrol("pi"), server=url)) as pi:
            await pi.step()
            (token,) = (one for one in leader.register.tokens.values() if one.role == "gateway")
            leader.register.delete(token.id)
            assert await gone(leader, "pi") == "killed: the connection to its gateway gateway broke"
            assert any("was revoked" in text for text in events(leader, "left"))
            with pytest.raises(ConfigError, match="does not know this token.*token create --role gateway"):
                await one.serve_until(asyncio.Event())

"""A device that shows its credential in its first record, as a browser has to. Over plain sockets."""

from contextlib import AsyncExitStack, closing
from pathlib import Path

import pytest

from edgeflock.client.identity import ClientIdentity
from edgeflock.server.identity import Register, Role
from edgeflock.shared.identity import Token, digest_of
from tests.hosting import Hosted, gateway, hosting
from tests.integration.foreign_client import (
    CHALLENGE,
    CREDENTIAL,
    HELLO,
    IN_FIRST_RECORD,
    MODEL,
    PULL,
    REFUSAL,
    TEXT,
    WELCOME,
    Device,
    connected,
    frame,
    pack,
    shown,
    signature,
    words_of_session,
)
from tests.integration.operator import ADMIN
from tests.integration.scene import hello, refused
from tests.integration.test_connection_limits import ended


def proof(device: ClientIdentity, challenge: bytes) -> list[object]:
    """Its Hello, with the proof of its key."""
    signed = signature(device.key, words_of_session(challenge, device.realm, device.name))
    return [HELLO, 2, device.name, b"", {}, False, b"", "", signed]


async def serves(hosted: Hosted, device: ClientIdentity) -> None:
    """A device that shows its credential in its first record is served."""
    async with shown(hosted.port, device.credential) as (socket, challenge):
        assert challenge[0] == CHALLENGE
        assert len(challenge) == 2, "it need not rotate"
        assert (await socket.ask(proof(device, challenge[1])))[0] == WELCOME
        assert (await socket.ask([PULL, None]))[0] == MODEL


async def stranger(opened: AsyncExitStack, port: int, *headers: str) -> Device:
    """A connection that has its 101 and has shown nothing yet."""
    device = await opened.enter_async_context(connected(port))
    assert (await device.upgrade(None, IN_FIRST_RECORD, *headers))[0] == 101
    assert device.challenge == b"", "nobody has asked for one"
    return device


async def test_a_device_is_who_its_first_record_says(tmp_path: Path) -> None:
    async with hosting(tmp_path, closed=True) as hosted:
        pi, other = hosted.enrol("pi"), hosted.enrol("other")
        await serves(hosted, pi)
        async with shown(hosted.port, pi.credential) as (device, challenge):
            assert (await device.ask(proof(other, challenge[1])))[:2] == [REFUSAL, "unauthorized"]
            assert await device.closed() == (4401, "unauthorized")
        async with shown(hosted.port, pi.credential) as (device, challenge):
            assert (await device.ask([HELLO, 2, "pi", b"", {}]))[:2] == [REFUSAL, "unauthorized"]
        assert challenge[1] not in (bytes(32), b""), "each session has its own"


@pytest.mark.parametrize("role", ["device", "viewer", "admin", "gateway"])
async def test_no_token_opens_a_session(role: Role, tmp_path: Path) -> None:
    """A token of the role device lets a device join, and nothing else."""
    async with hosting(tmp_path, closed=True) as hosted:
        pi = hosted.enrol("pi")
        for secret in (hosted.register.create(role).text, Token.new().text, "", "x" * 700):
            async with shown(hosted.port, secret) as (device, answer):
                assert answer[:2] == [REFUSAL, "unauthorized"]
                assert await device.closed() == (4401, "unauthorized")
        await serves(hosted, pi)


async def test_a_revoked_credential_opens_no_session_and_ends_one(tmp_path: Path) -> None:
    async with hosting(tmp_path, closed=True) as hosted, AsyncExitStack() as opened:
        pi = hosted.enrol("pi")
        device, challenge = await opened.enter_async_context(shown(hosted.port, pi.credential))
        assert (await device.ask(proof(pi, challenge[1])))[0] == WELCOME
        session = hosted.registry.devices["pi"].connection.session
        assert session is not None
        assert session.credential == digest_of(pi.credential)
        late, _ = await opened.enter_async_context(shown(hosted.port, pi.credential))
        with closing(Register(tmp_path)) as command:
            command.revoke("pi")
        await refused(device, "unauthorized")
        assert (await late.ask(proof(pi, challenge[1])))[:2] == [REFUSAL, "unauthorized"]
        async with shown(hosted.port, pi.credential) as (_, answer):
            assert answer[:2] == [REFUSAL, "unauthorized"]


async def test_an_operator_has_a_device_rotate(tmp_path: Path) -> None:
    async with hosting(tmp_path, closed=True) as hosted:
        pi = hosted.enrol("pi")
        hosted.register.rotate("pi")
        async with shown(hosted.port, pi.credential) as (_, challenge):
            assert (challenge[0], challenge[2]) == (CHALLENGE, True)


async def test_silence_ends(tmp_path: Path) -> None:
    """Before the Credential, behind it, and in the middle of it."""
    async with (
        hosting(tmp_path, "limits.hello_seconds=0.5", closed=True) as hosted,
        AsyncExitStack() as opened,
    ):
        pi = hosted.enrol("pi")
        silent = await stranger(opened, hosted.port)
        halting = await stranger(opened, hosted.port)
        halting.writer.write(frame(pack([CREDENTIAL, pi.credential]))[:20])
        mute, _ = await opened.enter_async_context(shown(hosted.port, pi.credential))
        for device in (silent, halting, mute):
            await refused(device, "unexpected-record")


@pytest.mark.parametrize(
    ("octets", "code"),
    [
        (frame(b"\xc1" * 40), "malformed"),
        (frame(b""), "malformed"),
        (frame(b"secret", TEXT), "malformed"),
        (frame(pack([CREDENTIAL, 7])), "malformed"),
        (frame(pack([CREDENTIAL, b"efd1."])), "malformed"),
        (frame(pack([CREDENTIAL])), "malformed"),
        (frame(pack([CREDENTIAL, "x" * 801])), "malformed"),
        (frame(hello()), "unexpected-record"),
        (frame(pack([PULL, None])), "unexpected-record"),
        (frame(pack([99, None])), "unknown-record"),
        (frame(bytes(5000))[:10], "frame-too-large"),
    ],
    ids=[
        "no msgpack", "nothing", "text", "number", "bytes", "no field", "a long text", "a Hello", "a Pull",
        "an unknown record", "an announced length",
    ],
)  # fmt: skip
async def test_what_is_no_credential_is_refused(octets: bytes, code: str, tmp_path: Path) -> None:
    async with hosting(tmp_path, closed=True) as hosted, AsyncExitStack() as opened:
        pi = hosted.enrol("pi")
        device = await stranger(opened, hosted.port)
        device.writer.write(octets)
        await refused(device, code)
        assert hosted.connection_limits.held_bytes == 0
        await serves(hosted, pi)


async def test_a_credential_is_shown_once(tmp_path: Path) -> None:
    async with hosting(tmp_path, closed=True) as hosted:
        pi = hosted.enrol("pi")
        async with shown(hosted.port, pi.credential) as (device, _):
            assert (await device.ask([CREDENTIAL, pi.credential]))[:2] == [REFUSAL, "unexpected-record"]


async def test_many_that_show_nothing_keep_nobody_out(tmp_path: Path) -> None:
    """The oldest goes when one too many comes, in the protocol's words. Who is known stays."""
    async with (
        hosting(tmp_path, "limits.unauthenticated=20", closed=True) as hosted,
        AsyncExitStack() as opened,
    ):
        pi, known = hosted.enrol("pi"), hosted.enrol("known")
        device, challenge = await opened.enter_async_context(shown(hosted.port, known.credential))
        strangers = [await stranger(opened, hosted.port) for _ in range(60)]
        for oldest in strangers[:40]:
            await refused(oldest, "unavailable")
        assert (await device.ask(proof(known, challenge[1])))[0] == WELCOME
        await serves(hosted, pi)


async def test_without_the_subprotocol_a_request_shows_its_credential(tmp_path: Path) -> None:
    async with hosting(tmp_path, closed=True) as hosted:
        pi = hosted.enrol("pi")
        for headers in ((), ("Sec-WebSocket-Protocol: chat",)):
            async with connected(hosted.port) as device:
                assert (await device.upgrade(None, *headers))[0] == 401
        async with connected(hosted.port) as device:  # with both, the header counts
            assert (await device.upgrade("no credential", IN_FIRST_RECORD))[0] == 401
        for route in ("GET /v1/start", "GET /v1/gateway", "GET /v1/feed"):
            async with connected(hosted.port) as device:
                device.writer.write(
                    f"{route} HTTP/1.1\r\nHost: a\r\n{IN_FIRST_RECORD}\r\nConnection: close\r\n\r\n".encode()
                )
                assert (await ended(device)).startswith(b"HTTP/1.1 401 ")
        await serves(hosted, pi)


async def test_an_open_run_takes_an_unknown_credential_without_a_proof(tmp_path: Path) -> None:
    async with hosting(tmp_path) as hosted:
        await serves(hosted, hosted.enrol("pi"))
        async with shown(hosted.port, "unknown") as (device, challenge):
            assert challenge == [CHALLENGE, b""]
            assert (await device.ask([HELLO, 2, "anybody", b"", {}]))[0] == WELCOME


async def test_only_a_page_of_the_servers_own_may_show_one(tmp_path: Path) -> None:
    """A login that the browser adds neither helps nor harms."""
    async with hosting(tmp_path, closed=True, admin_token=ADMIN) as hosted, AsyncExitStack() as opened:
        pi = hosted.enrol("pi")
        cookie = "Cookie: edgeflock-5f3c0ad1e2b49687=guessed"
        for origin, wanted in (("http://evil.example", 403), ("http://127.0.0.1", 101)):
            device = await opened.enter_async_context(connected(hosted.port))
            device.host = "127.0.0.1"
            assert (await device.upgrade(None, IN_FIRST_RECORD, cookie, f"Origin: {origin}"))[0] == wanted
        challenge = await device.ask([CREDENTIAL, pi.credential])
        assert (await device.ask(proof(pi, challenge[1])))[0] == WELCOME


async def test_a_gateway_takes_the_header_alone(tmp_path: Path) -> None:
    async with hosting(tmp_path, closed=True) as hosted, gateway(hosted) as (_, url):
        async with connected(int(url.rpartition(":")[2])) as device:
            assert (await device.upgrade(None, IN_FIRST_RECORD))[0] == 401

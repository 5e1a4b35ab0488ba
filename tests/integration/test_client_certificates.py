"""TLS in which both ends show a certificate, over real sockets."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import replace
from pathlib import Path
from random import Random

import aiohttp
import pytest

from edgeflock.client.identity import ClientIdentity, load_identity, save_identity
from edgeflock.client.transport import Link, credentials
from edgeflock.server.gateway import Gateway
from edgeflock.server.hosting.run import open_run
from edgeflock.server.identity import Authority, Register
from edgeflock.shared.errors import ConfigError, EdgeflockError, Refused, Unauthorized
from edgeflock.shared.identity import public_of
from edgeflock.shared.protocol import gateway as protocol
from edgeflock.shared.protocol import gateway_coding
from edgeflock.shared.settings.config import parse
from tests.certificates import certificate
from tests.hosting import Hosted, gateway, hosting
from tests.integration.test_reconnect import link, update


def of(hosted: Hosted, identity: ClientIdentity) -> Link:
    return Link(hosted.url, identity, link(0, identity.name).conversation.hello, Random(0))


@asynccontextmanager
async def demanding(directory: Path, who: str) -> AsyncIterator[Hosted]:
    settings = f"server.client_certificates={who}"
    async with hosting(directory, settings, closed=True, with_tls=True, certificates=True) as hosted:
        yield hosted


async def joined(hosted: Hosted, name: str) -> ClientIdentity:
    return await credentials.join(hosted.url, hosted.register.create("device").text, name)


@asynccontextmanager
async def of_both(
    directory: Path, who: str, shown: ClientIdentity | None = None
) -> AsyncIterator[tuple[Hosted, Gateway, str]]:
    """A leader, its gateway, and the URL of that."""
    async with demanding(directory, who) as leader, gateway(leader, tls=directory, shown=shown) as (one, url):
        yield leader, one, url


def at(url: str, identity: ClientIdentity) -> Link:
    return Link(url, replace(identity, server=url), link(0, identity.name).conversation.hello, Random(0))


async def test_a_gateway_demands_what_its_leader_does(tmp_path: Path) -> None:
    async with of_both(tmp_path, "devices") as (hosted, _, url):
        pi = await credentials.join(url, hosted.register.create("device").text, "pi")
        jetson = await joined(hosted, "jetson")
        async with at(url, pi) as device:
            await device.join()
            assert (await device.push(update(1, 0))).version == 1
        for stolen in (
            replace(pi, certificate=""),
            replace(jetson, name="pi", credential=pi.credential),
        ):
            async with at(url, stolen) as thief:
                with pytest.raises(ConfigError, match="403"):
                    await thief.join()
        port = int(url.rpartition(":")[2])
        assert (await answer(port)).startswith(b"HTTP/1.1 200")
        assert await answer(port, certificate(tmp_path / "another.pem")) == b""
        hosted.register.revoke("pi")
        async with at(url, pi) as device:
            with pytest.raises(Unauthorized):
                await device.join()
        # What a revoked device has is no certificate of another one's, either.
        async with at(url, replace(pi, name="jetson", credential=jetson.credential)) as thief:
            with pytest.raises(ConfigError, match="403"):
                await thief.join()


async def test_a_gateway_that_makes_certificates_up_is_not_believed(tmp_path: Path) -> None:
    """What a leader lets in is signed by its own authority, whatever a gateway says."""
    other = tmp_path / "other"
    other.mkdir()
    async with demanding(tmp_path, "devices") as hosted:
        pi = await joined(hosted, "pi")
        good = ssl.PEM_cert_to_DER_cert(pi.certificate)
        forged = ssl.PEM_cert_to_DER_cert(Authority(other).certificate(public_of(pi.key)))
        token = hosted.register.create("gateway").text
        line = f"{hosted.url}/v1/gateway?name=x"
        headers = {"Authorization": f"Bearer {token}"}
        async with (
            aiohttp.ClientSession() as http,
            http.ws_connect(line, headers=headers, ssl=False, max_msg_size=0) as socket,
        ):
            await socket.receive()
            answers: list[gateway_coding.Item] = []
            for ticket, shown in enumerate((good, forged, b"", b"\x30\x03"), 1):
                knock = protocol.AccessRequest(ticket, pi.credential, "/v1/session", shown)
                await socket.send_bytes(gateway_coding.message([gateway_coding.pack(knock)]))
                answers += gateway_coding.items((await socket.receive()).data, protocol.OF_LEADERS)
            assert isinstance(answers[0], protocol.AccessGranted)
            assert [one.code for one in answers[1:] if isinstance(one, protocol.Denied)] == ["forbidden"] * 3


async def test_nobody_gets_through_a_gateways_handshake_without_one(tmp_path: Path) -> None:
    async with demanding(tmp_path, "devices") as hosted:
        pi, own = await joined(hosted, "pi"), await joined(hosted, "gateway")
    async with of_both(tmp_path, "everybody", own) as (hosted, one, url):
        port = int(url.rpartition(":")[2])
        assert await answer(port) == b""
        async with at(url, pi) as device:
            await device.join()
        # Who was there before the gateway knew is asked again with its next request.
        tls = one._tls
        assert tls is not None
        tls.verify_mode = ssl.CERT_NONE
        assert (await answer(port)).startswith(b"HTTP/1.1 403")


async def test_a_gateway_without_tls_cannot_demand_any(tmp_path: Path) -> None:
    async with demanding(tmp_path, "devices") as leader:
        with pytest.raises(ConfigError, match="which this gateway does not speak"):
            async with gateway(leader):
                pass


async def answer(port: int, shown: Path | None = None) -> bytes:
    """The beginning of what a server says to who shows this certificate; empty if it hangs up."""
    tls = ssl.create_default_context()
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    if shown is not None:
        tls.load_cert_chain(shown)
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
    try:
        writer.write(b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n")
        return await reader.read(15)
    except OSError:  # of TLS 1.3 the client's end has come before the server has looked
        return b""
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


async def test_a_device_shows_what_it_got_when_it_joined(tmp_path: Path) -> None:
    async with demanding(tmp_path, "devices") as hosted:
        pi, jetson = await joined(hosted, "pi"), await joined(hosted, "jetson")
        save_identity(pi, tmp_path / "identity.json")
        assert load_identity(tmp_path / "identity.json") == pi
        async with of(hosted, pi) as device:
            await device.join()
            assert (await device.push(update(1, 0))).version == 1
        for stolen in (
            replace(pi, certificate=""),
            replace(jetson, name="pi", credential=pi.credential),
        ):
            async with of(hosted, stolen) as thief:
                with pytest.raises(ConfigError, match="403"):
                    await thief.join()
        assert (await answer(hosted.port)).startswith(b"HTTP/1.1 200")
        assert await answer(hosted.port, certificate(tmp_path / "another.pem")) == b""
        hosted.register.revoke("pi")
        async with of(hosted, pi) as device:
            with pytest.raises(Unauthorized):
                await device.join()


async def test_nobody_gets_through_the_handshake_without_one(tmp_path: Path) -> None:
    async with demanding(tmp_path, "devices") as hosted:
        pi = await joined(hosted, "pi")
    async with demanding(tmp_path, "everybody") as hosted:
        with pytest.raises(EdgeflockError, match="no answer"):
            await joined(hosted, "jetson")
        assert await answer(hosted.port) == b""
        async with Link(
            hosted.url, replace(pi, server=hosted.url), link(0).conversation.hello, Random(0)
        ) as device:
            await device.join()


async def test_another_key_comes_with_another_certificate(tmp_path: Path) -> None:
    async with demanding(tmp_path, "devices") as hosted:
        reported: list[ClientIdentity] = []
        first = await joined(hosted, "pi")
        async with Link(
            hosted.url, first, link(0).conversation.hello, Random(0), on_renewed=reported.append
        ) as device:
            await device.join()
            with closing(Register(tmp_path)) as command:
                command.rotate("pi")
            while not reported:
                await device.pull(None)
                await asyncio.sleep(0.01)
            await device.join()
        assert reported[0].certificate not in ("", first.certificate)
        async with of(hosted, reported[0]) as device:
            await device.join()
        async with of(hosted, replace(reported[0], certificate=first.certificate, key=first.key)) as device:
            with pytest.raises((Refused, ConfigError)):
                await device.join()


def test_without_tls_nobody_can_show_one(tmp_path: Path) -> None:
    settings = [f"server.directory={tmp_path}", "model.data=", "server.client_certificates=devices"]
    with pytest.raises(ConfigError, match="needs TLS"), open_run(parse(overrides=settings)):
        pass
    with open_run(parse(overrides=[*settings, "server.host=0.0.0.0"])) as opened:
        assert opened.authority is not None

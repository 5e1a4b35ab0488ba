"""TLS in which both ends show a certificate, over real sockets."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from edgeflock.client import joining
from edgeflock.client.identity import Identity, keep, kept
from edgeflock.client.transport import Link
from edgeflock.server.hosting import open_run
from edgeflock.server.identity import Register
from edgeflock.shared.errors import ConfigError, EdgeflockError, Refused, Unauthorized
from edgeflock.shared.settings.config import parse
from tests.certificates import certificate
from tests.hosting import Hosted, hosting
from tests.integration.test_reconnect import link, update


def of(hosted: Hosted, identity: Identity) -> Link:
    return Link(hosted.url, identity, link(0, identity.name)._hello, Random(0))


@asynccontextmanager
async def demanding(directory: Path, who: str) -> AsyncIterator[Hosted]:
    settings = f"run.client_certificates={who}"
    async with hosting(directory, settings, closed=True, with_tls=True, certificates=True) as hosted:
        yield hosted


async def joined(hosted: Hosted, name: str) -> Identity:
    return await joining.join(hosted.url, hosted.register.create("device").text, name)


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
        keep(pi, tmp_path / "identity.json")
        assert kept(tmp_path / "identity.json") == pi
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
        async with Link(hosted.url, replace(pi, server=hosted.url), link(0)._hello, Random(0)) as device:
            await device.join()


async def test_another_key_comes_with_another_certificate(tmp_path: Path) -> None:
    async with demanding(tmp_path, "devices") as hosted:
        told: list[Identity] = []
        first = await joined(hosted, "pi")
        async with Link(hosted.url, first, link(0)._hello, Random(0), renewed=told.append) as device:
            await device.join()
            with closing(Register(tmp_path)) as command:
                command.rotate("pi")
            while not told:
                await device.pull(None)
                await asyncio.sleep(0.01)
            await device.join()
        assert told[0].certificate not in ("", first.certificate)
        async with of(hosted, told[0]) as device:
            await device.join()
        async with of(hosted, replace(told[0], certificate=first.certificate, key=first.key)) as device:
            with pytest.raises((Refused, ConfigError)):
                await device.join()


def test_without_tls_nobody_can_show_one(tmp_path: Path) -> None:
    settings = [f"run.directory={tmp_path}", "model.data=", "run.client_certificates=devices"]
    with pytest.raises(ConfigError, match="needs TLS"), open_run(parse(overrides=settings)):
        pass
    with open_run(parse(overrides=[*settings, "run.host=0.0.0.0"])) as opened:
        assert opened.authority is not None

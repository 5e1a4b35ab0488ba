"""The server behind nginx with a certificate of its own, configured as docs/operations.md says."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import aiohttp
import pytest

from edgeflock.client.transport import Link, credentials
from edgeflock.server.web.attempts import ATTEMPTS
from edgeflock.tui.sources import FeedClient
from tests.certificates import certificate
from tests.hosting import hosting
from tests.integration.operator import ADMIN
from tests.integration.test_reconnect import link, update
from tests.ports import lasting

OPERATIONS = Path(__file__).parents[2] / "docs" / "operations.md"

pytestmark = pytest.mark.skipif(shutil.which("nginx") is None, reason="nginx is not installed")


def location(port: int) -> str:
    """The block in the document, for a server at this port."""
    text = OPERATIONS.read_text()
    start = text.index("    location / {")
    block = text[start : text.index("    }\n", start) + 6]
    assert "127.0.0.1:8470" in block
    return block.replace("127.0.0.1:8470", f"127.0.0.1:{port}")


@asynccontextmanager
async def proxied(folder: Path, pem: Path, port: int) -> AsyncIterator[str]:
    """The URL of an nginx in front of the server at `port`."""
    own = lasting()
    folder.mkdir()
    temporary = "\n".join(
        f"{kind}_temp_path {folder};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (folder / "nginx.conf").write_text(
        f"daemon off; pid {folder}/pid; error_log stderr; worker_processes 1; events {{}}\n"
        f"http {{ access_log off; {temporary}\n"
        f"server {{ listen 127.0.0.1:{own} ssl; ssl_certificate {pem}; ssl_certificate_key {pem};\n"
        f"{location(port)} }} }}\n"
    )
    nginx = await asyncio.create_subprocess_exec(
        "nginx", "-e", "stderr", "-c", folder / "nginx.conf", stderr=asyncio.subprocess.DEVNULL
    )
    try:
        async with asyncio.timeout(60):
            while True:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", own)
                    break
                except ConnectionRefusedError:
                    await asyncio.sleep(0.05)
        writer.close()
        yield f"https://127.0.0.1:{own}"
    finally:
        nginx.terminate()
        await nginx.wait()


async def test_who_guesses_behind_it_locks_nobody_out(tmp_path: Path) -> None:
    """Everybody comes from its address there, whatever they say of their own."""
    pem = certificate(tmp_path / "proxy.pem")
    async with (
        hosting(tmp_path / "run", closed=True, shown=pem, admin_token=ADMIN) as hosted,
        proxied(tmp_path / "nginx", pem, hosted.port) as url,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=False)) as http,
    ):

        async def log_in(token: str, client: str) -> int:
            headers = {"X-Forwarded-For": client}
            async with http.post(f"{url}/v1/login", json={"token": token}, headers=headers) as answer:
                return answer.status

        reported = [await log_in("guess", f"192.0.2.{number}") for number in range(ATTEMPTS + 1)]
        assert reported == [401] * ATTEMPTS + [429], "an address that a client says it has is not believed"
        assert await log_in(ADMIN, "192.0.2.99") == 200


async def test_devices_join_and_train_and_monitors_watch_through_it(tmp_path: Path) -> None:
    pem = certificate(tmp_path / "proxy.pem")
    async with (
        hosting(tmp_path / "run", closed=True, shown=pem) as hosted,
        proxied(tmp_path / "nginx", pem, hosted.port) as url,
    ):
        identity = await credentials.join(url, hosted.register.create("device").text, "pi")
        async with Link(url, identity, link(0, "pi").conversation.hello, Random(0)) as device:
            await device.join()
            assert (await device.push(update(1, 0))).version == 1
        viewer = hosted.register.create("viewer").text
        row, _ = await FeedClient(url, viewer).device("pi")
        assert row.name == "pi"

"""A device that cannot reach its server: what it tries again, and what it tells somebody instead."""

import logging
from pathlib import Path
from random import Random

import pytest

from edgeflock.client.transport import Link
from edgeflock.shared.errors import ConfigError, Unauthorized
from edgeflock.shared.protocol.messages import PROTOCOL, Hello
from tests.answering import answering
from tests.certificates import certificate, serving_with
from tests.hosting import RUN, hosting
from tests.proxy import proxying


class TriedAgain(Exception):
    """It would wait now, and dial again."""


async def no_patience(seconds: float) -> None:
    raise TriedAgain


def dial(url: str) -> Link:
    return Link(url, None, Hello(PROTOCOL, "pi", b"", {}), Random(0), no_patience, insecure=True)


async def join(url: str) -> None:
    async with dial(url) as link:
        await link.join()


async def test_a_certificate_that_nobody_trusts_is_told_at_once(tmp_path: Path) -> None:
    tls = serving_with(certificate(tmp_path / "pem"))
    async with answering(404, tls) as port:
        with pytest.raises(ConfigError, match=r"127\.0\.0\.1.*\(self-signed certificate\).*SSL_CERT_FILE"):
            await join(f"https://127.0.0.1:{port}")


async def test_tls_to_a_server_without_is_told_at_once() -> None:
    async with answering(404) as port:
        with pytest.raises(ConfigError, match="write http:// instead"):
            await join(f"https://127.0.0.1:{port}")


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (200, "is no Edgeflock server"),
        (301, "is no Edgeflock server"),
        (400, "passes the Upgrade header on"),
        (403, "ask its operator"),
        (404, "is no Edgeflock server"),
        (421, "give the address of its leader"),
    ],
)
async def test_what_a_person_must_mend_is_told_at_once(status: int, words: str) -> None:
    async with answering(status) as port:
        with pytest.raises(ConfigError, match=f"^http://127.0.0.1:{port}.*{words}") as reported:
            await join(f"http://127.0.0.1:{port}")
    assert str(status) in str(reported.value)


async def test_an_unknown_token_is_told_at_once() -> None:
    async with answering(401) as port:
        with pytest.raises(Unauthorized, match="client join"):
            await join(f"http://127.0.0.1:{port}")


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504])
async def test_what_passes_by_itself_is_tried_again(status: int) -> None:
    async with answering(status) as port:
        with pytest.raises(TriedAgain):
            await join(f"http://127.0.0.1:{port}")
        async with dial(f"http://127.0.0.1:{port}") as link:
            with pytest.raises(TriedAgain):
                await link.downloads.graph("step")


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_server_that_is_away_is_tried_again(scheme: str) -> None:
    async with answering(404) as port:
        pass
    with pytest.raises(TriedAgain):
        await join(f"{scheme}://127.0.0.1:{port}")


async def test_a_name_that_is_not_found_is_tried_again() -> None:
    """A router that restarts takes its name service along."""
    with pytest.raises(TriedAgain):
        await join("http://no-such-host.invalid")


async def test_a_device_without_its_server_says_so_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    async with answering(404) as port:
        pass
    waits = list[float]()

    async def five_minutes(seconds: float) -> None:
        waits.append(seconds)
        if sum(waits) > 300:
            raise TriedAgain

    url = f"http://127.0.0.1:{port}"
    async with Link(url, None, Hello(PROTOCOL, "pi", b"", {}), Random(0), five_minutes) as link:
        with pytest.raises(TriedAgain):
            await link.join()
    away = f"nothing listens at {url}: start the server, or correct the address; trying again in "
    assert caplog.messages[0] == f"{away}{waits[0]:.1f} s, and then until it works"
    assert all(text.startswith(away) for text in caplog.messages)
    assert 3 <= len(caplog.messages) <= 6 < len(waits)


async def test_a_device_says_that_it_is_connected_and_that_it_is_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The last line of its log is how its line is; a session that begins anew on purpose is no news."""

    async def at_once(seconds: float) -> None:
        return None

    caplog.set_level(logging.INFO, "edgeflock.client")
    async with hosting(tmp_path / "run") as hosted, proxying(hosted.port) as proxy:
        url = f"http://127.0.0.1:{proxy.port}"
        async with Link(url, None, Hello(PROTOCOL, "pi", b"", {}), Random(0), at_once) as link:
            await link.join()
            await link.introduce({"cores": 4})
            await link.pull(None)
            assert caplog.messages == [f"connected to {url}, run {RUN}"]
            proxy.cut_all()
            await link.pull(None)
    assert caplog.messages[-1].startswith(f"connected again to {url}, run ")
    assert any("trying again in" in text for text in caplog.messages)

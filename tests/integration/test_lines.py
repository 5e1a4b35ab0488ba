"""Lines of a limited rate carry what others do, and every byte of it is counted."""

import asyncio
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from edgeflock.client.identity import ClientIdentity
from edgeflock.client.neighbour import limits
from edgeflock.client.transport import Link
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.protocol.messages import PROTOCOL, Hello
from tests.answering import answering
from tests.certificates import certificate, serving_with
from tests.client.transport.test_link import TriedAgain, no_patience
from tests.hosting import LAYOUT, hosting
from tests.integration.test_reconnect import at_once, update
from tests.proxy import proxying

PLENTY = 1e9


def narrow(url: str, rate: float = PLENTY, identity: ClientIdentity | None = None) -> Link:
    hello = Hello(PROTOCOL, "pi", LAYOUT.digest, {})
    return Link(url, identity, hello, Random(0), at_once, bandwidth=rate)


async def test_what_passes_is_what_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[float] = []

    def spend(self: limits.Allowance, amount: float, now: float) -> float:
        counted.append(amount)
        return 0.0

    monkeypatch.setattr(limits.Allowance, "spend", spend)
    async with hosting(tmp_path) as hosted, proxying(hosted.port) as proxy:
        async with narrow(f"http://127.0.0.1:{proxy.port}", 20e3) as device:
            await device.join()
            model = await device.pull(None)
            assert (await device.push(update(1, 0))).version == 1
        assert len(model.values) == 4 * LAYOUT.size
        # No piece is longer than the rate's twentieth of a second.
        assert max(counted) <= 1000
        while sum(counted) != proxy.upstream + proxy.downstream:
            await asyncio.sleep(0.01)
        assert hosted.registry.devices["pi"].statistics.updates == 1


async def test_tls_goes_within(tmp_path: Path) -> None:
    async with hosting(tmp_path, closed=True, with_tls=True) as hosted:
        async with narrow(hosted.url, identity=hosted.enrol("pi")) as device:
            await device.join()
            assert (await device.push(update(1, 0))).version == 1


async def test_after_a_line_that_dropped_it_goes_on(tmp_path: Path) -> None:
    async with hosting(tmp_path) as hosted, proxying(hosted.port) as proxy:
        async with narrow(f"http://127.0.0.1:{proxy.port}") as device:
            await device.join()
            for sequence in range(1, 4):
                proxy.cut_all()
                assert (await device.push(update(sequence, 0))).version == sequence
            assert device.connections == 4


async def dial(url: str) -> None:
    hello = Hello(PROTOCOL, "pi", b"", {})
    async with Link(url, None, hello, Random(0), no_patience, insecure=True, bandwidth=PLENTY) as link:
        await link.join()


async def test_what_is_wrong_is_said_as_on_other_lines(tmp_path: Path) -> None:
    tls = serving_with(certificate(tmp_path / "pem"))
    async with answering(404, tls) as port:
        with pytest.raises(ConfigError, match=r"127\.0\.0\.1.*\(self-signed certificate\).*SSL_CERT_FILE"):
            await dial(f"https://127.0.0.1:{port}")
    async with answering(404) as port:
        with pytest.raises(ConfigError, match="write http:// instead"):
            await dial(f"https://127.0.0.1:{port}")
        with pytest.raises(ConfigError, match="is no Edgeflock server"):
            await dial(f"http://127.0.0.1:{port}")
    with pytest.raises(TriedAgain):
        await dial(f"http://127.0.0.1:{port}")


async def test_a_rate_that_no_update_fits_through_is_said(tmp_path: Path) -> None:
    async with hosting(tmp_path) as hosted, narrow(hosted.url) as device:
        await device.join()
        device._rate = 1e3
        large = replace(update(1, 0), values=bytes(100_000))
        with pytest.raises(ConfigError, match="client.bandwidth = 1kB/s: .* needs 5kB/s: raise or leave out"):
            await device.push(large)

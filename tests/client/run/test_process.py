"""What a device says of itself at its beginning and its end."""

import asyncio
import logging
from pathlib import Path

import pytest

from edgeflock.client.backends.torch import TorchBackend
from edgeflock.client.run.process import run_client
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.settings.client import ClientSettings
from tests.hosting import hosting


async def test_a_device_that_has_joined_no_server_is_told_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for server in ({}, {"server": "http://127.0.0.1:1"}):
        with pytest.raises(ConfigError, match="known are"):
            await run_client(ClientSettings(data="smoke:signals", **server))
    (reported,) = caplog.messages
    assert reported.startswith(
        f"this device has joined no server (there is no {tmp_path}/edgeflock/identity.json)"
    )
    assert "edgeflock client join URL TOKEN" in reported


async def test_samples_of_which_none_fits_are_a_failure(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A table without label= is a stream whose last column is the label, and text is no number."""
    table = tmp_path / "t.csv"
    table.write_text("a,state\n" + "1.5,idle\n" * 40)
    module = "edgeflock.client.zoo:DigitsCNN"
    layout = TorchBackend(module, "cross_entropy").layout
    async with hosting(tmp_path / "run", f"model.module={module}", layout=layout) as hosted:
        settings = ClientSettings(
            server=hosted.url, name="pi", data=f"csv:{table}", backend="torch", health=False
        )
        with pytest.raises(ConfigError, match=r"none of 40 samples .* csv:PATH\?label=COLUMN"):
            await run_client(settings)
    assert "skipped a record" in caplog.text


async def test_a_device_that_is_stopped_says_how_many_samples_it_shared(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    module = "edgeflock.client.zoo:DigitsCNN"
    layout = TorchBackend(module, "cross_entropy").layout
    overrides = f"model.module={module}", "injection.alpha=0.5", "injection.beta=0.5"
    async with hosting(tmp_path / "run", *overrides, layout=layout) as hosted:
        settings = ClientSettings(
            server=hosted.url, name="pi", data="digits:", backend="torch", health=False, share=True
        )
        running = asyncio.create_task(run_client(settings))
        while hosted.engine.published.version == 0:
            await asyncio.sleep(0.01)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert any(message.startswith("samples: ") for message in caplog.messages)

"""What is opened in a thread."""

import asyncio
import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from edgeflock.devices.library.opening import in_a_thread
from edgeflock.shared.errors import ConfigError


@contextmanager
def refusing() -> Iterator[None]:
    time.sleep(0.1)  # it is waited for
    if time.monotonic():
        raise ConfigError("run.port = 0 cannot be")
    yield


async def test_what_cannot_be_opened_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ConfigError, match="cannot be"):
        async with in_a_thread(refusing()):
            pass
    gc.collect()
    await asyncio.sleep(0)
    assert caplog.text == ""

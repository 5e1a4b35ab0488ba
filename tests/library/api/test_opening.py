"""What is opened in a thread."""

import asyncio
import gc
import time
from contextlib import AbstractContextManager

import pytest

from edgeflock.api.opening import enter_in_thread
from edgeflock.shared.errors import ConfigError


class Refusing(AbstractContextManager[None]):
    def __enter__(self) -> None:
        time.sleep(0.1)  # it is waited for
        raise ConfigError("server.port = 0 cannot be")

    def __exit__(self, *error: object) -> None: ...


async def test_what_cannot_be_opened_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ConfigError, match="cannot be"):
        async with enter_in_thread(Refusing()):
            pass
    gc.collect()
    await asyncio.sleep(0)
    assert caplog.text == ""

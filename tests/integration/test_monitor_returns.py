"""`edgeflock top` comes back by itself, whatever becomes of its server, and says when it cannot."""

import asyncio
import signal
from collections.abc import Callable
from itertools import repeat
from pathlib import Path

import pytest

from edgeflock.tui.sources import feed_client
from edgeflock.tui.sources.feed_client import FeedClient
from edgeflock.tui.sources.live import Live
from tests.integration.server_process import server_process
from tests.integration.test_page_returns import revoke_all, token
from tests.ports import lasting


@pytest.mark.slow
async def test_after_restarts_a_kill_a_hang_and_until_its_token_is_revoked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_client, "_HEARTBEAT", 1.0)
    run, port = tmp_path / "run", lasting()
    live = Live(FeedClient(f"http://127.0.0.1:{port}", token(run)), delays=lambda: repeat(0.1))
    changed = asyncio.Event()

    async def comes(holds: Callable[[], bool]) -> None:
        while not holds():
            changed.clear()
            await changed.wait()

    following = asyncio.create_task(live.run(changed.set))
    for _ in range(3):
        async with server_process(run, port) as server:
            await comes(lambda: live.link.phase == "live")
            server.send_signal(signal.SIGSTOP)
            await comes(lambda: live.link.phase == "waiting")
            assert "no answer in time" in live.link.detail
            server.send_signal(signal.SIGCONT)
            await comes(lambda: live.link.phase == "live")
            server.kill()
        await comes(lambda: live.link.phase == "waiting")
    async with server_process(run, port):
        await comes(lambda: live.link.phase == "live")
    revoke_all(run)
    async with server_process(run, port):
        await comes(lambda: live.link.phase == "refused")
        await following
    assert "does not know this token" in live.link.detail
    assert live.state is not None, "what was known stays"

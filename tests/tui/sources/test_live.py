"""A live server's feed: followed, lost, found again."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing, suppress
from itertools import repeat
from pathlib import Path

import pytest

from edgeflock.shared.protocol.frames import Frame, Mark
from edgeflock.tui.sources.feed_client import FeedClient
from edgeflock.tui.sources.live import Live
from edgeflock.tui.sources.replay import Recorder, Recording
from tests.answering import answering
from tests.certificates import certificate, serving_with
from tests.ports import lasting
from tests.tui.runs import BEGAN, frames
from tests.tui.server import serving

FRAMES: list[Frame] = list(frames(4, 30))


@asynccontextmanager
async def following(live: Live) -> AsyncIterator[Callable[[Callable[[], bool]], Awaitable[None]]]:
    """`live` at work; yields a function that waits until something holds."""
    changed = asyncio.Event()
    task = asyncio.create_task(live.run(changed.set))

    async def until(holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(300):
            while not holds():
                await changed.wait()
                changed.clear()

    try:
        yield until
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_a_snapshot_then_deltas_recorded_as_they_come(tmp_path: Path) -> None:
    async with serving(*FRAMES[:3], token="secret") as server:
        recorder = Recorder.create(tmp_path / "run")
        live = Live(FeedClient(server.url, "secret", 0.5), recorder)
        async with following(live) as until:
            await until(lambda: live.state is not None and live.state.time == BEGAN + 2)
            server.tell(*FRAMES[3:6])
            await until(lambda: live.state is not None and live.state.time == BEGAN + 5)
        assert live.link.phase == "live"
        assert server.asked == ["interval=0.5"]
        recorder.close()
        with closing(Recording.open(tmp_path / "run")) as recording:
            assert live.state == recording.state(5)


async def test_it_connects_again_and_keeps_what_it_saw() -> None:
    async with serving(*FRAMES[:3]) as server:
        live = Live(FeedClient(server.url, ""), delays=lambda: repeat(0.01))
        async with following(live) as until:
            await until(lambda: live.state is not None and live.state.time == BEGAN + 2)
            server.first = FRAMES[:1]
            server.hang_up()
            await until(lambda: live.link.phase == "waiting")
            assert live.state is not None
            assert live.state.time == BEGAN + 2, "what was known is shown on"
            assert "ended the feed" in live.link.detail
            assert live.freshness().retry_seconds is not None
            await until(lambda: live.link.phase == "live" and len(live.states) == 4)
        assert [moment.time for moment in live.state.trend] == [BEGAN, BEGAN + 1, BEGAN + 2, BEGAN]


async def test_curves_begin_with_what_the_server_remembers() -> None:
    async with serving(*FRAMES[:2]) as server:
        server.past = [Mark(BEGAN - 60 + 10 * n, 100 * n, 0, 0, 0.5, 3) for n in range(6)]
        live = Live(FeedClient(server.url, ""))
        async with following(live) as until:
            await until(lambda: live.state is not None and live.state.time == BEGAN + 1)
        assert live.state is not None
        assert [moment.time - BEGAN for moment in live.state.trend] == [-50, -40, -30, -20, -10, 0, 1]
        assert live.state.trend[0].updates_per_s == 10


async def test_a_server_that_comes_later_is_found() -> None:
    port = lasting()
    live = Live(FeedClient(f"127.0.0.1:{port}", ""), delays=lambda: repeat(0.01))
    async with following(live) as until:
        await until(lambda: live.link.phase == "waiting")
        assert live.link.detail.startswith("nothing listens at http:")
        assert live.state is None
        async with serving(*FRAMES[:1], port=port):
            await until(lambda: live.link.phase == "live")


async def test_a_wrong_token_is_the_end() -> None:
    async with serving(*FRAMES[:1], token="secret") as server:
        live = Live(FeedClient(server.url, "wrong"))
        async with asyncio.timeout(300):
            await live.run(lambda: None)
        assert live.link.phase == "refused"
        assert "--token" in live.link.detail


async def test_a_certificate_that_nobody_trusts_is_the_end(tmp_path: Path) -> None:
    tls = serving_with(certificate(tmp_path / "pem"))
    async with answering(503, tls) as port:
        live = Live(FeedClient(f"https://127.0.0.1:{port}", ""))
        async with asyncio.timeout(300):
            await live.run(lambda: None)
        assert live.link.phase == "refused"
        assert "SSL_CERT_FILE" in live.link.detail


@pytest.mark.parametrize(("status", "phase"), [(404, "refused"), (403, "refused"), (503, "waiting")])
async def test_an_answer_that_is_no_feed(status: int, phase: str) -> None:
    """The server's own trouble passes; an address without a feed has none later either."""
    async with answering(status) as port:
        live = Live(FeedClient(f"127.0.0.1:{port}", ""), delays=lambda: repeat(30.0))
        async with following(live) as until:
            await until(lambda: live.link.phase == phase)
        assert str(status) in live.link.detail


@pytest.mark.parametrize("status", [404, 403, 502])
async def test_where_a_run_was_it_is_looked_for_whatever_answers_there(status: int) -> None:
    """As a proxy does, while its server is replaced."""
    port = lasting()
    live = Live(FeedClient(f"127.0.0.1:{port}", ""), delays=lambda: repeat(0.01))
    async with following(live) as until:
        async with serving(*FRAMES[:1], port=port):
            await until(lambda: live.link.phase == "live")
        async with answering(status, port=port):
            await until(lambda: live.link.phase == "waiting" and str(status) in live.link.detail)
        async with serving(*FRAMES[:1], port=port):
            await until(lambda: live.link.phase == "live")


async def test_a_feed_that_begins_with_a_delta_is_no_feed() -> None:
    async with serving(FRAMES[1]) as server:
        live = Live(FeedClient(server.url, ""), delays=lambda: repeat(30.0))
        async with following(live) as until:
            await until(lambda: live.link.phase == "waiting")
            assert "begins with a snapshot" in live.link.detail
            assert live.state is None


async def test_how_old_what_is_shown_is() -> None:
    now = 100.0
    async with serving(FRAMES[0]) as server:
        live = Live(FeedClient(server.url, ""), clock=lambda: now)
        assert live.freshness().age == float("inf")
        async with following(live) as until:
            await until(lambda: live.state is not None)
            now = 107.5
            assert live.freshness().age == 7.5

"""A live server's feed: followed, lost, found again."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path

import pytest

from edgeflock.shared.errors import ConfigError, EdgeflockError
from edgeflock.shared.feed import Frame, Point
from edgeflock.tui.feed_client import FeedClient
from edgeflock.tui.live import Live
from edgeflock.tui.recording import Recorder, Recording
from edgeflock.tui.source import Kept
from edgeflock.tui.state import reduce
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
        recorder = Recorder.at(tmp_path / "run")
        live = Live(FeedClient(server.url, "secret", 0.5), recorder)
        async with following(live) as until:
            await until(lambda: live.state is not None and live.state.time == BEGAN + 2)
            server.tell(*FRAMES[3:6])
            await until(lambda: live.state is not None and live.state.time == BEGAN + 5)
        assert live.link.phase == "live"
        assert server.asked == ["interval=0.5"]
        recorder.close()
        with closing(Recording.at(tmp_path / "run")) as recording:
            assert live.state == recording.state(5)


async def test_it_connects_again_and_keeps_what_it_saw() -> None:
    async with serving(*FRAMES[:3]) as server:
        live = Live(FeedClient(server.url, ""), first_wait=0.01)
        async with following(live) as until:
            await until(lambda: live.state is not None and live.state.time == BEGAN + 2)
            server.first = FRAMES[:1]
            server.hang_up()
            await until(lambda: live.link.phase == "waiting")
            assert live.state is not None
            assert live.state.time == BEGAN + 2, "what was known is shown on"
            assert "ended the feed" in live.link.detail
            assert live.freshness().again_in is not None
            await until(lambda: live.link.phase == "live" and len(live.kept) == 4)
        assert [moment.time for moment in live.state.trend] == [BEGAN, BEGAN + 1, BEGAN + 2, BEGAN]


async def test_a_server_that_comes_later_is_found() -> None:
    async with serving() as gone:
        port = gone.port
    live = Live(FeedClient(f"127.0.0.1:{port}", ""), first_wait=0.01)
    async with following(live) as until:
        await until(lambda: live.link.phase == "waiting")
        assert live.link.detail == "connection refused"
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


async def test_a_feed_that_begins_with_a_delta_is_no_feed() -> None:
    async with serving(FRAMES[1]) as server:
        live = Live(FeedClient(server.url, ""), first_wait=30)
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


async def test_actions_and_their_refusals() -> None:
    async with serving(token="admin") as server:
        client = FeedClient(server.url, "admin")
        await client.pause("pi/1 ü", "too hot")
        await client.resume("pi-1")
        await client.drop("pi-1")
        await client.learning_rate(0.05)
        await client.checkpoint()
        assert server.acts == [
            ("/v1/devices/pi/1 ü/pause", {"because": "too hot"}),
            ("/v1/devices/pi-1/resume", {}),
            ("/v1/devices/pi-1/drop", {}),
            ("/v1/learning_rate", {"value": 0.05}),
            ("/v1/checkpoint", {}),
        ]
        server.refusal = (403, "only an admin may do this")
        with pytest.raises(EdgeflockError, match=r"only an admin may do this \(403\)"):
            await client.checkpoint()
        with pytest.raises(EdgeflockError, match="--token"):
            await FeedClient(server.url, "wrong").checkpoint()
    with pytest.raises(EdgeflockError, match="connection refused"):
        await client.checkpoint()


async def test_the_history_of_a_device() -> None:
    state = reduce(None, FRAMES[0])
    row = state.devices[1]
    async with serving(FRAMES[0]) as server:
        server.history = (row, [Point(BEGAN, 0.5, 3, 900)])
        assert await FeedClient(server.url, "").device(row.name) == (row, (Point(BEGAN, 0.5, 3, 900),))
        with pytest.raises(EdgeflockError, match=r"no such device \(404\)"):
            await FeedClient(server.url, "").device("nobody")


@pytest.mark.parametrize("url", ["ftp://host", "http://", "http://host:port"])
def test_what_is_no_url(url: str) -> None:
    with pytest.raises(ConfigError, match=r"must be a URL such as http://192\.0\.2\.1:8470"):
        FeedClient(url, "")


def test_kept_states_are_bounded_by_number_and_by_rows() -> None:
    made = [reduce(None, FRAMES[0])]
    for frame in FRAMES[1:]:
        made.append(reduce(made[-1], frame))
    few = Kept(most=5)
    for state in made:
        few.add(state)
    assert len(few) == 5
    few.step(-100)
    assert few.shown == made[-5]
    little = Kept(most_rows=12)
    for state in made:
        little.add(state)
    assert len(little) == 3, "of four rows each"


def test_a_frozen_display_stays_while_frames_come() -> None:
    made = [reduce(None, FRAMES[0])]
    for frame in FRAMES[1:]:
        made.append(reduce(made[-1], frame))
    kept = Kept(most=8)
    for state in made[:10]:
        kept.add(state)
    kept.toggle()
    kept.step(-2)
    for state in made[10:]:
        kept.add(state)
        assert kept.shown == made[7]
    assert kept.behind == made[-1].time - made[7].time
    kept.step(1)
    assert kept.shown != made[7]
    kept.toggle()
    assert kept.shown == made[-1]

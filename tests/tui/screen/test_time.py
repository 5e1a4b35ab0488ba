"""A display that stands still, steps back and goes on, of a replay and of a live run."""

from edgeflock.tui.sources.feed_client import FeedClient
from edgeflock.tui.sources.live import Live
from tests.tui.runs import BEGAN, frames
from tests.tui.screen.monitor import asked, frozen, screen, shows, top, until
from tests.tui.server import serving


async def test_a_replay_plays_stops_steps_and_seeks() -> None:
    async with screen(frozen(at="0:60")) as pilot:
        await shows(pilot, "‖ replay 1x 1:00 / 4:00")
        for keys, words in (
            (["left_square_bracket"], "0:59 / 4:00"),
            (["right_square_bracket"] * 2, "1:01 / 4:00"),
            (["right_curly_bracket"], "1:25 / 4:00"),
            (["left_curly_bracket"], "1:01 / 4:00"),
            (["plus", "plus"], "replay 4x"),
            (["minus"], "replay 2x"),
        ):
            await pilot.press(*keys)
            await shows(pilot, words)
        await pilot.press("t")
        await asked(pilot, "since the recording began")
        await pilot.press(*"3:20", "enter")
        await shows(pilot, "3:20 / 4:00")
        await pilot.press("t")
        await asked(pilot, "since the recording began")
        await pilot.press(*"nowhere", "enter")
        await shows(pilot, "must be a time")
        await pilot.press("space")
        await shows(pilot, "▶ replay 2x")


async def test_a_live_display_freezes_and_steps_back_while_frames_come() -> None:
    reported = list(frames(4, 30))
    async with serving(*reported[:5]) as server, screen(Live(FeedClient(server.url, ""))) as pilot:
        view = top(pilot).view
        await until(pilot, lambda: view.state is not None and view.state.time == BEGAN + 4)
        await shows(pilot, "● live")
        await pilot.press("space")
        await shows(pilot, "‖ frozen")
        server.tell(*reported[5:9])
        await shows(pilot, "‖ frozen 4s back")
        assert view.state is not None
        assert view.state.time == BEGAN + 4
        await pilot.press("left_square_bracket", "left_square_bracket")
        await shows(pilot, "frozen 6s back")
        assert view.state.time == BEGAN + 2
        await pilot.press("right_square_bracket")
        await shows(pilot, "frozen 5s back")
        assert view.state.time == BEGAN + 3
        await pilot.press("escape")
        await shows(pilot, "● live")
        assert view.state.time == BEGAN + 8

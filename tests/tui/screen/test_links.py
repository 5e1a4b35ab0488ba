"""What a screen says of its connection: none yet, refused, stalled, lost, found again; several at once."""

from dataclasses import replace
from itertools import repeat

from edgeflock.shared.protocol.frames import Snapshot
from edgeflock.tui.sources.feed_client import FeedClient
from edgeflock.tui.sources.live import Live
from tests.tui.runs import frames
from tests.tui.screen.monitor import screen, shows, top, until
from tests.tui.server import serving


async def test_before_there_is_a_server_the_screen_says_so() -> None:
    async with screen(Live(FeedClient("http://127.0.0.1:1", ""), delays=lambda: repeat(30.0))) as pilot:
        await shows(pilot, "no run to show: nothing listens at http:")
        await shows(pilot, "again in")
        await pilot.press("2", "enter", "s", "r", "down", "3", "up", "4", "x", "n", "1")
        await shows(pilot, "no run to show")


async def test_a_wrong_token_is_told() -> None:
    async with serving(token="right") as server, screen(Live(FeedClient(server.url, "wrong"))) as pilot:
        await shows(pilot, "the server does not know this token, or it has expired")


async def test_a_run_without_devices_says_what_to_do() -> None:
    first = next(frames(1, 0))
    empty = replace(first, devices=(), events=(), overview=replace(first.overview, devices=0, up=0))
    async with serving(empty) as server, screen(Live(FeedClient(server.url, ""))) as pilot:
        await shows(pilot, "no evaluation with accuracy yet")
        await pilot.press("2")
        await shows(pilot, "No device has joined yet.")
        await pilot.press("3")
        await shows(pilot, "nothing has happened yet")


async def test_a_feed_that_stalls_ages_on_the_screen_and_one_that_ends_is_found_again() -> None:
    now = 100.0
    reported = list(frames(4, 10))
    async with serving(*reported[:3]) as server:
        live = Live(FeedClient(server.url, ""), clock=lambda: now, delays=lambda: repeat(0.2))
        async with screen(live) as pilot:
            await shows(pilot, "● live")
            now = 142.0
            await shows(pilot, "▲ stalled · data 42s old")
            server.tell(reported[3])
            await shows(pilot, "● live")
            server.first, server.leaving = [], True
            server.hang_up()
            await shows(pilot, "✕ the server ended the feed")
            await shows(pilot, "data 0s old")
            server.leaving = False
            assert top(pilot).view.state is not None, "what was known stays"
            await until(pilot, lambda: len(server.watchers) == 1)
            server.tell(*reported[:1])
            await shows(pilot, "● live")


async def test_several_servers_are_tabs() -> None:
    first = next(frames(2, 0))
    assert isinstance(first, Snapshot)
    other = replace(first, run=replace(first.run, run="another1"))
    async with serving(next(frames(4, 0))) as one, serving(other) as two:
        live = [Live(FeedClient(server.url, "")) for server in (one, two)]
        async with screen(*live) as pilot:
            await shows(pilot, f" ● 127.0.0.1:{one.port}   ● 127.0.0.1:{two.port}")
            await shows(pilot, "5f3c0ad1")
            await pilot.press("tab")
            await shows(pilot, "another1")
            await pilot.press("2")
            await shows(pilot, "2 devices")
            await pilot.press("shift+tab")
            await shows(pilot, "5f3c0ad1")
            await pilot.click("#servers", offset=(26, 0))
            await shows(pilot, "another1")
            await pilot.click("#servers", offset=(3, 0))
            await shows(pilot, "5f3c0ad1")
            await shows(pilot, "Accuracy")

"""The other pages as somebody at the keys meets them, and the help."""

from dataclasses import replace

import pytest

from edgeflock.shared.protocol.frames import Finding, Frame, Point
from edgeflock.tui.sources.feed_client import FeedClient
from edgeflock.tui.sources.live import Live
from tests.tui.runs import BEGAN, frames, unwell
from tests.tui.screen.monitor import WIDE, lacks, screen, shows, text, top, until
from tests.tui.server import serving


async def test_pages_by_their_numbers() -> None:
    async with screen() as pilot:
        await shows(pilot, "Staleness ─")
        for key, words in (
            ("2", "▲device"),
            ("3", "checkpoint snapshot of"),
            ("4", "[server]"),
            ("5", "nothing is wrong"),
            ("1", "Loss ─"),
        ):
            await pilot.press(key)
            await shows(pilot, words)


async def test_the_x_axis_switches() -> None:
    async with screen() as pilot:
        await shows(pilot, "2m              4m")
        await pilot.press("x")
        await shows(pilot, "4k              8k")
        await pilot.press("x")
        await shows(pilot, "30MB           60MB")
        await pilot.press("x")
        await shows(pilot, "2m              4m")


async def test_the_filter_of_the_log() -> None:
    async with screen() as pilot:
        await pilot.press("3", "slash", *"refused", "enter")
        await shows(pilot, "3 events with 'refused'")
        await pilot.press("escape")
        await shows(pilot, "23 events")


async def test_the_log_scrolls() -> None:
    async with screen() as pilot:
        await pilot.press("3")
        await shows(pilot, "base-expired")
        await pilot.press("home")
        await shows(pilot, "newer below")
        first = text(pilot)
        await pilot.press("pagedown")
        await until(pilot, lambda: text(pilot) != first)
        await pilot.press("end")
        await lacks(pilot, "newer below")
        for key in ("k", "j", "pageup", "pagedown", "up"):
            await pilot.press(key)


async def test_enter_on_an_event_opens_its_device() -> None:
    async with screen() as pilot:
        await pilot.press("3", "slash", *"kind:paused", "enter", "up", "enter")
        await shows(pilot, " pi4-5  ‖ paused")
        await pilot.press("escape")
        await shows(pilot, "events with 'kind:paused'")
        await pilot.press("slash", *["backspace"] * 11, *"snapshot", "enter", "enter")
        await shows(pilot, "this event has no device")


async def test_the_configuration_scrolls_and_marks_what_was_changed() -> None:
    async with screen() as pilot:
        await pilot.press("4")
        await shows(pilot, '● host              "0.0.0.0"')
        await pilot.press("pagedown")
        await shows(pilot, "● select            0.01")
        await pilot.press("pageup", "pageup", "j", "k", "down", "up")
        await shows(pilot, "run 5f3c0ad1e2b49687")


@pytest.mark.slow
async def test_the_device_page_has_the_history_of_the_server_and_goes_on_with_the_feed() -> None:
    reported: list[Frame] = list(frames(14, 61))
    async with (
        serving(*reported[:61]) as server,
        screen(Live(FeedClient(server.url, "")), size=WIDE) as pilot,
    ):
        row = next(row for row in reported[0].devices if row.name == "jetson-1")
        server.history = (row, [Point(BEGAN + n, 2.0 - n / 100, n % 5, 600 * n) for n in range(1, 60)])
        await pilot.press("2")
        await shows(pilot, "▌jetson-1")
        await pilot.press("enter")
        device = top(pilot).view.device
        await until(pilot, lambda: len(device.points) == 59)
        server.tell(reported[61])
        await until(pilot, lambda: len(device.points) == 60)
        assert device.points[-1].loss == next(r.loss for r in reported[61].devices if r.name == "jetson-1")
        server.history = None
        await pilot.press("down")
        await shows(pilot, "no history of jetson-6: no such device")


async def test_a_finding_comes_up_and_goes() -> None:
    first, *later = frames(14, 4)
    disk = Finding("disk", "critical", None, BEGAN, "the disk is nearly full", "make room")
    well, ill, again = (
        replace(frame.overview, findings=found)
        for frame, found in zip(later, ((), (disk,), ()), strict=False)
    )
    async with serving(first) as server, screen(Live(FeedClient(server.url, ""))) as pilot:
        for overview, frame in zip((well, ill, again), later, strict=False):
            await shows(pilot, "Staleness ─")
            server.tell(replace(frame, overview=overview))
            if overview.findings:
                await shows(pilot, "✕ disk the disk is nearly full")
        await lacks(pilot, "nearly full")


async def test_the_cursor_stays_on_its_finding_and_opens_its_device() -> None:
    reported = list(map(unwell, frames(14, 2)))
    async with serving(reported[0]) as server, screen(Live(FeedClient(server.url, ""))) as pilot:
        await shows(pilot, "5 Findings 5")
        await pilot.press("5", "enter")
        await shows(pilot, "this finding has no device")
        await pilot.press("down")
        await until(pilot, lambda: top(pilot).view.pages["findings"].index == 1)  # type: ignore[attr-defined]
        fewer = replace(reported[1].overview, findings=reported[1].overview.findings[1:], more_findings=0)
        server.tell(replace(reported[1], overview=fewer))
        await shows(pilot, "5 Findings 2")
        await pilot.press("enter")
        await shows(pilot, "jetson-1  ● training")
        await pilot.press("escape")
        await shows(pilot, "2 findings, the worst first")
        server.tell(replace(reported[2], overview=replace(reported[2].overview, findings=())))
        await shows(pilot, "nothing is wrong")
        await pilot.press("enter", "down", "up", "end", "home")
        await shows(pilot, "nothing is wrong")


async def test_help_names_every_key_that_does_something_here() -> None:
    async with screen(size=WIDE) as pilot:
        await pilot.press("2", "question_mark")
        await shows(pilot, "any other key closes this")
        shown = text(pilot)
        for about in (
            "Sort by the next column",
            "Open the device",
            "Go to a time",
            "Show only what matches",
        ):
            assert about in shown
        assert "Drop the device" not in shown, "a recording cannot be acted on"
        await pilot.press("z")
        await lacks(pilot, "any other key closes this")


async def test_the_palette_finds_commands() -> None:
    async with screen(size=WIDE) as pilot:
        await pilot.press("ctrl+p")
        await shows(pilot, "Search for commands")
        await pilot.press(*"sort by temp")
        await shows(pilot, "Celsius")
        await pilot.press("enter")
        await shows(pilot, "▼temp")


async def test_q_ends_it() -> None:
    async with screen() as pilot:
        await pilot.press("q")
        await until(pilot, lambda: not pilot.app.is_running)

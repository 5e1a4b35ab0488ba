"""What each role may do to a run, and how it is asked, done and told."""

import pytest
from textual.events import Key
from textual.widgets import Input

from edgeflock.shared.protocol.frames import Role
from edgeflock.tui.sources.feed_client import FeedClient
from edgeflock.tui.sources.live import Live
from tests.tui.runs import frames
from tests.tui.screen.monitor import WIDE, asked, lacks, screen, shows, text, until
from tests.tui.server import Feed, serving


def live_as(role: Role, server: Feed) -> Live:
    server.first = list(frames(14, 60, role=role))
    return Live(FeedClient(server.url, ""))


@pytest.mark.slow
async def test_a_viewer_is_offered_no_action() -> None:
    async with serving() as server, screen(live_as("viewer", server), size=WIDE) as pilot:
        await pilot.press("2")
        await shows(pilot, "viewer")
        await shows(pilot, "jetson-1")
        for key in ("p", "D", "L", "C", "R"):
            await pilot.press(key)
        await pilot.press("question_mark")
        await shows(pilot, "any other key closes this")
        for words in ("Pause or resume it", "Drop the device", "The learning rate", "Checkpoint now"):
            assert words not in text(pilot)
        await pilot.press("z", "colon", *"checkpoint", "enter")
        await shows(pilot, "checkpoint is for admins, and this is a viewer's token")
        assert server.acts == []


@pytest.mark.slow
async def test_an_admin_is_asked_and_then_it_is_done() -> None:
    async with serving() as server, screen(live_as("admin", server), size=WIDE) as pilot:
        await pilot.press("2")
        await shows(pilot, "Pause D Drop L Rate C Save")
        await pilot.press("p")
        await asked(pilot, "Pause jetson-1?")
        await pilot.press(*"hot", "enter")
        await shows(pilot, "jetson-1 is paused")
        await pilot.press("D")
        await asked(pilot, "Drop jetson-1?")
        await pilot.press("n")
        await lacks(pilot, "Drop jetson-1?")
        await pilot.press("D")
        await asked(pilot, "Drop jetson-1?")
        await pilot.press("y")
        await shows(pilot, "jetson-1 is dropped")
        await pilot.press("L")
        await asked(pilot, "It applies from the next update on")
        await pilot.press("home", *["delete"] * 6, *"0.02", "enter")
        await asked(pilot, "applied with 0.02 instead of 0.05")
        await pilot.press("y")
        await shows(pilot, "the learning rate is 0.02")
        await pilot.press("C")
        await asked(pilot, "Checkpoint now?")
        await pilot.press("y")
        await shows(pilot, "a checkpoint is written")
        assert server.acts == [
            ("/v1/devices/jetson-1/pause", {"because": "hot"}),
            ("/v1/devices/jetson-1/drop", {}),
            ("/v1/learning_rate", {"value": 0.02}),
            ("/v1/checkpoint", {}),
        ]


@pytest.mark.slow
async def test_an_admin_goes_back_to_an_earlier_model() -> None:
    async with serving() as server, screen(live_as("admin", server), size=WIDE) as pilot:
        await shows(pilot, "admin")
        await pilot.press("R")
        await asked(pilot, "Roll back to which version?")
        await pilot.press("home", *["delete"] * 6, *"640", "enter")
        await asked(pilot, "Roll back to version 640?")
        await pilot.press("n")
        await lacks(pilot, "Roll back to version 640?")
        assert server.acts == []


@pytest.mark.slow
async def test_what_is_typed_is_asked_and_then_it_is_done() -> None:
    async with serving() as server, screen(live_as("admin", server), size=WIDE) as pilot:
        await shows(pilot, "admin")
        await pilot.press("colon", *"pause pi4-5 too hot", "enter")
        await asked(pilot, "Pause pi4-5?")
        await pilot.press("enter")
        await shows(pilot, "pi4-5 is paused")
        await pilot.press("colon", *"rate 0.02", "enter")
        await asked(pilot, "applied with 0.02 instead of 0.05")
        await pilot.press("y")
        await shows(pilot, "the learning rate is 0.02")
        await pilot.press("colon", *"drop", "enter")
        await shows(pilot, "drop which device?")
        await pilot.press("colon", *"filter state:paused", "enter")
        await shows(pilot, "1 of 14 devices · filter state:paused")
        assert server.acts == [
            ("/v1/devices/pi4-5/pause", {"because": "too hot"}),
            ("/v1/learning_rate", {"value": 0.02}),
        ]


@pytest.mark.slow
async def test_keys_that_arrive_together_with_the_filters_go_to_it() -> None:
    """As a terminal sends what was pasted or typed while the screen was busy: p would pause a device."""
    async with serving() as server, screen(live_as("admin", server), size=WIDE) as pilot:
        await pilot.press("2")
        await shows(pilot, "Pause D Drop")
        for letter in "/pi4/D":
            pilot.app.post_message(Key("slash" if letter == "/" else letter, letter))
        line = pilot.app.query_one("#run-0 #filter", Input)
        await until(pilot, lambda: line.value == "pi4/D" or len(pilot.app.screen_stack) > 1)
        assert len(pilot.app.screen_stack) == 1


@pytest.mark.slow
async def test_a_paused_device_is_resumed_and_nothing_is_done_by_half() -> None:
    async with serving() as server, screen(live_as("admin", server), size=WIDE) as pilot:
        await pilot.press("slash", *"state:paused", "enter", "p")
        await asked(pilot, "Resume pi4-5?")
        await pilot.press("y")
        await shows(pilot, "pi4-5 is resumed")
        await pilot.press("L")
        await asked(pilot, "It applies from the next update on")
        await pilot.press("home", *["delete"] * 6, *"fast", "enter")
        await shows(pilot, "'fast' is not a number")
        await pilot.press("p")
        await asked(pilot, "Resume pi4-5?")
        await pilot.press("escape")
        await lacks(pilot, "Resume pi4-5?")
        assert server.acts == [("/v1/devices/pi4-5/resume", {})]


@pytest.mark.slow
async def test_what_is_done_to_marked_devices_is_asked_once() -> None:
    async with serving() as server, screen(live_as("admin", server), size=WIDE) as pilot:
        await shows(pilot, "admin")
        await pilot.press("slash", *"class:jetson", "enter", "m", "down", "m")
        await shows(pilot, "2 marked · 3 of 14 devices")
        await pilot.press("p")
        await asked(pilot, "Pause 2 devices?")
        await shows(pilot, "jetson-1, jetson-11 train no more")
        await pilot.press(*"hot", "enter")
        await shows(pilot, "done for 2 of 2 devices")
        await pilot.press("M")
        await shows(pilot, "3 marked")
        await pilot.press("slash", *["backspace"] * 12, *"pi4-10", "enter", "D")
        await asked(pilot, "Drop 3 devices?")
        await shows(pilot, "jetson-1, jetson-6, jetson-11. Their sessions end")
        server.refusal = (409, "the run has ended")
        await pilot.press("y")
        await shows(pilot, "jetson-6: the run has ended")
        await pilot.press("escape")
        await lacks(pilot, "marked")
        server.refusal = None
        await pilot.press("colon", *"drop", "enter")
        await asked(pilot, "Drop pi4-10?")
        await pilot.press("n")
        pause = [(f"/v1/devices/jetson-{n}/pause", {"because": "hot"}) for n in (1, 11)]
        assert server.acts == [*pause, *((f"/v1/devices/jetson-{n}/drop", {}) for n in (1, 6, 11))]


@pytest.mark.slow
async def test_what_the_server_refuses_is_shown() -> None:
    async with serving() as server, screen(live_as("admin", server), size=WIDE) as pilot:
        server.refusal = (409, "the run has ended")
        await shows(pilot, "admin")
        await pilot.press("C")
        await asked(pilot, "Checkpoint now?")
        await pilot.press("y")
        await shows(pilot, "It was not done")
        await shows(pilot, "the run has ended")

"""The monitor as somebody at the keys meets it: every key, every role, every trouble."""

from dataclasses import replace
from pathlib import Path

import pytest

from edgeflock.shared.errors import ConfigError
from edgeflock.shared.frames import Frame, Point, Role, Snapshot
from edgeflock.tui.app import Top, binding_ids
from edgeflock.tui.feed_client import FeedClient
from edgeflock.tui.live import Live
from tests.tui.runs import BEGAN, frames
from tests.tui.screens import WIDE, asked, frozen, lacks, screen, shows, text, top, until
from tests.tui.server import Feed, serving


def fleet_of(pilot_text: str) -> list[str]:
    """The devices in the table, from the top."""
    return [line[2:].split()[0] for line in pilot_text.splitlines()[4:-2] if line[2:].strip()]


async def test_pages_by_their_numbers() -> None:
    async with screen() as pilot:
        await shows(pilot, "Staleness ─")
        for key, words in (
            ("2", "▲device"),
            ("3", "checkpoint snapshot of"),
            ("4", "[run]"),
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
        await shows(pilot, "2MB            4MB")
        await pilot.press("x")
        await shows(pilot, "2m              4m")


async def test_the_cursor_moves_and_opens_the_device_it_is_on() -> None:
    async with screen(frozen(60)) as pilot:
        await pilot.press("2")
        view = top(pilot).view
        for keys, expected in (
            (("down", "down", "j"), 3),
            (("up", "k"), 1),
            (("pagedown",), 18),
            (("pageup",), 1),
            (("end",), 59),
            (("home",), 0),
        ):
            await pilot.press(*keys)
            assert view.fleet.window.cursor == expected, keys
        await pilot.press("end")
        await shows(pilot, "60 / 60")
        await pilot.press("home", "enter")
        await shows(pilot, "esc back")
        await shows(pilot, " jetson-1  ● training")
        await shows(pilot, "Received ─")
        await pilot.press("down")
        await shows(pilot, " jetson-6  ● training")
        await pilot.press("left")
        await shows(pilot, " jetson-1  ● training")
        await pilot.press("escape")
        await shows(pilot, "▲device")


async def test_the_table_sorts_and_the_cursor_follows_its_device() -> None:
    async with screen() as pilot:
        await pilot.press("2", "down", "down")
        assert fleet_of(text(pilot))[2] == "jetson-11"
        await pilot.press("r")
        await shows(pilot, "▼device")
        assert fleet_of(text(pilot))[0] == "zero2w-12"
        await shows(pilot, "▌jetson-11")
        await pilot.press("s")
        await shows(pilot, "▲state")
        assert fleet_of(text(pilot))[0] == "zero2w-7", "away comes first"
        await pilot.press("S")
        await shows(pilot, "▲device")


async def test_a_click_sorts_chooses_and_opens() -> None:
    async with screen() as pilot:
        await pilot.press("2")
        await pilot.click("#fleet", offset=(48, 0))
        await shows(pilot, "▼updates")
        await pilot.click("#fleet", offset=(4, 3))
        await until(pilot, lambda: top(pilot).view.fleet.window.cursor == 2)
        await pilot.click("#fleet", offset=(4, 3), times=2)
        await shows(pilot, "esc back")


async def test_columns_that_do_not_fit_are_to_the_right() -> None:
    async with screen() as pilot:
        await pilot.press("2")
        await shows(pilot, "▸")
        assert "temp" not in text(pilot)
        await pilot.press(*["right"] * 8)
        await shows(pilot, "temp")
        assert "▌jetson-1 " in text(pilot), "the name stays"
        await pilot.press(*["l"] * 30, *["h"] * 40)
        await shows(pilot, "state")


async def test_the_filter_follows_every_letter_and_says_what_is_wrong() -> None:
    async with screen() as pilot:
        await pilot.press("slash")
        await shows(pilot, "▲device")
        await pilot.press(*"pi4")
        await shows(pilot, "2 of 14 devices · filter pi4")
        assert fleet_of(text(pilot))[:2] == ["pi4-5", "pi4-10"]
        await pilot.press("enter")
        await pilot.press("slash", *" colour:red")
        await shows(pilot, "no column 'colour'")
        await pilot.press("escape")
        await shows(pilot, "14 devices")
        await pilot.press("slash", *"nobody", "enter")
        await shows(pilot, "no device matches 'nobody'; esc clears the filter")
        await pilot.press("escape")
        await shows(pilot, "14 devices")


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
        await pilot.press("down")
        await until(pilot, lambda: text(pilot) != first)
        await pilot.press("end")
        await lacks(pilot, "newer below")
        for key in ("k", "j", "pageup", "pagedown", "up"):
            await pilot.press(key)


async def test_the_configuration_scrolls_and_marks_what_was_changed() -> None:
    async with screen() as pilot:
        await pilot.press("4")
        await shows(pilot, '● host              "0.0.0.0"')
        await pilot.press("pagedown")
        await shows(pilot, "● learning_rate     0.05")
        await pilot.press("pageup", "pageup", "j", "k", "down", "up")
        await shows(pilot, "run 5f3c0ad1e2b49687")


async def test_labels_are_kept(tmp_path: Path) -> None:
    async with screen(folder=tmp_path) as pilot:
        await pilot.press("2", "n")
        await asked(pilot, "What jetson-1 is called here")
        await pilot.press(*"attic", "enter")
        await pilot.press("slash", *"label:attic", "enter")
        await shows(pilot, "1 of 14 devices")
    assert (tmp_path / "labels.toml").read_text() == '"jetson-1" = "attic"\n'
    async with screen(folder=tmp_path) as pilot:
        assert top(pilot).labels == {"jetson-1": "attic"}
        await pilot.press("2", "n")
        await asked(pilot, "What jetson-1 is called here")
        await pilot.press(*["backspace"] * 5, "enter")
        await until(pilot, lambda: (tmp_path / "labels.toml").read_text() == "")


async def test_help_names_every_key_that_does_something_here() -> None:
    async with screen(size=WIDE) as pilot:
        await pilot.press("2", "question_mark")
        await shows(pilot, "any key closes this")
        shown = text(pilot)
        for about in (
            "Sort by the next column",
            "A closer look",
            "Go to a time",
            "Show only what matches",
        ):
            assert about in shown
        assert "Drop the device" not in shown, "a recording cannot be acted on"
        await pilot.press("z")
        await lacks(pilot, "any key closes this")


async def test_the_palette_finds_commands() -> None:
    async with screen(size=WIDE) as pilot:
        await pilot.press("colon")
        await shows(pilot, "Search for commands")
        await pilot.press(*"sort by temp")
        await shows(pilot, "Celsius")
        await pilot.press("enter")
        await shows(pilot, "▼temp")


async def test_q_ends_it() -> None:
    async with screen() as pilot:
        await pilot.press("q")
        await until(pilot, lambda: not pilot.app.is_running)


# Time


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
    told = list(frames(4, 30))
    async with serving(*told[:5]) as server, screen(Live(FeedClient(server.url, ""))) as pilot:
        view = top(pilot).view
        await until(pilot, lambda: view.state is not None and view.state.time == BEGAN + 4)
        await shows(pilot, "● live")
        await pilot.press("space")
        await shows(pilot, "‖ paused")
        server.tell(*told[5:9])
        await shows(pilot, "‖ paused 4s back")
        assert view.state is not None
        assert view.state.time == BEGAN + 4
        await pilot.press("left_square_bracket", "left_square_bracket")
        assert view.state.time == BEGAN + 2
        await shows(pilot, "paused 6s back")
        await pilot.press("right_square_bracket")
        assert view.state.time == BEGAN + 3
        await pilot.press("escape")
        await shows(pilot, "● live")
        assert view.state.time == BEGAN + 8


# Links


async def test_before_there_is_a_server_the_screen_says_so() -> None:
    async with serving() as gone:
        url = gone.url
    async with screen(Live(FeedClient(url, ""), first_wait=30)) as pilot:
        await shows(pilot, "no run to show: connection refused")
        await shows(pilot, "again in")
        await pilot.press("2", "enter", "s", "r", "down", "3", "up", "4", "x", "n", "1")
        await shows(pilot, "no run to show")


async def test_a_wrong_token_is_told() -> None:
    async with serving(token="right") as server, screen(Live(FeedClient(server.url, "wrong"))) as pilot:
        await shows(pilot, "the server does not know this token; give it with --token")


async def test_a_run_without_devices_says_what_to_do() -> None:
    first = next(frames(1, 0))
    empty = replace(first, devices=(), events=(), overview=replace(first.overview, devices=0, connected=0))
    async with serving(empty) as server, screen(Live(FeedClient(server.url, ""))) as pilot:
        await shows(pilot, "no evaluation with accuracy yet")
        await pilot.press("2")
        await shows(pilot, "No device has joined yet.")
        await pilot.press("3")
        await shows(pilot, "nothing has happened yet")


async def test_a_feed_that_stalls_ages_on_the_screen_and_one_that_ends_is_found_again() -> None:
    now = 100.0
    told = list(frames(4, 10))
    async with serving(*told[:3]) as server:
        live = Live(FeedClient(server.url, ""), clock=lambda: now, first_wait=0.2)
        async with screen(live) as pilot:
            await shows(pilot, "● live")
            now = 142.0
            await shows(pilot, "▲ stalled · data 42s old")
            server.tell(told[3])
            await shows(pilot, "● live")
            server.first = []
            server.hang_up()
            await shows(pilot, "✕ the server ended the feed")
            await shows(pilot, "data 0s old")
            assert top(pilot).view.state is not None, "what was known stays"
            await until(pilot, lambda: len(server.watchers) == 1)
            server.tell(*told[:1])
            await shows(pilot, "● live")


async def test_several_servers_are_tabs() -> None:
    first = next(frames(2, 0))
    assert isinstance(first, Snapshot)
    other = replace(first, run=replace(first.run, run="another1"))
    async with serving(next(frames(4, 0))) as one, serving(other) as two:
        live = [Live(FeedClient(server.url, "")) for server in (one, two)]
        async with screen(*live) as pilot:
            await shows(pilot, f" 127.0.0.1:{one.port}   127.0.0.1:{two.port}")
            await shows(pilot, "5f3c0ad1")
            await pilot.press("tab")
            await shows(pilot, "another1")
            await pilot.press("2")
            await shows(pilot, "2 devices")
            await pilot.press("shift+tab")
            await shows(pilot, "5f3c0ad1")
            await shows(pilot, "Accuracy")


# Roles


def live_as(role: Role, server: Feed) -> Live:
    server.first = list(frames(14, 60, role=role))
    return Live(FeedClient(server.url, ""))


async def test_a_viewer_is_offered_no_action() -> None:
    async with serving() as server, screen(live_as("viewer", server), size=WIDE) as pilot:
        await pilot.press("2")
        await shows(pilot, "viewer")
        await shows(pilot, "jetson-1")
        for key in ("p", "D", "L", "C"):
            await pilot.press(key)
        await pilot.press("question_mark")
        await shows(pilot, "any key closes this")
        for words in ("Pause or resume it", "Drop the device", "The learning rate", "Checkpoint now"):
            assert words not in text(pilot)
        await pilot.press("z", "colon", *"checkpoint")
        await shows(pilot, "No matches found")
        assert server.acts == []


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
        await asked(pilot, "It holds from the next update on")
        await pilot.press("home", *["delete"] * 6, *"0.02", "enter")
        await asked(pilot, "count with 0.02 instead of 0.05")
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


async def test_a_paused_device_is_resumed_and_nothing_is_done_by_half() -> None:
    async with serving() as server, screen(live_as("admin", server), size=WIDE) as pilot:
        await pilot.press("slash", *"state:paused", "enter", "p")
        await asked(pilot, "Resume pi4-5?")
        await pilot.press("y")
        await shows(pilot, "pi4-5 goes on")
        await pilot.press("L")
        await asked(pilot, "It holds from the next update on")
        await pilot.press("home", *["delete"] * 6, *"fast", "enter")
        await shows(pilot, "'fast' is not a number")
        await pilot.press("p")
        await asked(pilot, "Resume pi4-5?")
        await pilot.press("escape")
        await lacks(pilot, "Resume pi4-5?")
        assert server.acts == [("/v1/devices/pi4-5/resume", {})]


async def test_what_the_server_refuses_is_shown() -> None:
    async with serving() as server, screen(live_as("admin", server), size=WIDE) as pilot:
        server.refusal = (409, "the run has ended")
        await shows(pilot, "admin")
        await pilot.press("C")
        await asked(pilot, "Checkpoint now?")
        await pilot.press("y")
        await shows(pilot, "It was not done")
        await shows(pilot, "the run has ended (409)")


async def test_the_device_page_has_the_history_of_the_server_and_goes_on_with_the_feed() -> None:
    told: list[Frame] = list(frames(14, 61))
    async with serving() as server, screen(live_as("viewer", server), size=WIDE) as pilot:
        row = next(row for row in told[0].devices if row.name == "jetson-1")
        server.history = (row, [Point(BEGAN + n, 2.0 - n / 100, n % 5, 600 * n) for n in range(1, 60)])
        await pilot.press("2")
        await shows(pilot, "▌jetson-1")
        await pilot.press("enter")
        device = top(pilot).view.device
        await until(pilot, lambda: len(device.points) == 59)
        server.tell(told[61])
        await until(pilot, lambda: len(device.points) == 60)
        assert device.points[-1].loss == next(r.loss for r in told[61].devices if r.name == "jetson-1")
        server.history = None
        await pilot.press("down")
        await shows(pilot, "no history of jetson-6: no such device (404)")


# Preferences


async def test_keys_are_bound_anew(tmp_path: Path) -> None:
    (tmp_path / "top.toml").write_text('theme = "colour-blind"\n[keys]\nfleet = "f,f3"\nhelp = "f1"\n')
    async with screen(folder=tmp_path) as pilot:
        assert pilot.app.theme == "colour-blind"
        await pilot.press("2")
        assert top(pilot).view.page == "overview"
        await pilot.press("f")
        assert top(pilot).view.page == "fleet"
        await pilot.press("1", "f3")
        assert top(pilot).view.page == "fleet"
        await pilot.press("f1")
        await shows(pilot, "f f3")


@pytest.mark.parametrize(
    ("toml", "complaint"),
    [
        ("[keys]\nflet = 'f'", "keys.flet: there is no such action; did you mean fleet?"),
        ("[keys]\nfleet = 3", "keys.fleet = 3 must be keys as text"),
        ("[keys]\nfleet = 'f'\nevents = 'e,f'", "keys.events and keys.fleet are both 'f'"),
        ("theme = 'pink'", "theme = 'pink' is none of"),
        ("tehme = 'x'", "unknown key tehme"),
        ("keys = 'vi'", "must be a section"),
        ("[keys", "not TOML"),
    ],
)
def test_preferences_that_cannot_be(tmp_path: Path, toml: str, complaint: str) -> None:
    (tmp_path / "top.toml").write_text(toml)
    with pytest.raises(ConfigError, match=complaint.replace("[", r"\[").replace("?", r"\?")):
        Top([frozen(1, 1)], tmp_path)


def test_every_binding_has_a_name_of_its_own() -> None:
    names = binding_ids()
    assert len(names) == len(set(names))
    assert {"fleet", "filter", "freeze", "quit", "pause_device"} <= set(names)


@pytest.mark.parametrize("theme", ["edgeflock-light", "colour-blind", "high-contrast", "nord"])
async def test_themes_change_colours_and_nothing_else(theme: str) -> None:
    async with screen() as pilot:
        before, inks = text(pilot), top(pilot).inks
        pilot.app.theme = theme
        await until(pilot, lambda: top(pilot).inks != inks)
        assert text(pilot) == before


async def test_without_colour_what_is_chosen_is_reversed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with screen() as pilot:
        await shows(pilot, "Accuracy")
        inks = top(pilot).inks
        assert inks["chosen"].reverse
        assert inks["cursor"].reverse
        assert not inks["text"].reverse

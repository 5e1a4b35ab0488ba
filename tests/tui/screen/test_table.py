"""The table of devices under somebody's hands: cursor, order, columns, filter, mouse."""

import pytest

from tests.tui.screen.monitor import frozen, screen, shows, text, top, until


def fleet_of(pilot_text: str) -> list[str]:
    """The devices in the table, from the top."""
    return [line[2:].split()[0] for line in pilot_text.splitlines()[4:-2] if line[2:].strip()]


@pytest.mark.slow
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
            await until(pilot, lambda expected=expected: view.fleet.window.cursor == expected)  # type: ignore[misc]
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
        await until(pilot, lambda: fleet_of(text(pilot))[2:3] == ["jetson-11"])
        await pilot.press("r")
        await shows(pilot, "▼device")
        await until(pilot, lambda: fleet_of(text(pilot))[0] == "zero2w-12")
        await shows(pilot, "▌jetson-11")
        await pilot.press("s")
        await shows(pilot, "▲state")
        await until(pilot, lambda: fleet_of(text(pilot))[0] == "zero2w-7")  # away comes first
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


@pytest.mark.slow
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
        await until(pilot, lambda: fleet_of(text(pilot))[:2] == ["pi4-5", "pi4-10"])
        await pilot.press("enter")
        await pilot.press("slash", *" colour:red")
        await shows(pilot, "no column 'colour'")
        await pilot.press("escape")
        await shows(pilot, "14 devices")
        await pilot.press("slash", *"nobody", "enter")
        await shows(pilot, "no device matches 'nobody'; esc clears the filter")
        await pilot.press("escape")
        await shows(pilot, "14 devices")

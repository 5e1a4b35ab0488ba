"""An operator's own keys, columns and themes."""

from pathlib import Path

import pytest

from edgeflock.shared.errors import ConfigError
from edgeflock.tui.screen.app import Top, binding_ids
from tests.tui.screen.monitor import frozen, screen, shows, text, top, until


async def test_keys_are_bound_anew(tmp_path: Path) -> None:
    (tmp_path / "top.toml").write_text('theme = "colour-blind"\n[keys]\nfleet = "f,f3"\nhelp = "f1"\n')
    async with screen(folder=tmp_path) as pilot:
        assert pilot.app.theme == "colour-blind"
        await pilot.press("2")
        assert top(pilot).view.page == "overview"
        await pilot.press("f")
        await until(pilot, lambda: top(pilot).view.page == "fleet")
        await pilot.press("1")
        await until(pilot, lambda: top(pilot).view.page == "overview")
        await pilot.press("f3")
        await until(pilot, lambda: top(pilot).view.page == "fleet")
        await pilot.press("f1")
        await shows(pilot, "f f3")


async def test_columns_are_chosen_in_the_file_and_by_a_command(tmp_path: Path) -> None:
    (tmp_path / "top.toml").write_text('columns = ["temp", "smoothed_loss"]\n')
    async with screen(folder=tmp_path) as pilot:
        await pilot.press("2")
        await shows(pilot, "▲device    temp  ~loss\n")
        await pilot.press("right", "right", "right", "left", "colon", *"columns in,out", "enter")
        await shows(pilot, "▲device         in     out\n")
        await pilot.press("colon", *"columns inn", "enter")
        await shows(pilot, "there is no column 'inn'")
        await pilot.press("colon", *"columns", "enter")
        await shows(pilot, "state")


@pytest.mark.parametrize(
    ("toml", "complaint"),
    [
        ("[keys]\nflet = 'f'", "keys.flet: there is no such action; did you mean fleet?"),
        ("[keys]\nfleet = 3", "keys.fleet = 3 must be keys as text"),
        ("[keys]\nfleet = 'f'\nevents = 'e,f'", "keys.events and keys.fleet are both 'f'"),
        ("theme = 'pink'", "theme = 'pink' is none of"),
        ("columns = ['state', 'lose']", "there is no column 'lose'; did you mean loss?"),
        ("columns = 'state'", "columns = 'state' must be titles"),
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
        await shows(pilot, "Accuracy")
        await shows(pilot, "q Quit")
        before, inks = text(pilot), top(pilot).palette.inks
        pilot.app.theme = theme
        await until(pilot, lambda: top(pilot).palette.inks != inks)
        assert text(pilot) == before


async def test_without_colour_what_is_chosen_is_reversed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with screen() as pilot:
        await shows(pilot, "Accuracy")
        inks = top(pilot).palette.inks
        assert inks["chosen"].reverse
        assert inks["cursor"].reverse
        assert not inks["text"].reverse

"""An operator's own columns and themes."""

from pathlib import Path

import pytest

from edgeflock.shared.errors import ConfigError
from edgeflock.tui.screen.app import Top
from tests.tui.screen.monitor import frozen, screen, shows, text, top, until


async def test_columns_are_chosen_in_the_file_and_by_a_command(tmp_path: Path) -> None:
    (tmp_path / "top.toml").write_text('theme = "colour-blind"\ncolumns = ["temp", "smoothed_loss"]\n')
    async with screen(folder=tmp_path) as pilot:
        assert pilot.app.theme == "colour-blind"
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
        ("theme = 'pink'", "theme = 'pink' is none of"),
        ("columns = ['state', 'lose']", "there is no column 'lose'; did you mean loss?"),
        ("columns = 'state'", "columns = 'state' must be titles"),
        ("tehme = 'x'", "unknown key tehme"),
        ("[keys]\nfleet = 'f'", "unknown key keys"),
        ("[keys", "not TOML"),
    ],
)
def test_preferences_that_cannot_be(tmp_path: Path, toml: str, complaint: str) -> None:
    (tmp_path / "top.toml").write_text(toml)
    with pytest.raises(ConfigError, match=complaint.replace("[", r"\[").replace("?", r"\?")):
        Top([frozen(1, 1)], tmp_path)


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

"""Colours of inks, and the themes. Each state also has a sign, so that colour is never the only one."""

from collections.abc import Mapping
from typing import Any, get_args

from rich.style import Style
from textual.color import Color
from textual.theme import Theme

from edgeflock.tui.text.lines import WITH_BACKGROUND, Ink

_COLOURS = (
    *("primary", "secondary", "accent", "foreground", "background", "surface", "panel"),
    *("success", "warning", "error"),
)


def _theme(name: str, colours: str, third: str, *, dark: bool = True) -> Theme:
    """Return a theme of `_COLOURS`, in their order, and the third colour of curves."""
    named: dict[str, Any] = dict(zip(_COLOURS, colours.split(), strict=True))
    return Theme(name, **named, dark=dark, variables={"third": third})


THEMES = (
    _theme(
        "edgeflock",
        "#5fb3c8 #d9a066 #7cc5d6 #c9d1d9 #0f1419 #141a21 #1c242d #7fb685 #d8b365 #e0786c",
        "#a99bd1",
    ),
    _theme(
        "edgeflock-light",
        "#0b6e8a #a4581b #0b6e8a #24292f #fbfaf7 #f2f0ea #e7e4dc #2f7d3b #8f6400 #b3372b",
        "#6a55a3",
        dark=False,
    ),
    # After Okabe and Ito: sky blue, orange and reddish purple; blue for good, vermilion for bad, no green.
    _theme(
        "colour-blind",
        "#56b4e9 #e69f00 #f0e442 #dcdcdc #101010 #181818 #242424 #56b4e9 #e69f00 #d55e00",
        "#cc79a7",
    ),
    _theme(
        "high-contrast",
        "#00ffff #ffff00 #ffffff #ffffff #000000 #000000 #202020 #00ff00 #ffff00 #ff6060",
        "#ff80ff",
    ),
)


class Palette:
    """The styles of the current theme. Widgets read them, and the application changes them."""

    def __init__(self) -> None:
        self.inks: Mapping[Ink, Style] = {}

    def set_theme(self, theme: Theme, *, plain: bool) -> None:
        """Use this theme. `plain` means without colour."""
        self.inks = inks(theme.to_color_system().generate() | theme.variables, plain=plain)


def inks(colours: Mapping[str, str], *, plain: bool = False) -> dict[Ink, Style]:
    """Return a style for each ink from a theme's variables. `plain` (NO_COLOR): bold and reverse only."""

    def colour(name: str) -> Color:
        return Color.parse(colours[name])

    background, text = colour("background"), colour("foreground")
    shades: dict[Ink, Color] = {
        "text": text,
        "strong": text,
        "dim": background.blend(text, 0.55),
        "rule": background.blend(text, 0.22),
        "accent": colour("accent"),
        "good": colour("success"),
        "warn": colour("warning"),
        "bad": colour("error"),
        "first": colour("primary"),
        "second": colour("secondary"),
        "third": Color.parse(colours["third"]) if "third" in colours else colour("accent"),
        "cursor": text,
        "chosen": background,
    }
    backgrounds: dict[Ink, Color] = {
        "cursor": background.blend(colour("primary"), 0.28),
        "chosen": colour("primary"),
    }
    assert backgrounds.keys() == WITH_BACKGROUND, "their blanks are repainted"
    if plain:  # Textual converts colours to greys, and two similar greys would hide the choice
        shades |= dict.fromkeys(backgrounds, text)
    bold = {"strong", "cursor", "bad", "chosen"}
    return {
        ink: Style(
            color=shades[ink].rich_color,
            bgcolor=(background if plain else backgrounds.get(ink, background)).rich_color,
            bold=ink in bold,
            reverse=plain and ink in backgrounds,
        )
        for ink in get_args(Ink)
    }

"""Colours of inks, and the themes. Each state also has a sign, so that colour is never the only one."""

from collections.abc import Mapping
from typing import get_args

from rich.style import Style
from textual.color import Color
from textual.theme import Theme

from edgeflock.tui.text.lines import WITH_BACKGROUND, Ink

THEMES = (
    Theme(
        "edgeflock",
        primary="#5fb3c8",
        secondary="#d9a066",
        accent="#7cc5d6",
        foreground="#c9d1d9",
        background="#0f1419",
        surface="#141a21",
        panel="#1c242d",
        success="#7fb685",
        warning="#d8b365",
        error="#e0786c",
        variables={"third": "#a99bd1"},
    ),
    Theme(
        "edgeflock-light",
        primary="#0b6e8a",
        secondary="#a4581b",
        accent="#0b6e8a",
        foreground="#24292f",
        background="#fbfaf7",
        surface="#f2f0ea",
        panel="#e7e4dc",
        success="#2f7d3b",
        warning="#8f6400",
        error="#b3372b",
        dark=False,
        variables={"third": "#6a55a3"},
    ),
    # After Okabe and Ito: sky blue, orange and reddish purple; blue for good, vermilion for bad, no green.
    Theme(
        "colour-blind",
        primary="#56b4e9",
        secondary="#e69f00",
        accent="#f0e442",
        foreground="#dcdcdc",
        background="#101010",
        surface="#181818",
        panel="#242424",
        success="#56b4e9",
        warning="#e69f00",
        error="#d55e00",
        variables={"third": "#cc79a7"},
    ),
    Theme(
        "high-contrast",
        primary="#00ffff",
        secondary="#ffff00",
        accent="#ffffff",
        foreground="#ffffff",
        background="#000000",
        surface="#000000",
        panel="#202020",
        success="#00ff00",
        warning="#ffff00",
        error="#ff6060",
        variables={"third": "#ff80ff"},
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

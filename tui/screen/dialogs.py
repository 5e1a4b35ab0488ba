"""Dialogs that confirm an action or ask for a value, and the help."""

from collections.abc import Sequence
from typing import Any, ClassVar

from textual import events
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from edgeflock.shared.errors import ConfigError
from edgeflock.tui.sources import Source
from edgeflock.tui.text.lines import Line, fit, join_blocks, plain_text

_CSS = """
{name} {{ align: center middle; background: $background 60%; }}
{name} > .box {{
    width: 64; max-width: 96%; height: auto; max-height: 92%;
    background: $surface; border: round $primary 60%; padding: 1 2;
    border-title-color: $foreground; border-title-style: bold;
}}
{name} Static {{ width: 1fr; height: auto; }}
{name} .hint {{ color: $foreground 60%; margin-top: 1; }}
{name} Input {{ margin-top: 1; padding: 0 1; background: $panel; }}
"""


class Confirm(ModalScreen[bool]):
    """A question with the keys y for yes, and n, escape, enter or q for no."""

    DEFAULT_CSS: ClassVar[str] = _CSS.format(name="Confirm")
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "Yes"),
        Binding("n,escape,enter,q", "answer(False)", "No"),
    ]

    def __init__(self, title: str, consequence: str) -> None:
        super().__init__()
        self._title, self._consequence = title, consequence

    def compose(self) -> ComposeResult:
        box = Vertical(
            Static(self._consequence, markup=False),
            Static("y  yes      n, esc  no", classes="hint"),
            classes="box",
        )
        box.border_title = self._title
        yield box

    def action_answer(self, yes: bool) -> None:
        self.dismiss(yes)


class TextPrompt(ModalScreen[str | None]):
    """Asks for a line of text. Enter confirms and returns it; escape returns None."""

    DEFAULT_CSS: ClassVar[str] = _CSS.format(name="TextPrompt")
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "cancel", "Cancel")]

    def __init__(self, title: str, consequence: str, value: str = "", placeholder: str = "") -> None:
        super().__init__()
        self._title, self._consequence = title, consequence
        self._value, self._placeholder = value, placeholder

    def compose(self) -> ComposeResult:
        box = Vertical(
            Static(self._consequence, markup=False),
            Input(self._value, placeholder=self._placeholder, compact=True),
            Static("enter  confirm      esc  cancel", classes="hint"),
            classes="box",
        )
        box.border_title = self._title
        yield box

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.dismiss(event.value)

    def action_cancel(self) -> None:
        self.dismiss(None)


async def ask_position(app: App[Any], source: Source) -> None:
    """Ask for a place of a replay, and go to it."""
    position = await app.push_screen_wait(
        TextPrompt("Go to", "A time since the recording began, such as 12:30, or a part of it, such as 40%.")
    )
    if position:
        try:
            source.seek(position)
        except ConfigError as error:
            app.notify(str(error), severity="error", markup=False)


class Help(ModalScreen[None]):
    """The help: every key that is active now, as it is bound."""

    DEFAULT_CSS: ClassVar[str] = (
        _CSS.format(name="Help")
        + "Help > .box { width: 80; max-width: 100%; max-height: 100%; padding: 0 1; }"
    )

    def __init__(self, sections: Sequence[tuple[str, Sequence[tuple[str, str]]]]) -> None:
        super().__init__()
        self._sections = sections

    def compose(self) -> ComposeResult:
        box = VerticalScroll(
            Static(plain_text(_two_columns(self._sections)), markup=False),
            Static(_QUERIES, markup=False, classes="hint"),
            classes="box",
        )
        box.border_title, box.border_subtitle = "Keys", "↑ ↓ scroll, any other key closes this"
        yield box

    def on_key(self, event: events.Key) -> None:
        if event.key not in ("up", "down", "pageup", "pagedown", "home", "end"):
            event.stop()
            self.dismiss(None)


def _two_columns(sections: Sequence[tuple[str, Sequence[tuple[str, str]]]]) -> list[Line]:
    parts: tuple[list[Line], list[Line]] = ([], [])
    for title, keys in sections:
        shortest = min(parts, key=len)
        shortest += [[(title.upper(), "strong")]]
        shortest += [[(fit(key, 11), "accent"), (description, "text")] for key, description in keys]
        shortest.append([])
    rows = max(map(len, parts))
    return join_blocks([(part + [[]] * (rows - len(part)), 36) for part in parts], gap=1)


_QUERIES = """FILTERS
pi               name, state, class, backend or labels hold it
state:paused     that column holds it, as class:jetson or label:north
loss>1.5         compares; = < <= >= too
!class:laptop    not; and all terms must hold"""

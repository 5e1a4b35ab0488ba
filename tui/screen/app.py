"""`edgeflock top`: the application around one or several runs."""

from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from rich.console import RenderableType
from textual._compositor import ChopsUpdate
from textual.app import App, ComposeResult, SystemCommand
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.theme import Theme
from textual.widgets import Footer

from edgeflock.tui.pages import fleet
from edgeflock.tui.pages.header import Tab, find_tab, tab, tab_line
from edgeflock.tui.screen import preferences
from edgeflock.tui.screen.dialogs import Help
from edgeflock.tui.screen.line_widget import Bar, CompactUpdate
from edgeflock.tui.screen.palette import THEMES, Palette
from edgeflock.tui.screen.run_view import RunView
from edgeflock.tui.screen.table import FleetPage
from edgeflock.tui.screen.widgets import ConfigPage, DevicePage, EventsPage, FindingsPage, OverviewPage
from edgeflock.tui.sources import Source

_OWNERS = (
    ("Everywhere", None),
    ("This run", RunView),
    ("Overview", OverviewPage),
    ("Fleet", FleetPage),
    ("Events", EventsPage),
    ("Configuration", ConfigPage),
    ("Findings", FindingsPage),
    ("Device", DevicePage),
)


class Top(App[None]):
    """Shows runs. All its data come from their sources."""

    TITLE = "edgeflock"
    CSS: ClassVar[str] = """
    Screen { background: $background; }
    Footer { background: $background; }
    #servers { display: none; }
    """
    ENABLE_COMMAND_PALETTE = True
    COMMAND_PALETTE_BINDING = "ctrl+p"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("question_mark", "keys", "Help", id="help"),
        Binding("tab", "server(1)", "Next server", id="next_server", show=False, priority=True),
        Binding("shift+tab", "server(-1)", "Server before", id="server_before", show=False, priority=True),
        Binding("q", "quit", "Quit", id="quit"),
    ]

    def __init__(self, sources: Sequence[Source], folder: Path | None = None) -> None:
        """`folder` has top.toml. None: no file is read. Raises ConfigError."""
        super().__init__()
        for theme in THEMES:
            self.register_theme(theme)
        self._preferences = preferences.Preferences()
        if folder is not None:
            self._preferences = preferences.load(folder / "top.toml", self.available_themes)
        self.theme = self._preferences.theme
        self.palette = Palette()
        self.palette.set_theme(self.current_theme, plain=self.no_color)
        self.views = [
            RunView(source, self.palette, self._preferences.columns, id=f"run-{number}")
            for number, source in enumerate(sources)
        ]
        self.index = 0
        self._servers = Bar(
            lambda width: tab_line(self._tabs(), self.index, width), self.palette, id="servers"
        )

    def compose(self) -> ComposeResult:
        yield self._servers
        yield from self.views
        yield Footer(compact=True, show_command_palette=False)

    def on_mount(self) -> None:
        self.theme_changed_signal.subscribe(self, self._recolor)
        if len(self.views) > 1:
            self._servers.display = True
            self.set_interval(1.0, self._servers.redraw)
        self.show_server(0)

    @property
    def view(self) -> RunView:
        return self.views[self.index]

    def _display(self, screen: Screen[Any], renderable: RenderableType | None) -> None:
        update = CompactUpdate.from_update(renderable) if isinstance(renderable, ChopsUpdate) else renderable
        super()._display(screen, update)

    def _recolor(self, theme: Theme) -> None:
        self.palette.set_theme(theme, plain=self.no_color)
        self._servers.redraw(whole=True)
        self.view.redraw(whole=True)

    # Several servers

    def show_server(self, number: int) -> None:
        self.index = number
        for index, view in enumerate(self.views):
            view.display = index == number
        self.view.pages[self.view.page].focus()
        self._servers.redraw()
        self.view.redraw(whole=True)

    def action_server(self, step: int) -> None:
        self.show_server((self.index + step) % len(self.views))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return len(self.views) > 1 and len(self.screen_stack) == 1 if action == "server" else True

    def _tabs(self) -> list[Tab]:
        return [
            tab(view.source.name, view.state, view.source.link, view.source.freshness())
            for view in self.views
        ]

    def on_bar_clicked(self, message: Bar.Clicked) -> None:
        if message.bar is self._servers and (index := find_tab(self._tabs(), message.x)) is not None:
            self.show_server(index)

    # Help and commands

    def action_keys(self) -> None:
        sections: dict[str, dict[str, list[str]]] = {title: {} for title, _ in _OWNERS}
        for active in self.screen.active_bindings.values():
            title = next(
                (title for title, owner in _OWNERS if owner and type(active.node) is owner), "Everywhere"
            )
            if active.enabled and active.binding.id is not None:
                description = active.binding.tooltip or active.binding.description
                sections[title].setdefault(description, []).append(self.get_key_display(active.binding))
        self.push_screen(
            Help([
                (title, [(" ".join(keys), description) for description, keys in actions.items()])
                for title, actions in sections.items()
                if actions
            ])
        )  # fmt: skip

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        yield from super().get_system_commands(screen)
        for column in fleet.COLUMNS:
            yield SystemCommand(
                f"Sort by {column.title}", column.description, partial(self._sort, column.key), discover=False
            )

    def _sort(self, key: str) -> None:
        self.view.action_page("fleet")
        self.view.fleet.sort_by(key)

"""One run on the screen: its source, its pages, and the operator's actions."""

from collections.abc import Sequence
from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import Input

from edgeflock.shared.errors import ConfigError, EdgeflockError
from edgeflock.shared.protocol.frames import DeviceRow
from edgeflock.tui.pages import fleet
from edgeflock.tui.pages.commands import ADMIN_VERBS, DEVICE_VERBS, USAGE, Command, find_devices, parse
from edgeflock.tui.pages.findings import strip
from edgeflock.tui.pages.header import Page, header, menu
from edgeflock.tui.screen import operator
from edgeflock.tui.screen.dialogs import ask_position
from edgeflock.tui.screen.line_widget import Bar
from edgeflock.tui.screen.palette import Palette
from edgeflock.tui.screen.table import FleetPage
from edgeflock.tui.screen.widgets import (
    ConfigPage,
    DevicePage,
    EventsPage,
    FilterLine,
    FindingsPage,
    OverviewPage,
    PageWidget,
)
from edgeflock.tui.sources import Source
from edgeflock.tui.sources.state import MonitorState


class RunView(Vertical):
    DEFAULT_CSS: ClassVar[str] = """
    RunView { height: 1fr; }
    RunView > Input { display: none; border: none; height: 1; padding: 0 1; background: $panel; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("1", "page('overview')", "Overview", id="overview", show=False),
        Binding("2", "page('fleet')", "Fleet", id="fleet", show=False),
        Binding("3", "page('events')", "Events", id="events", show=False),
        Binding("4", "page('config')", "Config", id="config", show=False),
        Binding("5", "page('findings')", "Findings", id="findings", show=False),
        # These have priority: keys that arrive together with them belong to the filter.
        Binding("slash", "filter", "Filter", id="filter", tooltip="Show only what matches", priority=True),
        Binding("colon", "command", "Command", id="command", show=False, priority=True),
        Binding("space", "freeze", "Freeze", id="freeze", tooltip="Freeze, or go on"),
        Binding("left_square_bracket", "step(-1)", "A frame back", id="back", show=False),
        Binding("right_square_bracket", "step(1)", "A frame on", id="forward", show=False),
        Binding("left_curly_bracket", "leap(-1)", "A tenth back", id="leap_back", show=False),
        Binding("right_curly_bracket", "leap(1)", "A tenth on", id="leap_forward", show=False),
        Binding("minus", "speed(0.5)", "Slower", id="slower"),
        Binding("plus,equals_sign", "speed(2.0)", "Faster", id="faster"),
        Binding("t", "seek", "Go to", id="seek", tooltip="Go to a time"),
        Binding("p", "pause_device", "Pause", id="pause_device", tooltip="Pause or resume it"),
        Binding("D", "act('drop')", "Drop", id="drop_device", tooltip="Drop the device"),
        Binding("L", "act('rate')", "Rate", id="learning_rate", tooltip="The learning rate"),
        Binding("C", "act('checkpoint')", "Save", id="checkpoint", tooltip="Checkpoint now"),
        Binding("R", "act('rollback')", "Roll back", id="roll_back", tooltip="Go back to an earlier model"),
        Binding("escape", "back", "Back", id="escape", show=False),
    ]

    def __init__(
        self,
        source: Source,
        palette: Palette,
        columns: Sequence[fleet.Column] = (),
        *,
        id: str,
    ) -> None:
        super().__init__(id=id)
        self.source = source
        self.page: Page = "overview"
        self._previous: Page = "fleet"
        self.fleet = FleetPage(source, palette, columns, id="fleet")
        self.device = DevicePage(source, palette, id="device")
        self.pages: dict[Page, PageWidget] = {
            "overview": OverviewPage(source, palette, id="overview"),
            "fleet": self.fleet,
            "events": EventsPage(source, palette, id="events"),
            "config": ConfigPage(source, palette, id="config"),
            "findings": FindingsPage(source, palette, id="findings"),
            "device": self.device,
        }
        self._header = Bar(
            lambda width: header(self.state, source.link, source.freshness(), source.name, width),
            palette,
            id="header",
        )
        self._menu = Bar(lambda width: menu(self.state, self.page, width), palette, id="menu")
        self._strip = Bar(lambda width: strip(self.state, width), palette, id="strip")
        self._filter = FilterLine(
            id="filter", placeholder="pi   state:paused   loss>1.5   !class:laptop", compact=True
        )
        self._command = FilterLine(id="command", placeholder=" | ".join(USAGE.values()), compact=True)
        self._role = "viewer"

    @property
    def state(self) -> MonitorState | None:
        return self.source.state

    def compose(self) -> ComposeResult:
        yield self._header
        yield self._menu
        yield self._strip
        for name, page in self.pages.items():
            page.display = name == self.page
            yield page
        yield self._filter
        yield self._command

    def on_mount(self) -> None:
        self.run_worker(self.source.run(self.show_state), group="source")
        # Between frames, only the age of the data changes.
        self.set_interval(1.0, self._header.redraw)

    def show_state(self) -> None:
        """Show the new state of the source."""
        self.device.append_newest()
        if self.state is not None and self.state.role != self._role:
            self._role = self.state.role
            self.refresh_bindings()
        if self.display:
            self.redraw()

    def redraw(self, *, whole: bool = False) -> None:
        for bar in (self._header, self._menu, self._strip, self.pages[self.page]):
            bar.redraw(whole=whole)

    # Navigation

    def action_page(self, page: Page) -> None:
        self.page = page
        for name, widget in self.pages.items():
            widget.display = name == page
        self._filter.display = self._command.display = False
        self.screen.set_focus(self.pages[page])
        self.redraw(whole=True)
        self.refresh_bindings()

    def on_page_widget_opened(self, message: PageWidget.Opened) -> None:
        message.stop()
        self._open(message.device)

    def _open(self, device: int) -> None:
        """Show a device's page. Going back leads to the page before it."""
        if self.page != "device":
            self._previous = self.page
        self.fleet.move_cursor_to(device)
        self.device.show(device, ())
        self.action_page("device")
        if (row := self.device.row) is not None:
            self._load_history(row)

    def on_device_page_neighbour(self, message: DevicePage.Neighbour) -> None:
        message.stop()
        self.fleet.action_move(message.step)
        self.fleet.action_open()

    @work(exclusive=True, group="history")
    async def _load_history(self, row: DeviceRow) -> None:
        try:
            points = await self.source.history(row)
        except EdgeflockError as error:
            self.app.notify(f"no history of {row.name}: {error}", severity="warning", markup=False)
            return
        if self.device.device == row.id:
            self.device.show(row.id, points)

    def action_back(self) -> None:
        """Leave one thing at a time: the marks, the filter, the device's page, or the frozen display."""
        page = self.pages[self.page]
        if self.page == "fleet" and self.fleet.marked:
            self.fleet.unmark()
            return
        if isinstance(page, FleetPage | EventsPage) and page.filter_query:
            page.filter("")
        elif self.page == "device":
            self.action_page(self._previous)
        elif self.source.freshness().frozen:
            self.action_freeze()

    # Text input

    def action_filter(self) -> None:
        if self.page not in ("fleet", "events"):
            self.action_page("fleet")
        page = self.pages[self.page]
        assert isinstance(page, FleetPage | EventsPage)
        self._filter.value = page.filter_query
        self._filter.display = True
        self.screen.set_focus(self._filter)

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        page = self.pages[self.page]
        if self._filter.display and isinstance(page, FleetPage | EventsPage):
            page.filter(event.value)

    def action_command(self) -> None:
        self._command.value = ""
        self._command.display = True
        self.screen.set_focus(self._command)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Keep the filter or carry out the command, and hide the input line."""
        event.stop()
        self._filter.display = self._command.display = False
        self.screen.set_focus(self.pages[self.page])
        if event.input is self._command and event.value.strip():
            try:
                self._run_command(parse(event.value))
            except ConfigError as error:
                self.app.notify(str(error), severity="error", markup=False)

    # Time

    def action_freeze(self) -> None:
        self.source.toggle()
        self.redraw()

    def action_step(self, frames: int) -> None:
        self.source.step(frames)
        self.redraw()

    def action_leap(self, direction: int) -> None:
        self.source.leap(direction)
        self.redraw()

    def action_speed(self, factor: float) -> None:
        self.source.scale_speed(factor)
        self.redraw()

    @work(exclusive=True, group="dialog")
    async def action_seek(self) -> None:
        await ask_position(self.app, self.source)
        self.redraw()

    # Actions of an admin

    def _devices(self) -> Sequence[DeviceRow]:
        """Return the marked devices, or else the chosen one."""
        if self.page == "fleet" and (marked := self.fleet.marked):
            return marked
        return [row] if (row := self._device()) is not None else []

    def _device(self) -> DeviceRow | None:
        """Return the device that is chosen on this page."""
        if self.page == "device":
            return self.device.row
        return self.fleet.chosen if self.page == "fleet" else None

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Return whether a key has an effect here. Others are not offered."""
        if self._filter.display or self._command.display:
            return False
        admin = self.source.actions is not None and self._role == "admin"
        replay = self.source.link.phase in ("replay", "ended")
        if action == "pause_device" or (action == "act" and parameters[0] in DEVICE_VERBS):
            return admin and self.page in ("fleet", "device")
        if action == "act":
            return admin
        if action in ("speed", "seek"):
            return replay
        if action == "filter":
            return self.page in ("fleet", "events", "overview")
        return True

    @work(exclusive=True, group="dialog")
    async def _run_command(self, command: Command) -> None:
        """Carry out a command, or notify in one line why it cannot be done."""
        if command.verb == "quit":
            self.app.exit()
            return
        state, actions = self.state, self.source.actions
        try:
            if state is None:
                raise ConfigError(f"{command.verb}: no state of the run has arrived yet")
            rows: Sequence[DeviceRow] = ()
            if command.verb == "open":
                rows = find_devices(command, state, [row] if (row := self._device()) is not None else [])
            elif command.verb in DEVICE_VERBS:
                rows = find_devices(command, state, self._devices())
            if command.verb in ADMIN_VERBS:
                if actions is None or self._role != "admin":
                    kind = "a viewer's token" if actions is not None else "a recording"
                    raise ConfigError(f"{command.verb} is for admins, and this is {kind}")
                await operator.run_command(self.app, actions, state, command, rows)
            elif rows:
                self._open(rows[0].id)
            else:
                self._show(command)
        except ConfigError as error:
            self.app.notify(str(error), severity="error", markup=False)

    def _show(self, command: Command) -> None:
        """Carry out a command that concerns the screen only. Raises ConfigError."""
        page = self.pages[self.page]
        if command.verb == "filter" and isinstance(page, EventsPage):
            page.filter(command.text)
            return
        self.action_page("fleet")
        if command.verb == "filter":
            self.fleet.filter(command.text)
        elif command.verb == "columns":
            names = command.text.replace(",", " ").split()
            self.fleet.choose([fleet.find_column(name) for name in names])
        elif command.verb == "sort":
            self.fleet.sort_by(fleet.find_column(command.text).key)

    def action_pause_device(self) -> None:
        if rows := self._devices():
            paused = all(row.state == "paused" for row in rows)
            self._run_command(Command("resume" if paused else "pause"))

    def action_act(self, verb: str) -> None:
        self._run_command(Command(verb))

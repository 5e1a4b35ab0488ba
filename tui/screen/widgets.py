"""The pages as widgets. They hold the operator's choices and render the state of their run."""

from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import Input

from edgeflock.shared.protocol.frames import DeviceRow, Event, Point
from edgeflock.tui.pages.config import config_page
from edgeflock.tui.pages.curves import X_AXES, XAxis
from edgeflock.tui.pages.device import device_page
from edgeflock.tui.pages.events import cursor_index, events_page, filter_events, scroll_to
from edgeflock.tui.pages.findings import findings_page
from edgeflock.tui.pages.header import placeholder
from edgeflock.tui.pages.overview import overview
from edgeflock.tui.screen.line_widget import LineWidget
from edgeflock.tui.screen.palette import Palette
from edgeflock.tui.sources import Source
from edgeflock.tui.sources.state import MonitorState
from edgeflock.tui.sources.state_history import extend
from edgeflock.tui.text.lines import Line, notice, page


class PageWidget(LineWidget, can_focus=True):
    DEFAULT_CSS: ClassVar[str] = "PageWidget { padding: 0 1; } FleetPage { padding: 0; }"

    class Opened(Message):
        """The user opened a device."""

        def __init__(self, device: int) -> None:
            super().__init__()
            self.device = device

    def __init__(self, source: Source, palette: Palette, *, id: str) -> None:
        super().__init__(palette, id=id)
        self.source = source

    @property
    def state(self) -> MonitorState | None:
        """The current state of the source."""
        return self.source.state

    def draw(self, width: int, height: int) -> list[Line]:
        if (state := self.state) is None:
            return notice(placeholder(self.source.name, self.source.link), width, height)
        return self.lines(state, width, height)

    def lines(self, state: MonitorState, width: int, height: int) -> list[Line]:
        raise NotImplementedError

    def open_device(self, name: str | None, item: str) -> None:
        """Open the device that `item`, an item of this page, names."""
        devices = {} if self.state is None else self.state.devices
        row = next((row for row in devices.values() if row.name == name), None)
        if row is not None:
            self.post_message(self.Opened(row.id))
            return
        message = f"this {item} has no device" if name is None else f"{name} is not in the run"
        self.app.notify(message, markup=False)

    def scroll_wheel(self, direction: int) -> None:
        """Follow the mouse wheel down (1) or up (-1)."""

    def on_mouse_scroll_down(self, _: events.MouseScrollDown) -> None:
        self.scroll_wheel(1)

    def on_mouse_scroll_up(self, _: events.MouseScrollUp) -> None:
        self.scroll_wheel(-1)


class OverviewPage(PageWidget):
    """The page of numbers and curves."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("x", "axis", "Axis", id="axis", tooltip="By time, updates or bytes"),
    ]
    x_axis: XAxis = "time"

    def lines(self, state: MonitorState, width: int, height: int) -> list[Line]:
        return overview(state, self.x_axis, width, height)

    def action_axis(self) -> None:
        self.x_axis = X_AXES[(X_AXES.index(self.x_axis) + 1) % len(X_AXES)]
        self.redraw()


class EventsPage(PageWidget):
    """The page of events. It follows the newest event until the user chooses an earlier one."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open", "Open", id="open_event", tooltip="The event's device"),
        Binding("up,k", "choose(1)", "Older", id="older", show=False),
        Binding("down,j", "choose(-1)", "Newer", id="newer", show=False),
        Binding("pageup", "choose(20)", "Much older", id="much_older", show=False),
        Binding("pagedown", "choose(-20)", "Much newer", id="much_newer", show=False),
        Binding("home", "choose(1000000)", "Oldest", id="oldest", show=False),
        Binding("end", "choose(-1000000)", "Newest", id="newest", show=False),
    ]
    skipped, filter_query = 0, ""
    chosen: Event | None = None
    """None means the newest event, also when new ones arrive."""

    def lines(self, state: MonitorState, width: int, height: int) -> list[Line]:
        found = filter_events(state.events, self.filter_query)
        index = cursor_index(found, self.chosen)
        self.skipped = scroll_to(index, self.skipped, len(found), height - 1)
        return events_page(state, found, self.filter_query, index, self.skipped, width, height)

    def filter(self, query: str) -> None:
        self.filter_query, self.skipped, self.chosen = query, 0, None
        self.redraw()

    def action_choose(self, older: int) -> None:
        if self.state is not None and (found := filter_events(self.state.events, self.filter_query)):
            index = max(0, min(cursor_index(found, self.chosen) + older, len(found) - 1))
            self.chosen = found[-1 - index] if index else None
            self.redraw()

    def action_open(self) -> None:
        if (state := self.state) is not None and (found := filter_events(state.events, self.filter_query)):
            self.open_device(found[-1 - cursor_index(found, self.chosen)].device, "event")

    def scroll_wheel(self, direction: int) -> None:
        self.action_choose(-3 * direction)


class FindingsPage(PageWidget):
    """The page of findings. The cursor stays on its finding."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open", "Open", id="open_finding", tooltip="The finding's device"),
        Binding("up,k", "choose(-1)", "Up", id="finding_up", show=False),
        Binding("down,j", "choose(1)", "Down", id="finding_down", show=False),
        Binding("home", "choose(-1000)", "First finding", id="first_finding", show=False),
        Binding("end", "choose(1000)", "Last finding", id="last_finding", show=False),
    ]
    index = 0
    chosen: tuple[str, str | None] | None = None
    """Kind and device. None means the worst finding, also when it changes."""

    def lines(self, state: MonitorState, width: int, height: int) -> list[Line]:
        return findings_page(state, self._cursor_index(state), width, height)

    def _cursor_index(self, state: MonitorState) -> int:
        found = [(finding.kind, finding.device) for finding in state.overview.findings]
        if self.chosen in found:
            self.index = found.index(self.chosen)
        self.index = max(0, min(self.index, len(found) - 1))
        return self.index

    def action_choose(self, step: int) -> None:
        if (state := self.state) is not None and (found := state.overview.findings):
            self.index = max(0, min(self._cursor_index(state) + step, len(found) - 1))
            self.chosen = (found[self.index].kind, found[self.index].device) if self.index else None
            self.redraw()

    def action_open(self) -> None:
        if (state := self.state) is not None and (found := state.overview.findings):
            self.open_device(found[self._cursor_index(state)].device, "finding")

    def scroll_wheel(self, direction: int) -> None:
        self.action_choose(direction)


class ConfigPage(PageWidget):
    """The page of the run's settings."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "scroll_by(-1)", "Up", id="config_up", show=False),
        Binding("down,j", "scroll_by(1)", "Down", id="config_down", show=False),
        Binding("pageup", "scroll_by(-20)", "Page up", id="config_page_up", show=False),
        Binding("pagedown", "scroll_by(20)", "Page down", id="config_page_down", show=False),
    ]
    top = 0

    def lines(self, state: MonitorState, width: int, height: int) -> list[Line]:
        lines = config_page(state, width)
        self.top = max(0, min(self.top, len(lines) - height))
        return page(lines[self.top :], width, height)

    def action_scroll_by(self, lines: int) -> None:
        self.top += lines
        self.redraw()

    def scroll_wheel(self, direction: int) -> None:
        self.action_scroll_by(3 * direction)


class DevicePage(PageWidget):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,left,k,h", "neighbour(-1)", "Device before", id="device_before", show=False),
        Binding("down,right,j,l", "neighbour(1)", "Next device", id="device_after", show=False),
    ]

    class Neighbour(Message):
        """The user asked for the device `step` rows further in the table."""

        def __init__(self, step: int) -> None:
            super().__init__()
            self.step = step

    def __init__(self, source: Source, palette: Palette, *, id: str) -> None:
        super().__init__(source, palette, id=id)
        self.device: int | None = None
        self.points: tuple[Point, ...] = ()

    @property
    def row(self) -> DeviceRow | None:
        """The device's row in the current state, or None if it is not in the run at this time."""
        state = self.state
        return state.devices.get(self.device) if state is not None and self.device is not None else None

    def show(self, device: int, points: tuple[Point, ...]) -> None:
        self.device, self.points = device, points
        self.redraw()

    def append_newest(self) -> None:
        """Add the device's values of the newest frame to its history."""
        state, row = self.state, self.row
        if state is not None and row is not None and not self.source.freshness().frozen:
            self.points = extend(self.points, row, state.time)

    def lines(self, state: MonitorState, width: int, height: int) -> list[Line]:
        if (row := self.row) is None:
            return notice([[("this device is not in the run at this time", "dim")]], width, height)
        points = [point for point in self.points if point.time <= state.time + 1]
        return device_page(state, row, points, width, height)

    def action_neighbour(self, step: int) -> None:
        self.post_message(self.Neighbour(step))


class FilterLine(Input):
    """The input line for a filter or a command. Escape submits an empty one."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "submit", "Keep"),
        Binding("escape", "clear", "Clear"),
    ]

    def action_clear(self) -> None:
        self.value = ""
        self.post_message(self.Submitted(self, ""))

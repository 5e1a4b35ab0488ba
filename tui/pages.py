"""The pages as widgets: they hold what the operator chose, and render the state of their run."""

from typing import TYPE_CHECKING, ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message

from edgeflock.shared.errors import ConfigError
from edgeflock.shared.frames import Point, Row
from edgeflock.tui import fleet, trace
from edgeflock.tui.curves import AGAINST, Against
from edgeflock.tui.lines import Line, notice, page
from edgeflock.tui.page_config import config_page
from edgeflock.tui.page_device import device_page
from edgeflock.tui.page_events import events_page, matching
from edgeflock.tui.page_fleet import Window, columns_at, fleet_page, name_width, scrolled
from edgeflock.tui.page_overview import overview
from edgeflock.tui.painted import Painted
from edgeflock.tui.state import State

if TYPE_CHECKING:
    from edgeflock.tui.run_view import RunView


class PageWidget(Painted, can_focus=True):
    """One page of a run."""

    DEFAULT_CSS: ClassVar[str] = "PageWidget { padding: 0 1; } FleetPage { padding: 0; }"

    def __init__(self, view: "RunView", *, id: str) -> None:
        super().__init__(id=id)
        self.view = view

    def draw(self, width: int, height: int) -> list[Line]:
        state = self.view.state
        return (
            notice(self.view.absent(), width, height) if state is None else self.lines(state, width, height)
        )

    def lines(self, state: State, width: int, height: int) -> list[Line]:
        raise NotImplementedError

    @property
    def body(self) -> int:
        """Lines of a list that are on screen at once."""
        return max(1, self.size.height - 1)


class OverviewPage(PageWidget):
    """Numbers and curves."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("x", "axis", "Axis", id="axis", tooltip="Curves against time, updates or bytes"),
    ]
    against: Against = "time"

    def lines(self, state: State, width: int, height: int) -> list[Line]:
        return overview(state, self.against, width, height)

    def action_axis(self) -> None:
        self.against = AGAINST[(AGAINST.index(self.against) + 1) % len(AGAINST)]
        self.redraw()


class FleetPage(PageWidget):
    """The table of devices. Of thousands of rows, only the visible ones are ever drawn."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open", "Open", id="open", tooltip="A closer look"),
        Binding("s", "sort(1)", "Sort", id="sort", tooltip="Sort by the next column"),
        Binding("S", "sort(-1)", "Sort by the one before", id="sort_before", show=False),
        Binding("r", "reverse", "The other way round", id="reverse", show=False),
        Binding("up,k", "move(-1)", "Up", id="up", show=False),
        Binding("down,j", "move(1)", "Down", id="down", show=False),
        Binding("pageup", "page(-1)", "Page up", id="page_up", show=False),
        Binding("pagedown", "page(1)", "Page down", id="page_down", show=False),
        Binding("home", "move(-1000000000)", "First device", id="first", show=False),
        Binding("end", "move(1000000000)", "Last device", id="last", show=False),
        Binding("left,h", "columns(-1)", "Columns to the left", id="columns_left", show=False),
        Binding("right,l", "columns(1)", "Columns to the right", id="columns_right", show=False),
    ]

    class Opened(Message):
        """A device was chosen for a closer look."""

        def __init__(self, device: int) -> None:
            super().__init__()
            self.device = device

    def __init__(self, view: "RunView", *, id: str) -> None:
        super().__init__(id=id, view=view)
        self.look = fleet.View()
        self.window = Window()
        self.trouble: str | None = None
        self._rows: list[Row] = []
        self._rest: list[fleet.Column] = list(fleet.COLUMNS[1:])
        """The columns behind the name, in order."""
        self._shown: tuple[object, ...] = ()
        self._chosen: int | None = None
        """The device that the cursor stays on, wherever it is sorted to."""

    @property
    def body(self) -> int:
        return max(1, self.size.height - 2)

    @property
    def chosen(self) -> Row | None:
        """The device under the cursor."""
        self._select()
        return self._rows[self.window.cursor] if self._rows else None

    def lines(self, state: State, width: int, height: int) -> list[Line]:
        self._select()
        return fleet_page(
            state,
            self._rows,
            self._rest,
            self.look,
            self.app.labels,
            self.window,
            self.trouble,
            width,
            height,
        )

    def _select(self) -> None:
        """Which devices are shown, if state or view have changed since; the cursor follows its device."""
        state, shown = self.view.state, (self.view.state, self.look, self.app.labels_version)
        if state is None or shown == self._shown:
            return
        self._shown = shown
        try:
            self._rows = fleet.select(state, self.look, self.app.labels)
            self._rest = fleet.told(list(state.devices.values()), self.app.labels)
            self.trouble = None
        except ConfigError as error:
            self.trouble = str(error)
        cursor = self.window.cursor
        if self._chosen is not None:
            cursor = next((n for n, row in enumerate(self._rows) if row.id == self._chosen), cursor)
        self._place(cursor)

    def _place(self, cursor: int) -> None:
        window = Window(cursor, self.window.top, self.window.first)
        self.window = scrolled(window, len(self._rows), self.body)
        self._chosen = self._rows[self.window.cursor].id if self._rows else None

    def filter(self, query: str) -> None:
        """Show the devices that match."""
        self.look = fleet.View(self.look.sort, self.look.reverse, query)
        self.redraw()

    def sort_by(self, key: str) -> None:
        """Sort by a column; by the same one again: the other way round."""
        reverse = not self.look.reverse if key == self.look.sort else key not in ("name", "state", "class")
        self.look = fleet.View(key, reverse, self.look.query)
        self.redraw()

    def _columns(self) -> list[tuple[fleet.Column, int, int]]:
        """(column, start, end) of those in sight."""
        state, width = self.view.state, self.size.width
        if state is None:
            return []
        return columns_at(self._rest, self.window.first, width, name_width(state, width))

    def action_sort(self, step: int) -> None:
        """By the next visible column."""
        if keys := [column.key for column, _, _ in self._columns()]:
            at = keys.index(self.look.sort) if self.look.sort in keys else -1
            self.sort_by(keys[(at + step) % len(keys)])

    def action_reverse(self) -> None:
        self.look = fleet.View(self.look.sort, not self.look.reverse, self.look.query)
        self.redraw()

    def action_move(self, rows: int) -> None:
        self._select()
        self._place(self.window.cursor + rows)
        self.redraw()

    def action_page(self, direction: int) -> None:
        self.action_move(direction * max(1, self.body - 1))

    def action_columns(self, step: int) -> None:
        self.window = scrolled(
            Window(self.window.cursor, self.window.top, self.window.first + step), len(self._rows), self.body
        )
        self.redraw()

    def action_open(self) -> None:
        if (row := self.chosen) is not None:
            self.post_message(self.Opened(row.id))

    def on_click(self, event: events.Click) -> None:
        if event.y == 0:
            for column, start, end in self._columns():
                if start <= event.x < end:
                    self.sort_by(column.key)
            return
        at = self.window.top + event.y - 1
        if event.y <= self.body and at < len(self._rows):
            again = at == self.window.cursor
            self._place(at)
            self.redraw()
            if again and event.chain > 1:
                self.action_open()

    def on_mouse_scroll_down(self, _: events.MouseScrollDown) -> None:
        self.action_move(3)

    def on_mouse_scroll_up(self, _: events.MouseScrollUp) -> None:
        self.action_move(-3)


class EventsPage(PageWidget):
    """The log; it follows its end until one scrolls back."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "scroll_by(1)", "Older", id="older", show=False),
        Binding("down,j", "scroll_by(-1)", "Newer", id="newer", show=False),
        Binding("pageup", "scroll_by(20)", "Much older", id="much_older", show=False),
        Binding("pagedown", "scroll_by(-20)", "Much newer", id="much_newer", show=False),
        Binding("home", "scroll_by(1000000)", "Oldest", id="oldest", show=False),
        Binding("end", "scroll_by(-1000000)", "Newest", id="newest", show=False),
    ]
    back, words = 0, ""

    def lines(self, state: State, width: int, height: int) -> list[Line]:
        return events_page(state, self.words, self.back, width, height)

    def filter(self, query: str) -> None:
        self.words, self.back = query, 0
        self.redraw()

    def action_scroll_by(self, lines: int) -> None:
        if self.view.state is not None:
            most = len(matching(self.view.state.events, self.words)) - self.body
            self.back = max(0, min(self.back + lines, most))
            self.redraw()

    def on_mouse_scroll_down(self, _: events.MouseScrollDown) -> None:
        self.action_scroll_by(-3)

    def on_mouse_scroll_up(self, _: events.MouseScrollUp) -> None:
        self.action_scroll_by(3)


class ConfigPage(PageWidget):
    """The run's settings."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "scroll_by(-1)", "Up", id="config_up", show=False),
        Binding("down,j", "scroll_by(1)", "Down", id="config_down", show=False),
        Binding("pageup", "scroll_by(-20)", "Page up", id="config_page_up", show=False),
        Binding("pagedown", "scroll_by(20)", "Page down", id="config_page_down", show=False),
    ]
    top = 0

    def lines(self, state: State, width: int, height: int) -> list[Line]:
        lines = config_page(state, width)
        self.top = max(0, min(self.top, len(lines) - height))
        return page(lines[self.top :], width, height)

    def action_scroll_by(self, lines: int) -> None:
        self.top += lines
        self.redraw()

    def on_mouse_scroll_down(self, _: events.MouseScrollDown) -> None:
        self.action_scroll_by(3)

    def on_mouse_scroll_up(self, _: events.MouseScrollUp) -> None:
        self.action_scroll_by(-3)


class DevicePage(PageWidget):
    """A closer look at one device."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,left,k,h", "neighbour(-1)", "Device before", id="device_before", show=False),
        Binding("down,right,j,l", "neighbour(1)", "Next device", id="device_after", show=False),
    ]
    device: int | None = None
    points: tuple[Point, ...] = ()

    @property
    def row(self) -> Row | None:
        state = self.view.state
        return state.devices.get(self.device) if state is not None and self.device is not None else None

    def show(self, device: int, points: tuple[Point, ...]) -> None:
        self.device, self.points = device, points
        self.redraw()

    def follow(self) -> None:
        """Take note of what the newest frame says of the device."""
        state, row = self.view.state, self.row
        if state is not None and row is not None and not self.view.source.freshness().frozen:
            self.points = trace.extend(self.points, row, state.time)

    def lines(self, state: State, width: int, height: int) -> list[Line]:
        if (row := self.row) is None:
            return notice([[("this device is not in the run at this time", "dim")]], width, height)
        points = [point for point in self.points if point.time <= state.time + 1]
        return device_page(state, row, points, self.app.labels, width, height)

    def action_neighbour(self, step: int) -> None:
        self.view.fleet.action_move(step)
        self.view.fleet.action_open()

"""The table of devices as a widget: its cursor, order, filter and visible part."""

from collections.abc import Sequence
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType

from edgeflock.shared.errors import ConfigError
from edgeflock.shared.protocol.frames import DeviceRow
from edgeflock.tui.pages import fleet
from edgeflock.tui.pages.table import DeviceTable, Window, column_positions, fleet_page, name_width, scroll
from edgeflock.tui.screen.palette import Palette
from edgeflock.tui.screen.widgets import PageWidget
from edgeflock.tui.sources import Source
from edgeflock.tui.sources.state import MonitorState
from edgeflock.tui.text.lines import Line


class FleetPage(PageWidget):
    """The table of devices. It draws only the visible rows, even of thousands."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open", "Open", id="open", tooltip="Open the device"),
        Binding("m", "mark", "Mark", id="mark", show=False, tooltip="Mark or unmark it"),
        Binding("M", "mark_all", "Mark all that are shown", id="mark_all", show=False),
        Binding("s", "sort(1)", "Sort", id="sort", tooltip="Sort by the next column"),
        Binding("S", "sort(-1)", "Sort by previous column", id="sort_before", show=False),
        Binding("r", "reverse", "Reverse the order", id="reverse", show=False),
        Binding("up,k", "move(-1)", "Up", id="up", show=False),
        Binding("down,j", "move(1)", "Down", id="down", show=False),
        Binding("pageup", "page(-1)", "Page up", id="page_up", show=False),
        Binding("pagedown", "page(1)", "Page down", id="page_down", show=False),
        Binding("home", "move(-1000000000)", "First device", id="first", show=False),
        Binding("end", "move(1000000000)", "Last device", id="last", show=False),
        Binding("left,h", "columns(-1)", "Columns to the left", id="columns_left", show=False),
        Binding("right,l", "columns(1)", "Columns to the right", id="columns_right", show=False),
    ]

    def __init__(
        self,
        source: Source,
        palette: Palette,
        columns: Sequence[fleet.Column] = (),
        *,
        id: str,
    ) -> None:
        """`columns` are those after the name. None means all."""
        super().__init__(source, palette, id=id)
        self._wanted_columns = columns
        self.view = fleet.View()
        self.window = Window()
        self.error: str | None = None
        self._rows: list[DeviceRow] = []
        self._columns_after_name: list[fleet.Column] = list(fleet.COLUMNS[1:])
        """The columns after the name, in order."""
        self._shown: tuple[object, ...] = ()
        self._chosen: int | None = None
        """The device under the cursor, which follows it when the order changes."""
        self._marks: frozenset[int] = frozenset()

    @property
    def filter_query(self) -> str:
        """The filter's query."""
        return self.view.query

    @property
    def visible_rows(self) -> int:
        return max(1, self.size.height - 2)

    @property
    def chosen(self) -> DeviceRow | None:
        """The device under the cursor."""
        self._select()
        return self._rows[self.window.cursor] if self._rows else None

    @property
    def marked(self) -> list[DeviceRow]:
        """The devices for the next action, shown or not, in the order of their names."""
        known = self.state.devices if self.state is not None else {}
        rows = [known[device] for device in self._marks if device in known]
        return sorted(rows, key=lambda row: fleet.natural_key(row.name))

    def unmark(self) -> None:
        """Remove all marks."""
        self._marks = frozenset()
        self.redraw()

    def lines(self, state: MonitorState, width: int, height: int) -> list[Line]:
        self._select()
        marked = self._marks & state.devices.keys()
        table = DeviceTable(self._rows, self._columns_after_name, self.view, self.window, self.error, marked)
        return fleet_page(state, table, width, height)

    def _select(self) -> None:
        """Select the devices again if state or view have changed. The cursor follows its device."""
        state = self.state
        shown = (state, self.view)
        if state is None or shown == self._shown:
            return
        self._shown = shown
        try:
            self._rows = fleet.select(state, self.view)
            columns = [column for column in self._wanted_columns if column is not fleet.COLUMNS[0]]
            self._columns_after_name = columns or fleet.order_columns(list(state.devices.values()))
            self.error = None
        except ConfigError as error:
            self.error = str(error)
        cursor = self.window.cursor
        if self._chosen is not None:
            cursor = next((n for n, row in enumerate(self._rows) if row.id == self._chosen), cursor)
        self._move_cursor(cursor)

    def _move_cursor(self, cursor: int) -> None:
        window = Window(cursor, self.window.top, self.window.first)
        self.window = scroll(window, len(self._rows), self.visible_rows)
        self._chosen = self._rows[self.window.cursor].id if self._rows else None

    def move_cursor_to(self, device: int) -> None:
        """Put the cursor on this device, if it is shown."""
        self._chosen, self._shown = device, ()
        self._select()

    def choose(self, columns: Sequence[fleet.Column]) -> None:
        """Show these columns after the name. None means all."""
        self._wanted_columns, self._shown = columns, ()
        self.window = Window(self.window.cursor, self.window.top)
        self.redraw()

    def filter(self, query: str) -> None:
        """Show the devices that match."""
        self.view = fleet.View(self.view.sort, self.view.reverse, query)
        self.redraw()

    def sort_by(self, key: str) -> None:
        """Sort by a column. A second call with the same column reverses the order."""
        reverse = not self.view.reverse if key == self.view.sort else key not in ("name", "state", "class")
        self.view = fleet.View(key, reverse, self.view.query)
        self.redraw()

    def _columns(self) -> list[tuple[fleet.Column, int, int]]:
        """Return (column, start, end) of the visible columns."""
        state, width = self.state, self.size.width
        if state is None:
            return []
        return column_positions(self._columns_after_name, self.window.first, width, name_width(state, width))

    def action_sort(self, step: int) -> None:
        """Sort by the next visible column."""
        if keys := [column.key for column, _, _ in self._columns()]:
            index = keys.index(self.view.sort) if self.view.sort in keys else -1
            self.sort_by(keys[(index + step) % len(keys)])

    def action_reverse(self) -> None:
        self.view = fleet.View(self.view.sort, not self.view.reverse, self.view.query)
        self.redraw()

    def action_move(self, rows: int) -> None:
        self._select()
        self._move_cursor(self.window.cursor + rows)
        self.redraw()

    def action_page(self, direction: int) -> None:
        self.action_move(direction * max(1, self.visible_rows - 1))

    def action_columns(self, step: int) -> None:
        first = min(self.window.first + step, len(self._columns_after_name) - 1)
        self.window = scroll(
            Window(self.window.cursor, self.window.top, first), len(self._rows), self.visible_rows
        )
        self.redraw()

    def action_mark(self) -> None:
        """Toggle the mark of the device under the cursor, and move to the next one."""
        if (row := self.chosen) is not None:
            self._marks ^= {row.id}
            self.action_move(1)

    def action_mark_all(self) -> None:
        """Mark all devices that match the filter. If all are marked, unmark them."""
        self._select()
        shown = {row.id for row in self._rows}
        self._marks = self._marks - shown if shown <= self._marks else self._marks | shown
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
        index = self.window.top + event.y - 1
        if event.y <= self.visible_rows and index < len(self._rows):
            was_chosen = index == self.window.cursor
            self._move_cursor(index)
            self.redraw()
            if was_chosen and event.chain > 1:
                self.action_open()

    def scroll_wheel(self, direction: int) -> None:
        self.action_move(3 * direction)

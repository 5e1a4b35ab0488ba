"""The table of devices as data: its columns, its order, and the selected devices."""

import difflib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from edgeflock.shared.errors import ConfigError
from edgeflock.shared.protocol.frames import DeviceRow
from edgeflock.tui.pages import query
from edgeflock.tui.sources.state import MonitorState
from edgeflock.tui.text import numbers
from edgeflock.tui.text.lines import Align, Ink


@dataclass(frozen=True, slots=True)
class Column:
    key: str
    title: str
    width: int
    value: Callable[[DeviceRow], Any]
    """Returns the key for sorting. None sorts last."""
    text: Callable[[DeviceRow, MonitorState], str]
    """(row, state of the run) -> the text of the cell."""
    description: str
    align: Align = "right"


@dataclass(frozen=True, slots=True)
class View:
    """The order and the filter that an operator chose."""

    sort: str = "name"
    reverse: bool = False
    query: str = ""


STATES: dict[str, tuple[str, Ink]] = {
    "training": ("●", "good"),
    "waiting": ("◔", "dim"),
    "starved": ("◌", "warn"),
    "idle": ("○", "warn"),
    "paused": ("‖", "accent"),
    "away": ("·", "dim"),
}
"""State -> its sign and ink. Each state has a sign, so that colour is never the only difference."""


@lru_cache(1 << 15)
def natural_key(text: str) -> list[tuple[int, int, str]]:
    """Return a key that sorts pi-2 before pi-10."""
    return [
        (0, int(part), "") if part.isdecimal() else (1, 0, part)
        for part in re.split(r"(\d+)", text.lower())
        if part
    ]


def _column(
    key: str, title: str, width: int, form: Callable[[Any], str], description: str, align: Align = "right"
) -> Column:
    field = query.KEYS[key]
    return Column(
        *(key, title, width),
        lambda row: getattr(row, field),
        lambda row, state: form(getattr(row, field)),
        *(description, align),
    )


def _optional_text(value: str | None) -> str:
    return numbers.NOTHING if value is None else numbers.plain(value)


def _measure(form: str) -> Callable[[float | None], str]:
    return lambda value: numbers.NOTHING if value is None else form.format(value)


COLUMNS: tuple[Column, ...] = (
    Column(
        "name",
        "device",
        16,
        lambda row: natural_key(row.name),
        lambda row, state: numbers.plain(row.name) + (" ↯" if row.undervoltage else ""),
        "the device's name; ✕ ▲ ○: a finding names it; ↯: its voltage is too low",
        "left",
    ),
    Column(
        "state",
        "state",
        10,
        lambda row: row.state,
        lambda row, state: f"{STATES[row.state][0]} {row.state}",
        "training, waiting (for its turn), idle (connected, but long silent), starved (idle without "
        "samples), paused or away",
        "left",
    ),
    _column("class", "class", 7, _optional_text, "what kind of machine it says it is", "left"),
    _column("loss", "loss", 6, numbers.decimal, "of its last update"),
    _column("staleness", "stale", 5, numbers.count, "versions between its last update's base and the model"),
    _column("updates", "updates", 7, numbers.count, "updates that count"),
    _column("rate", "rate", 5, numbers.rate, "samples a second that arrive at it"),
    _column("batch", "batch", 5, numbers.count, "samples a step"),
    Column(
        "last_seen",
        "seen",
        4,
        lambda row: row.last_seen,
        lambda row, state: numbers.age(None if row.last_seen is None else state.time - row.last_seen),
        "time since its last message",
    ),
    _column("ingress", "in", 7, numbers.size, "bytes received from it"),
    _column("egress", "out", 7, numbers.size, "bytes sent to it"),
    _column("smoothed_loss", "~loss", 6, numbers.decimal, "moving average over its recent updates"),
    _column("updates_per_s", "upd/s", 5, numbers.rate, "its recent updates a second"),
    Column(
        "contribution",
        "part",
        5,
        lambda row: row.updates,
        lambda row, state: numbers.percent(contribution(row, state)),
        "its part of the updates in the model",
    ),
    _column("depth", "depth", 6, numbers.count, "samples that wait in its buffer"),
    _column("cpu", "cpu", 4, _measure("{:.0f}%"), "of all its cores"),
    Column(
        "ram",
        "ram",
        9,
        lambda row: row.ram,
        lambda row, state: numbers.memory(row.ram, row.memory),
        "used and total memory",
    ),
    _column("temperature", "temp", 4, _measure("{:.0f}°"), "Celsius"),
    _column("battery", "batt", 4, _measure("{:.0f}%"), "battery"),
    _column("backend", "backend", 7, _optional_text, "what it trains with", "left"),
    _column("refused", "refused", 7, numbers.count, "updates that were refused"),
    _column("clipped", "clipped", 7, numbers.count, "updates that the defence scaled down"),
    _column("dropped", "dropped", 7, numbers.count, "updates that the defence dropped"),
    _column(
        "standing", "stand", 6, _measure("{:+.3f}"), "how its updates agree with the server's own gradient"
    ),
    _column("drops", "drops", 6, numbers.count, "samples that its buffer had no room for"),
    _column("quarantined", "quarantined", 11, numbers.count, "samples that were unfit for training"),
    _column("duplicates", "duplicates", 10, numbers.count, "samples that had come before"),
    _column(
        "stream_accuracy",
        "accuracy",
        8,
        numbers.percent,
        "part of its last samples predicted right before it trained on them",
    ),
    _column(
        "stream_loss", "stream loss", 11, numbers.decimal, "on its last samples before they were trained on"
    ),
    _column("shards", "shards", 6, numbers.count, "data shards that it holds, in a run of tasks"),
    _column("repeated", "repeated", 8, numbers.count, "its results of shards that already had one"),
    _column("paused_because", "paused because", 20, _optional_text, "who paused it, and why", "left"),
    _column("why_left", "left because", 20, _optional_text, "why its last session ended", "left"),
    _column("labels", "labels", 16, _optional_text, "labels of its owner and of operators", "left"),
    _column("edgeflock", "version", 8, _optional_text, "its version of Edgeflock", "left"),
)
BY_KEY = {column.key: column for column in COLUMNS}


def contribution(row: DeviceRow, state: MonitorState) -> float | None:
    """Return the part of the model's updates that come from the device."""
    return row.updates / state.overview.version if state.overview.version else None


def select(state: MonitorState, view: View) -> list[DeviceRow]:
    """Return the devices to show, in order. Unknown values come last in both directions.

    Raises ConfigError if the query has an unknown key.
    """
    test = query.parse(view.query, state.time)
    rows = (
        [row for row in state.devices.values() if test(row)] if view.query else list(state.devices.values())
    )
    value = BY_KEY[view.sort].value
    known = [(key, row) for row in rows if (key := value(row)) is not None]
    unknown = [row for row in rows if value(row) is None]
    known.sort(key=lambda pair: (pair[0], pair[1].id), reverse=view.reverse)
    return [row for _, row in known] + unknown


def ink(column: Column, row: DeviceRow) -> Ink:
    """Return the ink of a cell. Normal values are plain, so that unusual values stand out."""
    if row.state == "away" and column.key not in ("name", "state"):
        return "dim"
    if column.key == "state":
        return STATES[row.state][1]
    if column.key == "temperature" and row.temperature is not None and row.temperature >= 75:
        return "bad" if row.temperature >= 85 else "warn"
    if column.key == "battery" and row.battery is not None and row.battery < 30:
        return "bad" if row.battery < 15 else "warn"
    if column.key == "ram" and row.ram is not None and row.memory and row.ram >= 0.9 * row.memory:
        return "warn"
    if column.key == "standing" and row.standing is not None and row.standing < 0:
        return "warn"
    if column.key in ("refused", "clipped", "dropped", "drops", "quarantined") and getattr(row, column.key):
        return "warn"
    if column.key == "name" and row.undervoltage:
        return "bad"
    if column.key in ("class", "backend", "egress", "last_seen"):
        return "dim"
    return "accent" if column.key == "paused_because" else "text"


def order_columns(rows: Sequence[DeviceRow]) -> list[Column]:
    """Return the columns after the name. Those with values of any device come first."""
    columns = COLUMNS[1:]
    filled = [column for column in columns if any(column.value(row) is not None for row in rows)]
    return filled + [column for column in columns if column not in filled]


def find_column(name: str) -> Column:
    """Return the column with this title or key. Raises ConfigError."""
    known = {column.title: column for column in COLUMNS} | BY_KEY
    if name not in known:
        raise ConfigError(f"there is no column {name!r}; {hint(name, [*known], [*BY_KEY])}")
    return known[name]


def hint(name: str, names: Sequence[str], shown: Sequence[str] = ()) -> str:
    """Return the remedy for an unknown name: a similar one of `names`, or else those of `shown`, or all."""
    matches = difflib.get_close_matches(name, names, n=1)
    return f"did you mean {matches[0]}?" if matches else f"known are {', '.join(shown or names)}"


def fit_columns(
    columns: Sequence[Column], width: int, first: int, name_width: int
) -> tuple[list[tuple[Column, int]], int]:
    """Return (column, width) of the name and of those from `first` that fit, and how many do not fit."""
    chosen = [(COLUMNS[0], name_width)]
    space = width - name_width
    for column in columns[first:]:
        if column.width + 1 > space:
            break
        space -= column.width + 1
        chosen.append((column, column.width))
    return chosen, len(columns[first:]) - (len(chosen) - 1)

"""The recent states of a live run, for stepping back, and the history of one device."""

from collections import deque
from collections.abc import Iterable, Sequence

from edgeflock.shared.protocol.frames import DeviceRow, Point
from edgeflock.tui.sources.state import MAX_POINTS, MonitorState

MAX_STATES = 900
"""The most states that are kept."""
MAX_ROWS = 100_000
"""The most changed rows between them: half a KiB each, so about 50 MiB."""


class StateHistory:
    """A bounded list of the newest states, and the one that is shown."""

    def __init__(self, max_states: int = MAX_STATES, max_rows: int = MAX_ROWS) -> None:
        self._max_states, self._max_rows = max_states, max_rows
        self._states: deque[MonitorState] = deque()
        self._rows = 0
        self._index: int | None = None
        """The index of the frozen state. None means the newest."""

    def __len__(self) -> int:
        return len(self._states)

    @property
    def frozen(self) -> bool:
        return self._index is not None

    @property
    def newest(self) -> MonitorState | None:
        return self._states[-1] if self._states else None

    @property
    def displayed(self) -> MonitorState | None:
        return self.newest if self._index is None else self._states[self._index]

    @property
    def lag(self) -> float:
        """Seconds between the displayed state and the newest one."""
        return self._states[-1].time - self._states[self._index].time if self._index is not None else 0.0

    def add(self, state: MonitorState) -> None:
        """Add a state. The oldest are removed, except the displayed one."""
        self._states.append(state)
        self._rows += state.changed_rows
        while len(self._states) > 2 and (len(self._states) > self._max_states or self._rows > self._max_rows):
            if self._index is not None:
                if self._index == 0:
                    self._remove(1)
                    continue
                self._index -= 1
            self._remove(0)

    def _remove(self, index: int) -> None:
        self._rows -= self._states[index].changed_rows
        del self._states[index]

    def toggle(self) -> None:
        if self._states:
            self._index = None if self._index is not None else len(self._states) - 1

    def step(self, frames: int) -> None:
        if self._states:
            index = len(self._states) - 1 if self._index is None else self._index
            self._index = max(0, min(index + frames, len(self._states) - 1))

    def rows(self, device: int) -> list[tuple[float, DeviceRow]]:
        """Return (time, row) of a device, up to the displayed state."""
        states = list(self._states)[: len(self._states) if self._index is None else self._index + 1]
        return [(state.time, state.devices[device]) for state in states if device in state.devices]


def extend(points: Sequence[Point], row: DeviceRow, now: float) -> tuple[Point, ...]:
    """Return `points` with the device's values at `now`, if it made an update since the last point."""
    last = points[-1] if points else None
    if row.updates == 0 or (last is not None and row.ingress <= last.bytes):
        return tuple(points)
    time = min(now, row.last_seen) if row.last_seen is not None else now
    if last is not None and time <= last.time:
        time = now
    return (*points, Point(time, row.loss, row.staleness, row.ingress))[-MAX_POINTS:]


def collect_points(states: Iterable[tuple[float, DeviceRow]]) -> tuple[Point, ...]:
    """Return the history of a series of (time, row)."""
    points: tuple[Point, ...] = ()
    for now, row in states:
        points = extend(points, row, now)
    return points

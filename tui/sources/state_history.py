"""The recent past of a run that is watched live, for stepping back."""

from collections import deque

from edgeflock.shared.protocol.frames import DeviceRow
from edgeflock.tui.sources.state import MonitorState

MOST_KEPT = 900
"""States kept for stepping back, and"""
MOST_ROWS = 100_000
"""the devices' rows that may have changed between them: half a KiB each, so about 50 MiB."""


class StateHistory:
    """The newest states, bounded, and which of them is shown."""

    def __init__(self, most: int = MOST_KEPT, most_rows: int = MOST_ROWS) -> None:
        self._most, self._most_rows = most, most_rows
        self._states: deque[MonitorState] = deque()
        self._rows = 0
        self._at: int | None = None
        """The one shown while frozen; None: the newest."""

    def __len__(self) -> int:
        return len(self._states)

    @property
    def frozen(self) -> bool:
        return self._at is not None

    @property
    def newest(self) -> MonitorState | None:
        return self._states[-1] if self._states else None

    @property
    def shown(self) -> MonitorState | None:
        return self.newest if self._at is None else self._states[self._at]

    @property
    def behind(self) -> float:
        """Seconds between what is shown and the newest."""
        return self._states[-1].time - self._states[self._at].time if self._at is not None else 0.0

    def add(self, state: MonitorState) -> None:
        """Keep one more; the oldest go, except the one that is looked at."""
        self._states.append(state)
        self._rows += state.changed
        while len(self._states) > 2 and (len(self._states) > self._most or self._rows > self._most_rows):
            if self._at is not None:
                if self._at == 0:
                    self._forget(1)
                    continue
                self._at -= 1
            self._forget(0)

    def _forget(self, which: int) -> None:
        self._rows -= self._states[which].changed
        del self._states[which]

    def toggle(self) -> None:
        if self._states:
            self._at = None if self._at is not None else len(self._states) - 1

    def step(self, frames: int) -> None:
        if self._states:
            at = len(self._states) - 1 if self._at is None else self._at
            self._at = max(0, min(at + frames, len(self._states) - 1))

    def rows(self, device: int) -> list[tuple[float, DeviceRow]]:
        """(time, row) of a device, up to what is shown."""
        states = list(self._states)[: len(self._states) if self._at is None else self._at + 1]
        return [(state.time, state.devices[device]) for state in states if device in state.devices]

"""The recent states of a live run, for stepping back."""

from collections import deque

from edgeflock.shared.protocol.frames import DeviceRow
from edgeflock.tui.sources.state import MonitorState

MOST_KEPT = 900
"""The most states that are kept."""
MOST_ROWS = 100_000
"""The most changed rows between them: half a KiB each, so about 50 MiB."""


class StateHistory:
    """A bounded list of the newest states, and the one that is shown."""

    def __init__(self, most: int = MOST_KEPT, most_rows: int = MOST_ROWS) -> None:
        self._most, self._most_rows = most, most_rows
        self._states: deque[MonitorState] = deque()
        self._rows = 0
        self._at: int | None = None
        """The index of the frozen state. None means the newest."""

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
        """Seconds between the displayed state and the newest one."""
        return self._states[-1].time - self._states[self._at].time if self._at is not None else 0.0

    def add(self, state: MonitorState) -> None:
        """Add a state. The oldest are removed, except the displayed one."""
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
        """Return (time, row) of a device, up to the displayed state."""
        states = list(self._states)[: len(self._states) if self._at is None else self._at + 1]
        return [(state.time, state.devices[device]) for state in states if device in state.devices]

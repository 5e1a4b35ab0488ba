"""The cohort: few of the present devices take part in a round, or train at a time, which saves bytes.

FedAvg draws a new cohort each round (H. B. McMahan et al., AISTATS 2017, algorithm 1). Here a device takes
part in several rounds in a row. A device needs few bytes to follow a model that it had a round ago, and many
after a pause (sticky sampling: S. He et al., "GlueFL", MLSys 2023). The device that has waited longest is
next. Seats become free a few at a time, because the first devices have shorter turns.

Pure, and not part of a replay: the journal has the resulting rounds. A restarted server counts anew.
"""

from collections.abc import Iterable, Set

from edgeflock.shared.settings.coordination import CoordinationSettings


class Cohort:
    """Tracks which devices take part, and which wait. In asynchronous mode each update is a round."""

    def __init__(self, size: int, turns: int) -> None:
        """`size` devices take part at a time, each for `turns` rounds."""
        self._turns = turns
        self._free = [1 + seat % turns for seat in range(size)]
        """For each free seat, the number of rounds that its next device stays for."""
        self._rounds_left: dict[int, int] = {}
        """Participating device -> the rounds that it has left, the open one included."""
        self._waiting: dict[int, None] = {}
        """Waiting devices, in order of arrival."""
        self._seated: set[int] | None = None
        """Devices that have had a seat since the last round ended. None before the first round ends: then
        all may contribute, because an earlier server may have selected them.
        """

    @classmethod
    def from_settings(cls, settings: CoordinationSettings) -> "Cohort | None":
        """None: all devices take part."""
        return cls(settings.cohort, settings.cohort_rounds) if settings.cohort else None

    @property
    def members(self) -> Set[int]:
        """The devices that take part in the open round."""
        return self._rounds_left.keys()

    @property
    def waiting(self) -> int:
        """How many present devices do not take part."""
        return len(self._waiting)

    def may_contribute(self, device: int) -> bool:
        """Whether the device has, or had, a seat in this round. It may contribute after it lost its seat."""
        return self._seated is None or device in self._seated

    def add_device(self, device: int) -> None:
        """Add a present device. Idempotent."""
        if device not in self._rounds_left:
            self._waiting.setdefault(device)
            self._fill()

    def remove_device(self, device: int) -> None:
        """Remove a device. The next one takes its seat for the rounds that were left."""
        self._waiting.pop(device, None)
        if (rounds := self._rounds_left.pop(device, None)) is not None:
            self._free.append(rounds)
            self._fill()

    def miss_turns(self, devices: Iterable[int]) -> None:
        """These have missed their turn: the next ones take their seats, and those present wait again."""
        for device in devices:
            if device in self._rounds_left:
                self.remove_device(device)
                self.add_device(device)

    def end_round(self, late: Iterable[int] = ()) -> None:
        """End a round. The participants in `late` missed it and lose their seats at once."""
        for device in late:
            self._rounds_left[device] = 1
        self.shorten_turns()
        self._seated = set(self._rounds_left)

    def shorten_turns(self, devices: Iterable[int] | None = None) -> None:
        """Shorten the turns of `devices` (None: of all participants) by a round, and seat waiting devices."""
        for device in list(self._rounds_left if devices is None else self._rounds_left.keys() & devices):
            self._rounds_left[device] -= 1
            if not self._rounds_left[device]:
                del self._rounds_left[device]
                self._free.append(self._turns)
                self._waiting[device] = None
        self._fill()

    def _fill(self) -> None:
        while self._free and self._waiting:
            device = next(iter(self._waiting))
            del self._waiting[device]
            self._rounds_left[device] = self._free.pop(0)
            if self._seated is not None:
                self._seated.add(device)

"""Whose turn it is: of many devices that are there a few take part in each round, so that it costs few bytes.

FedAvg draws them anew each round (H. B. McMahan et al., AISTATS 2017, algorithm 1). Here a device takes part
in several rounds in a row before it makes room, since it needs little of a model that it had a round ago, and
much of one that has moved on without it (sticky sampling: S. He et al., "GlueFL", MLSys 2023). Who comes next
is who has waited longest. Seats become free a few at a time: the first devices have shorter turns.

Pure, and no part of a replay: the journal has the rounds that came of it. A restarted server counts anew.
"""

from collections.abc import Iterable, Set


class Cohort:
    """Who takes part in the open round, and who waits. A device that is not known waits."""

    def __init__(self, size: int, turns: int) -> None:
        """`size` devices at a time, each for so many rounds."""
        self._turns = turns
        self._free = [1 + seat % turns for seat in range(size)]
        """Of each free seat, the rounds that who takes it stays for."""
        self._left: dict[int, int] = {}
        """Who takes part -> for how many rounds yet, this one among them."""
        self._waiting: dict[int, None] = {}
        """In the order of their coming."""
        self._called: set[int] | None = None
        """Whose turn it has been since the last round ended. None before that: those may give, too, whom
        another server called before this one was started.
        """

    @property
    def members(self) -> Set[int]:
        """Who takes part in the open round."""
        return self._left.keys()

    @property
    def waiting(self) -> int:
        """How many devices are there and take no part."""
        return len(self._waiting)

    def may_give(self, device: int) -> bool:
        """Whether it is, or was, its turn in this round. Who leaves or makes room meanwhile gives late."""
        return self._called is None or device in self._called

    def arrived(self, device: int) -> None:
        """Told again, it changes nothing."""
        if device not in self._left:
            self._waiting.setdefault(device)
            self._fill()

    def left(self, device: int) -> None:
        """Who comes next takes its place, for as long as it would have stayed."""
        self._waiting.pop(device, None)
        if (rounds := self._left.pop(device, None)) is not None:
            self._free.append(rounds)
            self._fill()

    def went_by(self, late: Iterable[int] = ()) -> None:
        """A round is over. Who takes part and is too late for it makes room, however long its turn was."""
        for device in late:
            self._left[device] = 1
        self.make_room()
        self._called = set(self._left)

    def make_room(self) -> None:
        """Each of their turns is shorter by a round, be there one or not."""
        for device in list(self._left):
            self._left[device] -= 1
            if not self._left[device]:
                del self._left[device]
                self._free.append(self._turns)
                self._waiting[device] = None
        self._fill()

    def _fill(self) -> None:
        while self._free and self._waiting:
            device = next(iter(self._waiting))
            del self._waiting[device]
            self._left[device] = self._free.pop(0)
            if self._called is not None:
                self._called.add(device)

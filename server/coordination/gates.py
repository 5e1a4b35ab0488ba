"""How far devices may run ahead of each other: who gets its answer later.

An update applies as its coordinator says. A gate holds back the answer, without which a device does not go
on, and with it the next model: it is as new as the slowest made it when the device may read it.

    ssp   stale synchronous parallel: no device starts an update while it has made more than `bound` updates
          more than the slowest that is there (Q. Ho et al., NIPS 2013)
    asp   the mirror clock of approximate synchronous parallel: no device starts an update while another one
          computes from a model that lacks more than `bound` of those it has made (K. Hsieh et al., "Gaia",
          NSDI 2017, section 4.3)

Pure, and no part of a replay: the journal has the order that came of it. A restarted server counts anew.
"""

from collections import deque
from collections.abc import Callable, Mapping
from typing import Protocol

from edgeflock.shared.settings.coordination import CoordinationSettings


class Gate(Protocol):
    """Told what devices do, in order; asked who may go on. Whoever is not there need not be waited for."""

    def arrived(self, device: int, version: int) -> None:
        """It takes part from now on, from a model of `version` or later. Told again, it changes nothing."""

    def left(self, device: int) -> None:
        """Told again, it changes nothing."""

    def made(self, device: int, version: int) -> None:
        """Its update made `version`."""

    def waits(self, device: int) -> None:
        """It has no answer yet, and does nothing until it has."""

    def answered(self, device: int, version: int) -> None:
        """It goes on from the model of `version`."""

    def opens(self, device: int) -> bool:
        """Whether it may go on."""


class Ssp:
    """A gate. The clock of a device is the number of updates that it has made while it was there.

    One that comes counts as having made as many as the slowest that is there: it never makes others wait for
    what was before its time, and what it was ahead of them it stays.
    """

    def __init__(self, bound: int) -> None:
        self._bound = bound
        self._clocks: dict[int, int] = {}
        self._present: set[int] = set()

    def arrived(self, device: int, version: int) -> None:
        if device not in self._present:
            slowest = min((self._clocks[other] for other in self._present), default=0)
            self._clocks[device] = max(self._clocks.get(device, 0), slowest)
            self._present.add(device)

    def left(self, device: int) -> None:
        self._present.discard(device)

    def made(self, device: int, version: int) -> None:
        self._clocks[device] = self._clocks.get(device, 0) + 1

    def waits(self, device: int) -> None:
        """Its clock has moved on already."""

    def answered(self, device: int, version: int) -> None:
        """Its clock has moved on already."""

    def opens(self, device: int) -> bool:
        if device not in self._present:
            return True
        return self._clocks[device] - min(self._clocks[other] for other in self._present) <= self._bound


class Asp:
    """A gate. The mirrors of the model are the copies that devices compute from.

    One that waits for its answer will get the newest, and is not waited for.
    """

    def __init__(self, bound: int) -> None:
        self._bound = bound
        self._made: dict[int, deque[int]] = {}
        """device -> the versions that its latest bound + 1 updates made."""
        self._present: set[int] = set()
        self._copies: dict[int, int] = {}
        """device -> the version that it computes from, of those that are there and at work."""

    def arrived(self, device: int, version: int) -> None:
        if device not in self._present:
            self._present.add(device)
            self._copies[device] = version

    def left(self, device: int) -> None:
        self._present.discard(device)
        self._copies.pop(device, None)

    def made(self, device: int, version: int) -> None:
        self._made.setdefault(device, deque(maxlen=self._bound + 1)).append(version)

    def waits(self, device: int) -> None:
        self._copies.pop(device, None)

    def answered(self, device: int, version: int) -> None:
        if device in self._present:
            self._copies[device] = version

    def opens(self, device: int) -> bool:
        made = self._made.get(device)
        if made is None or device not in self._present or len(made) <= self._bound:
            return True
        return all(copy >= made[0] for other, copy in self._copies.items() if other != device)


GATES: Mapping[str, Callable[[int], Gate | None]] = {"": lambda bound: None, "ssp": Ssp, "asp": Asp}
"""By the name that `coordination.gate` gives them."""


def gate_of(settings: CoordinationSettings) -> Gate | None:
    """None: everybody goes on at once."""
    return GATES[settings.gate](settings.bound)

"""Gates: they limit how far devices may run ahead of each other, by delaying answers.

A coordinator decides when an update applies. A gate delays the answer, and with it the next model. The device
does not continue without the answer. The delayed model includes the updates made during the wait.

    ssp   stale synchronous parallel (Q. Ho et al., NIPS 2013). A device waits while it has made over `bound`
          updates more than the slowest device that is present.
    asp   the mirror clock of approximate synchronous parallel (K. Hsieh et al., "Gaia", NSDI 2017, section
          4.3). A device waits while another one computes from a model that lacks more than `bound` of the
          waiting device's updates.

Pure, and not part of a replay: the journal has the resulting order. A restarted server counts anew.
"""

from collections import deque
from collections.abc import Callable, Mapping
from typing import Protocol

from edgeflock.shared.settings.coordination import CoordinationSettings


class Gate(Protocol):
    """Receives device events in order, and says which devices may continue. Absent devices do not count."""

    def add_device(self, device: int, version: int) -> None:
        """The device takes part from now on, from a model of `version` or later. Idempotent."""

    def remove_device(self, device: int) -> None:
        """The device no longer takes part. Idempotent."""

    def record_update(self, device: int, version: int) -> None:
        """The device's update made `version`."""

    def mark_waiting(self, device: int) -> None:
        """The device waits for its answer and is idle until then."""

    def record_answer(self, device: int, version: int) -> None:
        """The device continues from the model of `version`."""

    def is_open_for(self, device: int) -> bool:
        """Whether the device may continue."""


class Ssp:
    """Stale synchronous parallel. A device's clock is the number of updates that it has made.

    When a device arrives, its clock becomes at least that of the slowest present device. So it never makes
    others wait for updates before its arrival. A device that was ahead stays ahead.
    """

    def __init__(self, bound: int) -> None:
        self._bound = bound
        self._clocks: dict[int, int] = {}
        self._present: set[int] = set()

    def add_device(self, device: int, version: int) -> None:
        if device not in self._present:
            slowest = min((self._clocks[other] for other in self._present), default=0)
            self._clocks[device] = max(self._clocks.get(device, 0), slowest)
            self._present.add(device)

    def remove_device(self, device: int) -> None:
        self._present.discard(device)

    def record_update(self, device: int, version: int) -> None:
        self._clocks[device] = self._clocks.get(device, 0) + 1

    def mark_waiting(self, device: int) -> None:
        """Nothing to do: `record_update` has advanced the clock."""

    def record_answer(self, device: int, version: int) -> None:
        """Nothing to do: `record_update` has advanced the clock."""

    def is_open_for(self, device: int) -> bool:
        if device not in self._present:
            return True
        return self._clocks[device] - min(self._clocks[other] for other in self._present) <= self._bound


class Asp:
    """Approximate synchronous parallel. The mirrors of the model are the copies that devices compute from.

    A device that waits for its answer will get the newest model, so no device waits for it.
    """

    def __init__(self, bound: int) -> None:
        self._bound = bound
        self._versions: dict[int, deque[int]] = {}
        """device -> the versions that its latest bound + 1 updates made."""
        self._present: set[int] = set()
        self._copies: dict[int, int] = {}
        """device -> the version that it computes from. Only devices that are present and not waiting."""

    def add_device(self, device: int, version: int) -> None:
        if device not in self._present:
            self._present.add(device)
            self._copies[device] = version

    def remove_device(self, device: int) -> None:
        self._present.discard(device)
        self._copies.pop(device, None)

    def record_update(self, device: int, version: int) -> None:
        self._versions.setdefault(device, deque(maxlen=self._bound + 1)).append(version)

    def mark_waiting(self, device: int) -> None:
        self._copies.pop(device, None)

    def record_answer(self, device: int, version: int) -> None:
        if device in self._present:
            self._copies[device] = version

    def is_open_for(self, device: int) -> bool:
        versions = self._versions.get(device)
        if versions is None or device not in self._present or len(versions) <= self._bound:
            return True
        return all(copy >= versions[0] for other, copy in self._copies.items() if other != device)


GATES: Mapping[str, Callable[[int], Gate | None]] = {"none": lambda bound: None, "ssp": Ssp, "asp": Asp}
"""Gates by their name in `coordination.gate`."""


def create_gate(settings: CoordinationSettings) -> Gate | None:
    """Return the gate that the settings name. None: every device continues at once."""
    return GATES[settings.gate](settings.bound)

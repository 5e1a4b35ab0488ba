"""The gate: it limits how far devices may run ahead of each other, by delaying answers.

A coordinator decides when an update applies. A gate delays the answer, and with it the next model. The device
does not continue without the answer. The delayed model includes the updates made during the wait.

Pure, and not part of a replay: the journal has the resulting order. A restarted server counts anew.
"""

from collections import deque


class Gate:
    """The mirror clock of approximate synchronous parallel (K. Hsieh et al., "Gaia", NSDI 2017, section 4.3).

    A device waits while another one computes from a model that lacks more than `bound` of the waiting
    device's updates. One that waits for its answer will get the newest model, so no device waits for it.
    Absent devices do not count.
    """

    def __init__(self, bound: int) -> None:
        self._bound = bound
        self._versions: dict[int, deque[int]] = {}
        """device -> the versions that its latest bound + 1 updates made."""
        self._present: set[int] = set()
        self._copies: dict[int, int] = {}
        """device -> the version that it computes from. Only devices that are present and not waiting."""

    def add_device(self, device: int, version: int) -> None:
        """The device takes part from now on, from a model of `version` or later. Idempotent."""
        if device not in self._present:
            self._present.add(device)
            self._copies[device] = version

    def remove_device(self, device: int) -> None:
        """The device no longer takes part. Idempotent."""
        self._present.discard(device)
        self._copies.pop(device, None)

    def record_update(self, device: int, version: int) -> None:
        """The device's update made `version`."""
        self._versions.setdefault(device, deque(maxlen=self._bound + 1)).append(version)

    def mark_waiting(self, device: int) -> None:
        """The device waits for its answer and is idle until then."""
        self._copies.pop(device, None)

    def record_answer(self, device: int, version: int) -> None:
        """The device continues from the model of `version`."""
        if device in self._present:
            self._copies[device] = version

    def is_open_for(self, device: int) -> bool:
        """Whether the device may continue."""
        versions = self._versions.get(device)
        if versions is None or device not in self._present or len(versions) <= self._bound:
            return True
        return all(copy >= versions[0] for other, copy in self._copies.items() if other != device)

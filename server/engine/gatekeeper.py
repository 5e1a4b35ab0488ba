"""Answers that wait at the run's gate because their device is ahead of others (coordination/gates.py).

An update applies at once. Its device is answered, and so continues, only once the gate opens.
"""

from collections.abc import Callable

from edgeflock.server.coordination import Gate, Push
from edgeflock.server.engine.outcomes import Answer
from edgeflock.shared.errors import Refused, Superseded

Answers = list[tuple[Push, Answer]]


class Gatekeeper:
    """The gate of a run, and the devices that wait at it. Without a gate no device waits."""

    def __init__(self, gate: Gate | None, is_open: Callable[[], bool]) -> None:
        """`is_open` returns whether the run takes updates. If not, the gate opens, and all are refused."""
        self._gate = gate
        self._is_open = is_open
        self._deferred: dict[int, Push] = {}
        """Device -> its update that is answered later, in the model already or not offered yet."""

    @property
    def has_waiting(self) -> bool:
        """Whether any device waits."""
        return bool(self._deferred)

    def add_device(self, device: int, version: int) -> None:
        if self._gate is not None:
            self._gate.add_device(device, version)
            if device in self._deferred:
                self._gate.mark_waiting(device)

    def remove_device(self, device: int) -> None:
        if self._gate is not None:
            self._gate.remove_device(device)

    def record_update(self, device: int, version: int) -> None:
        """Record that an update of the device made this version."""
        if self._gate is not None:
            self._gate.record_update(device, version)

    def may_continue(self, device: int) -> bool:  # also if the run takes no updates: all get their refusals
        return self._gate is None or not self._is_open() or self._gate.is_open_for(device)

    def defer(self, push: Push, answers: Answers) -> None:
        """Answer `push` once the gate opens. If the device sent it again, only the last copy waits."""
        assert self._gate is not None, "without a gate every device may continue"
        self._gate.mark_waiting(push.device)
        earlier = self._deferred.get(push.device)
        self._deferred[push.device] = push
        if earlier is not None and earlier is not push:
            answers.append((earlier, Superseded("the device sent its update again")))

    def release(
        self,
        answers: Answers,
        read_version: Callable[[], int],
        offer: Callable[[Push, Answers], None],
        *,
        hold: bool,
    ) -> Answers:
        """Return those of `answers` that may leave now. Without `hold`, also answer updates that waited here.

        `offer` gives the engine such an update again. If the update is in the model already, the engine knows
        its sequence number and repeats the receipt. `read_version` returns the model's version.
        """
        if self._gate is None:
            return answers
        released: Answers = []
        while True:
            for push, answer in answers:
                if isinstance(answer, Refused):
                    released.append((push, answer))
                elif self.may_continue(push.device):
                    self._gate.record_answer(push.device, read_version())
                    released.append((push, answer))
                else:
                    self.defer(push, released)
            opened = [device for device in self._deferred if not hold and self.may_continue(device)]
            if not opened:
                return released
            answers = []
            for device in opened:
                offer(self._deferred.pop(device), answers)

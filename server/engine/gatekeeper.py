"""Answers that wait at the run's gate because their device is ahead of others (coordination/gates.py).

An update applies at once. Its device is answered, and so continues, only once the gate opens.
"""

from collections.abc import Callable

from edgeflock.server.coordination import Gate, Push
from edgeflock.server.engine.outcomes import Answer
from edgeflock.shared.errors import Refused, Superseded

Settled = list[tuple[Push, Answer]]


class Gatekeeper:
    """The gate of a run, and the devices that wait at it. Without a gate no device waits."""

    def __init__(self, gate: Gate | None, is_open: Callable[[], bool]) -> None:
        """`is_open` returns whether the run takes updates. If not, the gate opens, and all are refused."""
        self._gate = gate
        self._is_open = is_open
        self._before: dict[int, Push] = {}
        """Device -> its update that is answered later, in the model already or not offered yet."""

    @property
    def holds(self) -> bool:
        """Whether any device waits."""
        return bool(self._before)

    def arrived(self, device: int, version: int) -> None:
        if self._gate is not None:
            self._gate.arrived(device, version)
            if device in self._before:
                self._gate.waits(device)

    def left(self, device: int) -> None:
        if self._gate is not None:
            self._gate.left(device)

    def made(self, device: int, version: int) -> None:
        """Record that an update of the device made this version."""
        if self._gate is not None:
            self._gate.made(device, version)

    def may_go_on(self, device: int) -> bool:
        return self._gate is None or not self._is_open() or self._gate.opens(device)

    def hold_back(self, push: Push, settled: Settled) -> None:
        """Answer `push` once the gate opens. If the device sent it again, only the last copy waits."""
        assert self._gate is not None, "without a gate all may go on"
        self._gate.waits(push.device)
        earlier = self._before.get(push.device)
        self._before[push.device] = push
        if earlier is not None and earlier is not push:
            settled.append((earlier, Superseded("the device sent its update again")))

    def let_through(
        self,
        settled: Settled,
        version: Callable[[], int],
        offer: Callable[[Push, Settled], None],
        *,
        hold: bool,
    ) -> Settled:
        """Return the answers that may leave now, of `settled` and of the waiting ones (none of these with
        `hold`).

        Waiting updates are offered again: the engine knows one in the model by its sequence number. `version`
        returns the model's version.
        """
        if self._gate is None:
            return settled
        through: Settled = []
        while True:
            for push, answer in settled:
                if isinstance(answer, Refused):
                    through.append((push, answer))
                elif self.may_go_on(push.device):
                    self._gate.answered(push.device, version())
                    through.append((push, answer))
                else:
                    self.hold_back(push, through)
            opened = [device for device in self._before if not hold and self.may_go_on(device)]
            if not opened:
                return through
            settled = []
            for device in opened:
                offer(self._before.pop(device), settled)

"""What is found of a fleet's devices: whose updates are out of line. Nothing else can be wrong with emulated
ones.
"""

from collections.abc import Iterable, Mapping

from edgeflock.devices.emulation.device import EmulatedDevice
from edgeflock.server.coordination import Push
from edgeflock.server.descent import Step
from edgeflock.server.findings import EVERY, Agreement, Picture, Portrait, changes, findings
from edgeflock.shared.protocol.frames import Finding


class Watch:
    """That of one run."""

    def __init__(self, parameters: int) -> None:
        """Of a model with so many."""
        self._agreement = Agreement(parameters)
        self._findings: tuple[Finding, ...] = ()
        self._looked = 0.0
        """When, in virtual seconds."""

    def observe(self, push: Push, step: Step) -> None:
        """An update that was admitted."""
        self._agreement.observe(push.device, push.update.loss, step)

    def look(self, now: float, version: int, devices: Mapping[int, EmulatedDevice]) -> Iterable[Finding]:
        """What was not found before, every few virtual seconds; `devices` by their numbers."""
        if now < self._looked + EVERY:
            return ()
        self._looked = now
        portraits = [
            Portrait(device.name, here=True, seen=self._agreement.of(number))
            for number, device in devices.items()
        ]
        found = findings(Picture(now, version, devices=tuple(portraits)), self._findings)
        new, self._findings = changes(self._findings, found).began, found
        return new

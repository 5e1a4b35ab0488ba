"""What the sessions of emulated devices count, how one ends in a crash, and its tasks."""

from collections.abc import Callable
from dataclasses import dataclass

from edgeflock.devices.emulation.server import EmulatedServer
from edgeflock.server.sessions import Send, ServerTaskFeed, SessionContext


class Crashed(Exception):
    """The device has stopped permanently, and its data are lost."""


@dataclass(slots=True)
class ClassTotals:
    devices: int = 0
    updates: int = 0
    samples: int = 0
    """Samples that the devices have trained on."""
    compressed: int = 0
    """Updates that held a selection of the gradient, not the whole gradient."""
    floats: int = 0
    """Gradient values that the devices sent."""
    refused: int = 0
    duplicates: int = 0
    """Updates of tasks that another device had computed before."""
    crashed: int = 0
    staleness: int = 0
    """Sum of version - base over the class's updates."""
    ingress: int = 0
    egress: int = 0
    shared: int = 0
    """Samples that the devices shared with others."""
    shared_bytes: int = 0
    """Ingress of the shared samples, a part of `ingress`."""


class EmulatedTaskFeed(ServerTaskFeed):
    """The task feed of an emulated device, which asks for its first task of a round by itself (link.py)."""

    def __init__(
        self, host: SessionContext, server: EmulatedServer, device: int, send: Send, crash: Callable[[], None]
    ) -> None:
        """`crash` is called before each answer to an update, and may raise Crashed."""
        super().__init__(host, server, device, send)
        self._crash = crash

    async def begin(self, version: int) -> None:
        self.base = version

    async def advance(self, *, counted: bool) -> None:
        self._crash()
        await super().advance(counted=counted)

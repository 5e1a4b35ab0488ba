"""The server's end of an emulated link: a session's own conversation, which counts for the fleet's totals."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from edgeflock.devices.emulation.server import EmulatedServer
from edgeflock.server.roster import Device
from edgeflock.server.sessions import Conversation, DevicePort, Send, ServerTaskFeed, SessionContext
from edgeflock.server.sessions.conversation import DeviceEvents
from edgeflock.shared.codecs import sparse
from edgeflock.shared.errors import Refused
from edgeflock.shared.protocol.messages import Update


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


class EmulatedSession(DeviceEvents):
    """One session: its conversation, and the events that this one notes."""

    def __init__(
        self,
        server: EmulatedServer,
        device: Device,
        port: DevicePort,
        crash: float,
        tally: ClassTotals,
        random: np.random.Generator,
    ) -> None:
        """`crash` is the probability of a crash after each update, before its answer."""
        self._server, self._device = server, device
        self._crash, self._tally, self._random = crash, tally, random
        self.tasks: EmulatedTaskFeed | None = None
        """In a run of tasks."""
        if server.engine.tasks is not None:
            self.tasks = EmulatedTaskFeed(server.context, server, device.id, port.send, self._draw_crash)
        self.conversation = Conversation(
            *(server.context, server, self, port, device, self.tasks),
            too_large_limit=math.inf,  # the worker gives up as soon, by itself
        )

    # Events of the conversation. No monitor watches, nobody is quarantined, and updates carry all telemetry.

    def count_update(self, device: Device, update: Update, staleness: int) -> None:
        tally = self._tally
        tally.updates += 1
        tally.compressed += update.index_mode != sparse.DENSE
        tally.floats += update.count
        tally.staleness += staleness
        heard, total = device.connection.last_heard, self._server.traffic.total
        device.statistics.count(update, staleness, heard, heard, total.ingress)
        self._server.on_commit()
        if self.tasks is None:
            self._draw_crash()

    def count_duplicate(self, device: Device) -> None:
        self._tally.duplicates += 1

    async def wait_for_turn(self, device: Device) -> None:
        await self._server.wait_for_turn(device.id)

    def note_refusal(self, device: Device | None, refusal: Refused, *, update: bool = False) -> None:
        self._tally.refused += 1
        self._device.statistics.count_refusal()

    def _draw_crash(self) -> None:
        if self._crash and self._random.random() < self._crash:
            raise Crashed

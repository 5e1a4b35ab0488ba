"""The admission desk of a gateway's session: it asks the leader's."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeVar

from edgeflock.server.gateway.task_feed import GatewayTaskFeed
from edgeflock.server.roster import Device, Line
from edgeflock.server.sessions import AdmittedDevice, Send, TaskFeed
from edgeflock.shared.errors import Quarantined, Refused
from edgeflock.shared.identity import CHALLENGE, ROTATE
from edgeflock.shared.protocol import gateway
from edgeflock.shared.protocol.messages import Hello, Telemetry

if TYPE_CHECKING:
    from edgeflock.server.gateway.context import GatewayContext
    from edgeflock.server.gateway.upstream import Upstream

R = TypeVar("R", bound=Refused)


class GatewayAdmission:
    """The desk of one session. A context manager: its end sends the end of the session to the leader."""

    def __init__(self, upstream: "Upstream", context: "GatewayContext", known: gateway.Known) -> None:
        self._upstream, self._context, self._known = upstream, context, known
        self._device: Device | None = None
        self._why = ""

    def __enter__(self) -> "GatewayAdmission":
        return self

    def __exit__(self, *_: object) -> None:
        device = self._device
        if device is not None and self._context.devices.get(device.name) is device:
            del self._context.devices[device.name]
        self._upstream.leave(self._known.ticket, device, self._why)

    @property
    def headers(self) -> Mapping[str, str]:
        asked = {CHALLENGE: self._known.challenge} if self._known.challenge else {}
        return asked | {ROTATE: "1"} if self._known.rotate else asked

    async def take(self, line: Line, hello: Hello, frame: bytes) -> AdmittedDevice:
        device, entered = await self._upstream.enter(self._known.ticket, hello, frame, line)
        self._device = device
        self._context.devices[device.name] = device
        return AdmittedDevice(device, entered.sequence, entered.secret)

    def greeted(self, device: Device, version: int) -> None:
        """Do nothing: the leader knows."""

    async def turn(self, device: Device) -> None:
        await self._upstream.tell(gateway.Ready(self._known.ticket, None, True))

    def task_feed(self, device: Device, send: Send) -> TaskFeed | None:
        if not self._context.config.coordination.tasks:
            return None
        return GatewayTaskFeed(self._upstream, self._known.ticket, send)

    def tell(self, device: Device, told: Telemetry, frame: bytes) -> None:
        self._upstream.send(gateway.DeviceTelemetry(device.id, frame))

    def leave(self, device: Device, why: str) -> None:
        device.connection.leave(why)
        self._why = why

    def refuse(self, device: Device | None, refusal: Refused, *, update: bool = False) -> None:
        if not update:  # the leader knows of refused updates
            number = 0 if device is None else device.id
            self._upstream.send(gateway.DeviceRefused(number, refusal.code, str(refusal)))

    async def judge(self, device: Device, refusal: R) -> R | Quarantined:
        """Return the refusal: the leader counts refusals over all sessions, and ends this one."""
        return refusal

"""The admission of a gateway's session, which the leader decides."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeVar

from edgeflock.server.gateway.task_feed import GatewayTaskFeed
from edgeflock.server.roster import Device, OpenSession
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
    """The admission of one session. A context manager, which reports the session's end to the leader."""

    def __init__(
        self, upstream: "Upstream", context: "GatewayContext", identity: gateway.AccessGranted
    ) -> None:
        self._upstream, self._context, self._identity = upstream, context, identity
        self._device: Device | None = None
        self._end_reason = ""

    def __enter__(self) -> "GatewayAdmission":
        return self

    def __exit__(self, *_: object) -> None:
        device = self._device
        if device is not None and self._context.devices.get(device.name) is device:
            del self._context.devices[device.name]
        self._upstream.leave(self._identity.ticket, device, self._end_reason)

    @property
    def headers(self) -> Mapping[str, str]:
        headers = {CHALLENGE: self._identity.challenge} if self._identity.challenge else {}
        return headers | {ROTATE: "1"} if self._identity.rotate else headers

    async def admit(self, session: OpenSession, hello: Hello, frame: bytes) -> AdmittedDevice:
        device, entered = await self._upstream.enter(self._identity.ticket, hello, frame, session)
        self._device = device
        self._context.devices[device.name] = device
        return AdmittedDevice(device, entered.sequence, entered.secret)

    def note_welcome(self, device: Device, version: int) -> None:
        """Do nothing: the leader knows."""

    async def wait_for_turn(self, device: Device) -> None:
        await self._upstream.report_ready(gateway.Ready(self._identity.ticket, None, True))

    def task_feed(self, device: Device, send: Send) -> TaskFeed | None:
        if not self._context.config.coordination.traits.tasks:
            return None
        return GatewayTaskFeed(self._upstream, self._identity.ticket, send)

    def take_telemetry(self, device: Device, telemetry: Telemetry, frame: bytes) -> None:
        self._upstream.send(gateway.DeviceTelemetry(device.id, frame))

    def leave(self, device: Device, reason: str) -> None:
        device.connection.leave(reason)
        self._end_reason = reason

    def note_refusal(self, device: Device | None, refusal: Refused, *, update: bool = False) -> None:
        if not update:  # the leader knows of refused updates
            number = 0 if device is None else device.id
            self._upstream.send(gateway.DeviceRefused(number, refusal.code, str(refusal)))

    async def judge(self, device: Device, refusal: R) -> R | Quarantined:
        """Return the refusal: the leader counts refusals over all sessions, and ends this one."""
        return refusal

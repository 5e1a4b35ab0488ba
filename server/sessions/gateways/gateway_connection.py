"""The leader's end of a gateway's connection. It handles all that its devices send (docs/gateways.md)."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from aiohttp import WSCloseCode, WSMsgType, web

from edgeflock.server.connections import GuardedConnection
from edgeflock.server.engine import frame_bytes
from edgeflock.server.identity import SessionAuthenticator
from edgeflock.server.roster import Device, SampleRecord
from edgeflock.server.sessions.context import RunHost
from edgeflock.server.sessions.device_admission import ServerAdmission
from edgeflock.server.sessions.gateways.heartbeat import HANG_SECONDS, ping, wait_for_silence
from edgeflock.server.sessions.gateways.outbox import Outbox
from edgeflock.server.sessions.gateways.relayed_device import RelayedDevice
from edgeflock.server.sessions.records import LONGEST_HELLO
from edgeflock.server.sessions.writer import Writer
from edgeflock.shared.errors import REFUSALS, Malformed, Refused, SessionRefused, TooManyDevices
from edgeflock.shared.identity import CHALLENGE, ROTATE
from edgeflock.shared.protocol import gateway, gateway_coding, wire
from edgeflock.shared.protocol.frames import GATEWAY_LOST, SERVER_STOPPED
from edgeflock.shared.protocol.messages import Hello
from edgeflock.shared.protocol.shown import printable

_LONGEST_REASON = 123
"""The most bytes of a WebSocket's close reason (RFC 6455, section 5.5)."""

Authenticate = Callable[[str, str, bytes], SessionAuthenticator | None]
"""(secret, request path, shown certificate in DER) -> the session's authenticator; None: it is not a device
that has joined. Raises Unauthorized or Forbidden."""

_OfDevice = gateway.DeviceUpdate | gateway.DeviceTelemetry | gateway.Shared | gateway.Spilled
_OF_DEVICES: dict[type[_OfDevice], Callable[[RelayedDevice, Any], None]] = {
    gateway.DeviceUpdate: RelayedDevice.take_update,
    gateway.DeviceTelemetry: RelayedDevice.take_telemetry,
    gateway.Shared: RelayedDevice.take_samples,
    gateway.Spilled: RelayedDevice.drop_samples,
}
"""Items of an admitted device. They are ignored once its session ends."""


class GatewayConnection:
    """One gateway's WebSocket."""

    def __init__(
        self,
        host: RunHost,
        writer: Writer,
        authenticate: Authenticate,
        request: web.Request,
        connection: GuardedConnection,
        name: str,
        mark: bytes,
        credential: bytes = b"",
    ) -> None:
        """`mark` names the last change that the gateway has (changes.py). Empty: it has no model.

        `credential` is the digest of its token. Empty: it needs none.
        """
        self.mark, self.credential = mark, credential
        self.name, self.address, self.start_time = name, connection.address, time.time()
        self._host, self._writer, self._authenticate = host, writer, authenticate
        self._request, self._connection = request, connection
        limits = host.config.limits
        self._limit = limits.inflight_bytes
        self.longest_update = frame_bytes(host.config, host.layout)
        self._longest = gateway_coding.HEAD + max(
            gateway_coding.LONGEST, gateway_coding.OVERHEAD + self.longest_update
        )
        """The most bytes of a message."""
        self._ticket_limit = limits.devices + limits.unauthenticated
        self._socket = web.WebSocketResponse(max_msg_size=0, compress=False, timeout=2.0)
        self.meter = connection.meter
        self._tickets: dict[int, RelayedDevice] = {}
        self._devices: dict[int, RelayedDevice] = {}
        """Admitted devices, by their number in the journal."""
        self.updates = 0
        """How many updates of its devices it has brought into the model."""
        self._outbox = Outbox()
        self._lost = False
        self._end_reason, self._device_end_reason = "the connection broke", f"{GATEWAY_LOST} {name} broke"
        self._tasks: set[asyncio.Task[None]] = set()
        self._handlers: dict[type[gateway_coding.Item], Callable[[Any], None]] = {
            gateway.AccessRequest: self._on_access_request,
            gateway.Enter: self._on_enter,
            gateway.DeviceRefused: self._on_device_refused,
            gateway.SessionEnded: self._on_session_ended,
            gateway.AliveReply: self._on_alive_reply,
            gateway.Ready: self._on_ready,
        }

    @property
    def devices(self) -> int:
        return len(self._devices)

    @property
    def waiting(self) -> int:
        """Bytes of items that are not sent yet, as the gateway does not read them."""
        return self._outbox.waiting

    async def serve(self, join: Callable[[], Awaitable[None]]) -> web.StreamResponse:
        """Serve until either end disconnects. `join` sends the model, and registers it for changes."""
        request, hub = self._request, self._host.hub
        if request.body_exists or not self._connection.upgrade(
            self._longest, lambda refusal: hub.count_refusal(None, refusal)
        ):
            return web.Response(status=400, text="send nothing after the request until it is answered\n")
        self.meter.internal = True  # the gateway counts its devices' bytes at its own sockets
        await self._socket.prepare(request)
        self._connection.admit(self._longest)
        tasks = [
            asyncio.create_task(self._outbox.send_through(self._socket)),
            asyncio.create_task(ping(self._socket)),
            asyncio.create_task(self._watch()),
        ]
        try:
            await join()
            hub.note("joined", None, f"gateway {self.name} from {self.address}")
            while (message := await self._socket.receive()).type is WSMsgType.BINARY:
                self._connection.release_message()
                for item in gateway_coding.items(message.data, gateway.OF_GATEWAYS):
                    self._take(item)
                await asyncio.sleep(0)  # let others run, even if it sends much
        except SessionRefused as refusal:
            hub.count_refusal(None, refusal, self.name)
            await self.reject(refusal)
        finally:
            self._lost = True
            for task in tasks:
                task.cancel()
            count = f"{self.devices:,} device{'s' * (self.devices != 1)} came through it"
            hub.note("left", None, f"gateway {self.name}: {self._end_reason}; {count}")
            for relayed in list(self._tickets.values()):
                relayed.end(self._device_end_reason)
            self._tickets.clear()
            self._devices.clear()
        return self._socket

    async def _watch(self) -> None:
        """Disconnect a silent gateway. Its devices connect elsewhere, which needs their names to be free."""
        await wait_for_silence(lambda: self.meter.ingress)
        if self._request.transport is not None:
            self._end_reason = f"nothing came from it for {HANG_SECONDS:g} s"
            self._request.transport.abort()

    async def close(self) -> None:
        """Close the connection because the server stops."""
        self._end_reason = self._device_end_reason = SERVER_STOPPED
        await self._socket.close(code=WSCloseCode.GOING_AWAY)

    async def reject(self, refusal: SessionRefused) -> None:
        """Close the connection with `refusal` as the reason."""
        self._end_reason = f"refused: {refusal}"
        reason = ascii(f"{refusal.code}: {refusal}")[1:-1][:_LONGEST_REASON]
        await self._socket.close(code=4000 + refusal.status, message=reason.encode())

    def send(self, item: gateway_coding.Item) -> None:
        self.put(gateway_coding.pack(item))

    def put(self, octets: bytes) -> None:
        """Send a packed item without waiting. A gateway that does not read is disconnected."""
        self.queue(octets)
        self.wake()
        if self._outbox.waiting > self._limit and not self._lost and self._request.transport is not None:
            self._lost = True
            self._request.transport.abort()

    def queue(self, octets: bytes) -> None:
        """Queue an item, which is sent with the next one."""
        self._outbox.add(octets)

    def wake(self) -> None:
        self._outbox.wake()

    def start_task(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # Items that gateways send

    def _take(self, item: gateway_coding.Item) -> None:
        if not isinstance(item, _OfDevice):
            return self._handlers[type(item)](item)
        relayed = self._devices.get(item.device)
        if relayed is None:
            return
        if (refusal := relayed.end_refusal) is None:
            _OF_DEVICES[type(item)](relayed, item)
        elif isinstance(item, gateway.DeviceUpdate):
            self.deny(refusal, device=item.device)

    def _on_access_request(self, request: gateway.AccessRequest) -> None:
        if request.ticket in self._tickets:
            raise Malformed("a gateway used one ticket for two sessions")
        try:
            if len(self._tickets) >= self._ticket_limit:
                raise TooManyDevices(
                    f"a gateway has {self._ticket_limit} sessions (limits.devices, limits.unauthenticated)"
                )
            authenticator = self._authenticate(request.bearer, request.path, request.certificate)
        except Refused as refusal:
            self.deny(refusal, ticket=request.ticket)
            return
        admission = ServerAdmission(self._host, self._writer, authenticator, self.name, self._send_samples)
        credential = b"" if authenticator is None else authenticator.credential
        self._tickets[request.ticket] = RelayedDevice(self, request.ticket, admission, credential)
        headers = admission.headers
        self.send(gateway.AccessGranted(request.ticket, headers.get(CHALLENGE, ""), ROTATE in headers))

    def _on_enter(self, enter: gateway.Enter) -> None:
        relayed = self._tickets.get(enter.ticket)
        if relayed is None:
            return
        if relayed.entered or len(enter.hello) > LONGEST_HELLO:
            raise Malformed(f"a session has one Hello, of at most {LONGEST_HELLO} bytes")
        relayed.entered = True
        self.start_task(self._admit(relayed, enter))

    async def _admit(self, relayed: RelayedDevice, enter: gateway.Enter) -> None:
        try:
            hello = wire.decode(enter.hello, (Hello,))
            assert isinstance(hello, Hello), "nothing else is taken"
            device, sequence, secret = await relayed.admission.admit(relayed, hello, enter.hello)
        except Refused as refusal:
            self.deny(refusal, ticket=enter.ticket)
            return
        relayed.enter(device)
        if self._lost:
            relayed.end(self._device_end_reason)
            return
        self._devices[device.id] = relayed
        self.send(gateway.Entered(enter.ticket, device.id, sequence, secret, relayed.pause_reason))
        relayed.admission.note_welcome(device, self._host.published.version)

    def _send_samples(self, device: Device, record: SampleRecord) -> None:
        count, octets = record
        device.statistics.received += count
        self.send(gateway.DealtSamples(device.id, octets))

    def _on_ready(self, ready: gateway.Ready) -> None:
        relayed = self._tickets.get(ready.ticket)
        if relayed is not None and relayed.device is not None and relayed.end_refusal is None:
            relayed.answer_ready(ready)

    def _on_device_refused(self, item: gateway.DeviceRefused) -> None:
        refusal = REFUSALS.get(item.code, Refused)(printable(item.detail))
        relayed = self._devices.get(item.device)
        if relayed is None or relayed.end_refusal is not None:
            self._host.hub.count_refusal(None, refusal, self.name)
        else:
            relayed.refuse(refusal)

    def _on_session_ended(self, item: gateway.SessionEnded) -> None:
        relayed = self._tickets.pop(item.ticket, None)
        if relayed is None:
            return
        if not relayed.ended.is_set():
            relayed.count(item.ingress, item.egress)
        if relayed.device is not None and self._devices.get(relayed.device.id) is relayed:
            del self._devices[relayed.device.id]
        relayed.end(printable(item.reason))

    def _on_alive_reply(self, item: gateway.AliveReply) -> None:
        if (relayed := self._devices.get(item.device)) is not None:
            relayed.take_alive(item)

    def deny(self, refusal: Refused, *, ticket: int = 0, device: int = 0) -> None:
        self.send(gateway.Denied(ticket, device, refusal.code, str(refusal), refusal.seconds))

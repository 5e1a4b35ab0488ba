"""The leader's end of a gateway's line. It handles all that the devices behind it send (docs/gateways.md)."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from aiohttp import WSCloseCode, WSMsgType, web

from edgeflock.server.connections import GuardedConnection
from edgeflock.server.engine import frame_bytes
from edgeflock.server.roster import Device, Meter, Parcel
from edgeflock.server.sessions.context import RunHost
from edgeflock.server.sessions.device_admission import Authenticator, ServerAdmission
from edgeflock.server.sessions.gateways.beat import HANG, beat, silence
from edgeflock.server.sessions.gateways.outbox import Outbox
from edgeflock.server.sessions.gateways.relayed_device import RelayedDevice
from edgeflock.server.sessions.gateways.updates import GatewayUpdates
from edgeflock.server.sessions.records import LONGEST_HELLO
from edgeflock.server.sessions.writer import Writer
from edgeflock.shared.errors import (
    REFUSALS,
    Malformed,
    Quarantined,
    Refused,
    SessionRefused,
    TooManyDevices,
)
from edgeflock.shared.identity import CHALLENGE, ROTATE
from edgeflock.shared.protocol import gateway, wire
from edgeflock.shared.protocol.messages import Hello, Samples, Telemetry
from edgeflock.shared.protocol.shown import shown

_LONGEST_REASON = 123
"""The most bytes of a WebSocket's close reason (RFC 6455, section 5.5)."""

Admitted = Callable[[str, str, bytes], tuple[str, str, Authenticator | None]]
"""(secret, path, certificate that was shown, in DER) -> (role, name, the session's authenticator). Raises
Unauthorized or Forbidden."""


class GatewayLine:
    """One gateway's WebSocket."""

    def __init__(
        self,
        host: RunHost,
        writer: Writer,
        admitted: Admitted,
        request: web.Request,
        connection: GuardedConnection,
        name: str,
        mark: bytes,
        credential: bytes = b"",
    ) -> None:
        """`mark` says up to which change of the model the gateway is. Empty: it has none.

        `credential` is the digest of its token. Empty: it needs none."""
        self.mark, self.credential = mark, credential
        self.name, self.address, self.since = name, connection.address, time.time()
        self._host, self._writer, self._admitted = host, writer, admitted
        self._request, self._connection = request, connection
        limits = host.config.limits
        self._most = limits.inflight_bytes
        self._longest = gateway.HEAD + max(
            gateway.LONGEST, gateway.AROUND + frame_bytes(host.config, host.layout)
        )
        """The most bytes of a message."""
        self._most_tickets = limits.devices + limits.strangers
        self._socket = web.WebSocketResponse(max_msg_size=0, compress=False, timeout=2.0)
        self.meter = Meter()
        if request.transport is not None:
            self.meter = request.transport.get_extra_info("meter", self.meter)
        self._tickets: dict[int, RelayedDevice] = {}
        self._devices: dict[int, RelayedDevice] = {}
        """Admitted devices by number."""
        self._updates = GatewayUpdates(host, writer, self, self._refused)
        self._outbox = Outbox()
        self._lost = False
        self._why = "the line broke"
        self._judging = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._takes: dict[type[gateway.Item], Callable[[Any], None]] = {
            gateway.DeviceUpdate: self._given,
            gateway.Knock: self._knock,
            gateway.Enter: self._enter,
            gateway.DeviceTelemetry: self._told,
            gateway.DeviceRefused: self._blamed,
            gateway.Gone: self._gone,
            gateway.Lives: self._lives,
            gateway.Ready: self._ready,
            gateway.Shared: self._shared,
            gateway.Spilled: self._spilled,
        }

    @property
    def devices(self) -> int:
        return len(self._devices)

    @property
    def updates(self) -> int:
        """How many of its devices' updates are in the model."""
        return self._updates.counted

    @property
    def waiting(self) -> int:
        """Bytes that it has not read yet."""
        return self._outbox.waiting

    async def serve(self, join: Callable[[], Awaitable[None]]) -> web.StreamResponse:
        """Serve until either end hangs up. From `join` on the gateway gets the model's changes."""
        request, hub = self._request, self._host.hub
        if request.body_exists or not self._connection.upgrade(
            self._longest, lambda refusal: hub.refused(None, refusal)
        ):
            return web.Response(status=400, text="nothing follows the request until it is answered\n")
        self.meter.internal = True  # the gateway counts its devices' bytes at its own sockets
        await self._socket.prepare(request)
        self._connection.welcome(self._longest)
        beside = [
            asyncio.create_task(self._outbox.send_through(self._socket)),
            asyncio.create_task(beat(self._socket)),
            asyncio.create_task(self._watch()),
        ]
        try:
            await join()
            hub.note("joined", None, f"gateway {self.name} from {self.address}")
            while (message := await self._socket.receive()).type is WSMsgType.BINARY:
                self._connection.taken()
                for item in gateway.items(message.data, gateway.OF_GATEWAYS):
                    self._takes[type(item)](item)
                await asyncio.sleep(0)  # let others run, even if it sends much
        except SessionRefused as refusal:
            hub.refused(None, refusal, self.name)
            await self.turn_out(refusal)
        finally:
            self._lost = True
            for task in beside:
                task.cancel()
            came = f"{self.devices:,} devices came through it"
            hub.note("left", None, f"gateway {self.name}: {self._why}; {came}")
            for behind in list(self._tickets.values()):
                behind.end(f"killed: the line to its gateway {self.name} broke")
            self._tickets.clear()
            self._devices.clear()
        return self._socket

    async def _watch(self) -> None:
        """Hang up once the gateway is silent: its devices connect elsewhere, and need their names."""
        await silence(lambda: self.meter.ingress)
        if self._request.transport is not None:
            self._why = f"nothing came from it for {HANG:g} s"
            self._request.transport.abort()

    async def close(self) -> None:
        """Close the line, because the server stops."""
        await self._socket.close(code=WSCloseCode.GOING_AWAY)

    async def turn_out(self, refusal: SessionRefused) -> None:
        """Close the line, and send the gateway the reason."""
        self._why = f"refused: {refusal}"
        reason = ascii(f"{refusal.code}: {refusal}")[1:-1][:_LONGEST_REASON]
        await self._socket.close(code=4000 + refusal.status, message=reason.encode())

    def send(self, item: gateway.Item) -> None:
        self.put(gateway.packed(item))

    def put(self, octets: bytes) -> None:
        """Send a packed item without waiting. A gateway that does not read is disconnected."""
        self.queue(octets)
        self.wake()
        if self._outbox.waiting > self._most and not self._lost and self._request.transport is not None:
            self._lost = True
            self._request.transport.abort()

    def queue(self, octets: bytes) -> None:
        """Queue an item, which is sent with the next one."""
        self._outbox.add(octets)

    def wake(self) -> None:
        self._outbox.wake()

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # Items that gateways send

    def _knock(self, knock: gateway.Knock) -> None:
        if knock.ticket in self._tickets:
            raise Malformed("a gateway shows a ticket of its twice")
        try:
            if len(self._tickets) >= self._most_tickets:
                raise TooManyDevices(
                    f"a gateway has {self._most_tickets} sessions (limits.devices, limits.strangers)"
                )
            role, name, entry = self._admitted(knock.bearer, knock.path, knock.certificate)
        except Refused as refusal:
            self.deny(refusal, ticket=knock.ticket)
            return
        admission = ServerAdmission(self._host, self._writer, entry, self.name, self._post)
        credential = b"" if entry is None else entry.credential
        self._tickets[knock.ticket] = RelayedDevice(self, knock.ticket, admission, credential)
        asked = admission.headers
        self.send(gateway.Known(knock.ticket, role, name, asked.get(CHALLENGE, ""), ROTATE in asked))

    def _enter(self, enter: gateway.Enter) -> None:
        behind = self._tickets.get(enter.ticket)
        if behind is None:
            return
        if behind.entered or len(enter.hello) > LONGEST_HELLO:
            raise Malformed(f"a session has one Hello, of at most {LONGEST_HELLO} bytes")
        behind.entered = True
        self._later(self._let_in(behind, enter))

    async def _let_in(self, behind: RelayedDevice, enter: gateway.Enter) -> None:
        try:
            hello = wire.decode(enter.hello, (Hello,))
            assert isinstance(hello, Hello), "nothing else is taken"
            place = await behind.admission.take(behind, hello, enter.hello)
        except Refused as refusal:
            self.deny(refusal, ticket=enter.ticket)
            return
        behind.enter(place.device)
        if self._lost:
            behind.end(f"killed: the line to its gateway {self.name} broke")
            return
        self._devices[place.device.id] = behind
        self.send(gateway.Entered(enter.ticket, place.device.id, place.sequence, place.secret, behind.paused))
        behind.admission.greeted(place.device, self._host.published.version)

    def _of(self, number: int) -> tuple[RelayedDevice, Device] | None:
        """A device of this gateway. None if it is not one, or its session is over."""
        behind = self._devices.get(number)
        if behind is None or behind.device is None or behind.over is not None:
            return None
        return behind, behind.device

    def _given(self, given: gateway.DeviceUpdate) -> None:
        if (of := self._of(given.device)) is not None:
            self._updates.given(*of, given)
        elif (behind := self._devices.get(given.device)) is not None and behind.over is not None:
            self.deny(behind.over, device=given.device)

    def _shared(self, shared: gateway.Shared) -> None:
        if (of := self._of(shared.device)) is None:
            return
        _, device = of
        samples = wire.decode(shared.samples, (Samples,))
        assert isinstance(samples, Samples), "nothing else is taken"
        device.connection.hear()
        self._host.relay.share(device.id, samples, shared.samples)
        device.statistics.shared += samples.count

    def _post(self, device: Device, parcel: Parcel) -> None:
        count, octets = parcel
        device.statistics.received += count
        self.send(gateway.Dealt(device.id, octets))

    def _spilled(self, spilled: gateway.Spilled) -> None:
        if (of := self._of(spilled.device)) is None:
            return
        _, device = of
        if spilled.samples > device.statistics.received:
            raise Malformed("a gateway has lost more samples than it was given")
        device.statistics.received -= spilled.samples
        self._host.relay.dropped += spilled.samples

    def _ready(self, ready: gateway.Ready) -> None:
        behind = self._tickets.get(ready.ticket)
        if behind is not None and behind.device is not None and behind.over is None:
            behind.ready(ready)

    def _told(self, told: gateway.DeviceTelemetry) -> None:
        if (of := self._of(told.device)) is None:
            return
        behind, device = of
        telemetry = wire.decode(told.telemetry, (Telemetry,))
        assert isinstance(telemetry, Telemetry), "nothing else is taken"
        behind.admission.tell(device, telemetry, told.telemetry)

    def _blamed(self, blamed: gateway.DeviceRefused) -> None:
        refusal = REFUSALS.get(blamed.code, Refused)(shown(blamed.detail))
        if (of := self._of(blamed.device)) is None:
            self._host.hub.refused(None, refusal, self.name)
            return
        behind, device = of
        behind.admission.refuse(device, refusal)
        self._later(self._judge(behind, device, refusal))

    def _refused(self, behind: RelayedDevice, device: Device, refusal: Refused) -> None:
        """Note a refused update of a device."""
        behind.admission.refuse(device, refusal, update=True)
        self._later(self._judge(behind, device, refusal))

    async def _judge(self, behind: RelayedDevice, device: Device, refusal: Refused) -> None:
        async with self._judging:  # a quarantined device is not judged again
            if behind.over is None and not behind.ended.is_set():
                told = await behind.admission.judge(device, refusal)
                if isinstance(told, Quarantined):
                    await behind.drop(told)

    def _gone(self, gone: gateway.Gone) -> None:
        behind = self._tickets.pop(gone.ticket, None)
        if behind is None:
            return
        if not behind.ended.is_set():
            behind.count(gone.ingress, gone.egress)
        if behind.device is not None and self._devices.get(behind.device.id) is behind:
            del self._devices[behind.device.id]
        behind.end(shown(gone.why))

    def _lives(self, lives: gateway.Lives) -> None:
        behind = self._devices.get(lives.device)
        if behind is not None and behind.alive is not None and not behind.alive.done():
            behind.alive.set_result(lives.alive)

    def deny(self, refusal: Refused, *, ticket: int = 0, device: int = 0) -> None:
        self.send(gateway.Denied(ticket, device, refusal.code, str(refusal), refusal.seconds, refusal.status))

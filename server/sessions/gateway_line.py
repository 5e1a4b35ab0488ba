"""The leader's end of a gateway's line: what comes of all that its devices say (docs/gateways.md)."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from typing import Any

from aiohttp import WSCloseCode, WSMsgType, web

from edgeflock.server.coordination import Push
from edgeflock.server.descent import Step
from edgeflock.server.doors import Door
from edgeflock.server.engine import Accepted, decoded
from edgeflock.server.roster import Device, Meter, Parcel
from edgeflock.server.sessions.behind import Behind
from edgeflock.server.sessions.desk import Entry, OwnDesk
from edgeflock.server.sessions.host import Host
from edgeflock.server.sessions.writer import Held, Writer, settle
from edgeflock.shared.errors import (
    REFUSALS,
    AlreadyComputed,
    Malformed,
    Quarantined,
    Refused,
    SessionRefused,
)
from edgeflock.shared.identity import CHALLENGE, ROTATE
from edgeflock.shared.protocol import gateway, wire
from edgeflock.shared.protocol.messages import Hello, Samples, Telemetry, Update

HEARTBEAT = 20.0
"""Seconds of silence after which either end of a gateway's line pings; after half of it again it hangs up. A
gateway that takes up a large model, and answers nothing meanwhile, has so long for it."""

_SAMPLE = 64
"""The leader decodes the first update of a gateway, and one in so many after it, itself as well."""

Admitted = Callable[[str, str, bytes], tuple[str, str, Entry | None]]
"""(secret, path, certificate that was shown, in DER) -> (role, name, what its session must prove). Raises
Unauthorized or Forbidden."""


class GatewayLine:
    """One gateway's WebSocket."""

    def __init__(
        self,
        host: Host,
        writer: Writer,
        admitted: Admitted,
        request: web.Request,
        door: Door,
        name: str,
        mark: bytes,
    ) -> None:
        """`mark` is that up to which the gateway was told of the model; empty: it was not."""
        self.mark = mark
        self.name, self.address, self.since = name, door.address, time.time()
        self.updates = 0
        self._host, self._writer, self._admitted = host, writer, admitted
        self._request, self._door = request, door
        self._most = host.config.limits.inflight_bytes
        self._socket = web.WebSocketResponse(max_msg_size=0, compress=False, heartbeat=HEARTBEAT, timeout=2.0)
        self.meter = Meter()
        if request.transport is not None:
            self.meter = request.transport.get_extra_info("meter", self.meter)
        self._tickets: dict[int, Behind] = {}
        self._devices: dict[int, Behind] = {}
        """By their numbers, once they are let in."""
        self._outbox: list[bytes] = []
        self.waiting = 0
        """Bytes in it."""
        self._wake = asyncio.Event()
        self._sampled = 0
        """Updates that came decoded."""
        self._lost = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._takes: dict[type[gateway.Item], Callable[[Any], None]] = {
            gateway.Given: self._given,
            gateway.Decoded: self._decoded,
            gateway.Knock: self._knock,
            gateway.Enter: lambda enter: self._later(self._enter(enter)),
            gateway.Told: self._told,
            gateway.Blamed: self._blamed,
            gateway.Gone: self._gone,
            gateway.Lives: self._lives,
            gateway.Ready: self._ready,
            gateway.Shared: self._shared,
            gateway.Spilled: self._spilled,
        }

    @property
    def devices(self) -> int:
        return len(self._devices)

    async def serve(self, join: Callable[[], Awaitable[None]]) -> web.StreamResponse:
        """Until either end hangs up. From `join` on it is told of the model."""
        request, hub = self._request, self._host.hub
        if request.body_exists or not self._door.upgrade(
            self._most, lambda refusal: hub.refused(None, refusal)
        ):
            return web.Response(status=400, text="nothing follows the request until it is answered\n")
        self.meter.internal = True  # it is the devices' bytes that count, at their gateway's sockets
        await self._socket.prepare(request)
        self._door.welcome(self._most)
        why = "the line broke"
        sending = asyncio.create_task(self._keep_sending())
        try:
            await join()
            hub.note("joined", None, f"gateway {self.name} from {self.address}")
            while (message := await self._socket.receive()).type is WSMsgType.BINARY:
                self._door.taken()
                for item in gateway.items(message.data, gateway.OF_GATEWAYS):
                    self._takes[type(item)](item)
        except SessionRefused as malformed:
            why = f"refused: {malformed}"
            await self._socket.close(code=4000 + malformed.status, message=malformed.code.encode())
        finally:
            self._lost = True
            sending.cancel()
            hub.note("left", None, f"gateway {self.name}: {why}; {self.devices:,} devices came through it")
            for behind in list(self._tickets.values()):
                behind.end(f"killed: the line to its gateway {self.name} broke")
            self._tickets.clear()
            self._devices.clear()
        return self._socket

    async def close(self) -> None:
        """Because the server stops."""
        await self._socket.close(code=WSCloseCode.GOING_AWAY)

    def send(self, item: gateway.Item) -> None:
        self.put(gateway.packed(item))

    def put(self, octets: bytes) -> None:
        """A packed item. Nobody waits for a gateway that does not read."""
        self.queue(octets)
        self.wake()
        if self.waiting > self._most and not self._lost and self._request.transport is not None:
            self._lost = True
            self._request.transport.abort()

    def queue(self, octets: bytes) -> None:
        """It goes with the next one."""
        self._outbox.append(octets)
        self.waiting += len(octets)

    def wake(self) -> None:
        self._wake.set()

    async def _keep_sending(self) -> None:
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                while self._outbox:
                    batch, size = gateway.batch(self._outbox)
                    await self._socket.send_bytes(gateway.message(batch))
                    self.waiting -= size
        except ConnectionError:
            pass  # whoever receives notices, too

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # What gateways say

    def _knock(self, knock: gateway.Knock) -> None:
        try:
            role, name, entry = self._admitted(knock.bearer, knock.path, knock.certificate)
        except Refused as refusal:
            self.deny(refusal, ticket=knock.ticket)
            return
        desk = OwnDesk(self._host, self._writer, entry, self.name, self._post)
        credential = b"" if entry is None else entry.credential
        self._tickets[knock.ticket] = Behind(self, knock.ticket, desk, credential)
        asked = desk.headers
        self.send(gateway.Known(knock.ticket, role, name, asked.get(CHALLENGE, ""), ROTATE in asked))

    async def _enter(self, enter: gateway.Enter) -> None:
        behind = self._tickets.get(enter.ticket)
        if behind is None:
            return
        try:
            hello = wire.decode(enter.hello, (Hello,))
            assert isinstance(hello, Hello), "nothing else is taken"
            place = await behind.desk.take(behind, hello, enter.hello)
        except Refused as refusal:
            self.deny(refusal, ticket=enter.ticket)
            return
        behind.enter(place.device)
        if self._lost:
            behind.end(f"killed: the line to its gateway {self.name} broke")
            return
        self._devices[place.device.id] = behind
        self.send(gateway.Entered(enter.ticket, place.device.id, place.sequence, place.secret, behind.paused))
        behind.desk.greeted(place.device, self._host.published.version)

    def _given(self, given: gateway.Given) -> None:
        behind = self._behind(given.device, given.ingress, given.egress)
        if behind is None:
            return
        update = wire.decode(given.update, (Update,))
        assert isinstance(update, Update), "nothing else is taken"
        # The gateway answers with the model.
        self._push(behind, Push(given.device, time.time(), replace(update, pull=False), given.update))

    def _decoded(self, told: gateway.Decoded) -> None:
        behind = self._behind(told.device, told.ingress, told.egress)
        if behind is None:
            return
        update, step = decoded.read(told, self._host.layout)
        if self._sampled % _SAMPLE == 0:
            self._check(told, (update, step))
        self._sampled += 1
        self._push(behind, Push(told.device, time.time(), update, told.update, step))

    def _check(self, told: gateway.Decoded, theirs: tuple[Update, Step]) -> None:
        """Raises Malformed if a gateway decodes otherwise than a replay will."""
        update, limits = wire.decode(told.update, (Update,)), self._host.config.limits
        assert isinstance(update, Update), "nothing else is taken"
        step = decoded.step_of(update, self._host.layout, limits.samples, limits.expansion_bytes)
        if step is None or not decoded.same(theirs, update, step):
            raise Malformed("it decodes updates otherwise than its leader: are they of one version?")

    def _behind(self, device: int, ingress: int, egress: int) -> Behind | None:
        """Of whom something has come; None if it is no device of this gateway, or has left."""
        behind = self._devices.get(device)
        if behind is not None and behind.device is not None:
            self._count(behind, ingress, egress)
            behind.device.connection.hear()
        return behind

    def _push(self, behind: Behind, push: Push) -> None:
        device = behind.device
        assert device is not None, "it is let in"
        behind.offers()
        try:
            self._writer.put(push, _Answer(self, device, push.update))
        except Refused as refusal:
            self.deny(refusal, device=device.id)

    def answered(self, device: Device, update: Update, accepted: Accepted) -> None:
        """An update is in the model, whether its device is still there or not."""
        self._taken(device)
        if self._host.engine.tasks is None:
            self._count_update(device, update, accepted)
        else:  # after those of the same round that were held: their futures are told with the next turn
            asyncio.get_running_loop().call_soon(self._count_update, device, update, accepted)
        version, staleness = accepted.receipt.version, accepted.staleness
        self.send(gateway.Taken(device.id, update.sequence, version, staleness))

    def _taken(self, device: Device) -> None:
        device.connection.given = True
        if (behind := self._devices.get(device.id)) is not None:
            behind.taken()

    def refused(self, device: Device, refusal: Refused) -> None:
        """An update was. Its gateway says so if that counts."""
        if isinstance(refusal, AlreadyComputed):
            self._host.hub.duplicate(device)
        self.deny(refusal, device=device.id)

    def waits(self, device: Device, update: Update, answer: "asyncio.Future[Accepted]") -> None:
        """An update waits for others."""
        self.send(gateway.Held(device.id))
        in_tasks = self._host.engine.tasks is not None
        if in_tasks:
            self._taken(device)

        def over(answer: "asyncio.Future[Accepted]") -> None:
            if answer.cancelled():
                return
            outcome = _outcome(answer)
            if not in_tasks:
                settle(_Answer(self, device, update), outcome)
            elif isinstance(outcome, Accepted):
                self._count_update(device, update, outcome)
            elif not isinstance(outcome, SessionRefused):
                device.statistics.refuse()
                self._host.hub.refused(device, outcome)

        answer.add_done_callback(over)

    def _count_update(self, device: Device, update: Update, accepted: Accepted) -> None:
        self.updates += 1
        self._host.hub.updated(device, update, accepted.staleness)

    def _shared(self, shared: gateway.Shared) -> None:
        behind = self._devices.get(shared.device)
        if behind is None or (device := behind.device) is None:
            return
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
        behind = self._devices.get(spilled.device)
        if behind is None or (device := behind.device) is None:
            return
        if spilled.samples > device.statistics.received:
            raise Malformed("a gateway has lost more samples than it was given")
        device.statistics.received -= spilled.samples
        self._host.relay.dropped += spilled.samples

    def _ready(self, ready: gateway.Ready) -> None:
        behind = self._tickets.get(ready.ticket)
        if behind is not None and behind.device is not None:
            behind.ready(ready)

    def _told(self, told: gateway.Told) -> None:
        behind = self._devices.get(told.device)
        if behind is None or behind.device is None:
            return
        telemetry = wire.decode(told.telemetry, (Telemetry,))
        assert isinstance(telemetry, Telemetry), "nothing else is taken"
        behind.desk.tell(behind.device, telemetry, told.telemetry)

    def _blamed(self, blamed: gateway.Blamed) -> None:
        behind = self._devices.get(blamed.device)
        refusal = REFUSALS.get(blamed.code, Refused)(blamed.detail)
        if behind is None or behind.device is None:
            self._host.hub.refused(None, refusal)
            return
        behind.desk.refuse(behind.device, refusal, update=blamed.update)
        self._later(self._judge(behind, behind.device, refusal))

    async def _judge(self, behind: Behind, device: Device, refusal: Refused) -> None:
        told = await behind.desk.judge(device, refusal)
        if isinstance(told, Quarantined):
            await behind.drop(told)

    def _gone(self, gone: gateway.Gone) -> None:
        behind = self._tickets.pop(gone.ticket, None)
        if behind is None:
            return
        self._count(behind, gone.ingress, gone.egress)
        if behind.device is not None and self._devices.get(behind.device.id) is behind:
            del self._devices[behind.device.id]
        behind.end(gone.why)

    def _lives(self, lives: gateway.Lives) -> None:
        behind = self._devices.get(lives.device)
        if behind is not None and behind.alive is not None and not behind.alive.done():
            behind.alive.set_result(lives.alive)

    def _count(self, behind: Behind, ingress: int, egress: int) -> None:
        """The device's bytes, at its socket."""
        meter, total = behind.meter, self._host.traffic.total
        total.ingress += max(0, ingress - meter.ingress)
        total.egress += max(0, egress - meter.egress)
        meter.ingress, meter.egress = max(ingress, meter.ingress), max(egress, meter.egress)

    def deny(self, refusal: Refused, *, ticket: int = 0, device: int = 0) -> None:
        self.send(gateway.Denied(ticket, device, refusal.code, str(refusal), refusal.seconds, refusal.status))


class _Answer:
    """Waits for what comes of an update, without a future: that costs a turn of the event loop."""

    __slots__ = ("_device", "_line", "_update")

    def __init__(self, line: GatewayLine, device: Device, update: Update) -> None:
        self._line, self._device, self._update = line, device, update

    def done(self) -> bool:
        return False

    def set_result(self, result: Accepted | Held, /) -> None:
        if isinstance(result, Held):
            self._line.waits(self._device, self._update, result.answer)
        else:
            self._line.answered(self._device, self._update, result)

    def set_exception(self, refusal: Refused, /) -> None:
        self._line.refused(self._device, refusal)


def _outcome(answer: "asyncio.Future[Accepted]") -> Accepted | Refused:
    """Of one that is done."""
    error = answer.exception()
    if error is None:
        return answer.result()
    assert isinstance(error, Refused), "the writer raises nothing else"
    return error

"""One device's WebSocket: hello, pulls, pushes, receipts. docs/protocol.md is the reference."""

import asyncio
import logging
import time
from collections.abc import Coroutine
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from aiohttp import WSCloseCode, WSMsgType, web

from edgeflock.server.engine import Engine, Push
from edgeflock.server.hub import Hub
from edgeflock.server.registry import Device, Registry
from edgeflock.server.relay import Relay
from edgeflock.server.traffic import Meter, Traffic
from edgeflock.server.welcome import welcome
from edgeflock.server.writer import Writer
from edgeflock.shared import wire
from edgeflock.shared.config import Config
from edgeflock.shared.errors import (
    Dropped,
    FrameTooLarge,
    LayoutMismatch,
    Malformed,
    ProtocolVersion,
    Refused,
    RunComplete,
    SessionRefused,
    Superseded,
    UnexpectedRecord,
)
from edgeflock.shared.messages import (
    PROTOCOL,
    Hello,
    Model,
    Pull,
    Receipt,
    Record,
    Refusal,
    Samples,
    Stop,
    Update,
)

T = TypeVar("T")

log = logging.getLogger(__name__)

HEARTBEAT = 20.0
"""Seconds of silence after which the server pings; after half of it again without an answer it hangs up."""

CLOSE_SECONDS = 4.0
"""How long a device may take to take leave; aiohttp waits two seconds of them for its close frame."""

LONGEST_HELLO = 4096
"""Bytes. What a device tells about itself is kept for as long as the server runs."""


@dataclass(frozen=True, slots=True)
class Services:
    """What every session shares."""

    run: str
    config: Config
    engine: Engine
    writer: Writer
    registry: Registry
    traffic: Traffic
    relay: Relay
    hub: Hub


class Session:
    """One connection of one device."""

    def __init__(self, services: Services, request: web.Request) -> None:
        self._services = services
        self._request = request
        self._transport = request.transport
        limits = services.config.limits
        self._socket = web.WebSocketResponse(
            # aiohttp refuses a message of exactly its limit.
            max_msg_size=limits.frame_bytes + 1,
            compress=False,
            heartbeat=HEARTBEAT,
            timeout=2.0,
        )
        self.meter = Meter()
        if self._transport is not None:
            self.meter = self._transport.get_extra_info("meter", self.meter)
        self._ended = asyncio.Event()

    async def serve(self) -> web.WebSocketResponse:
        """Talk to the device until either side ends it."""
        await self._socket.prepare(self._request)
        device: Device | None = None
        try:
            device = await self._hello()
            await self._greet(device)
            async for message in self._socket:
                record, frame = self._received(message.type, message.data)
                await self._answer(device, record, frame)
        except SessionRefused as refusal:
            self._services.hub.refused(device, refusal)
            await self._close(4000 + refusal.status, refusal)
        except ConnectionError:
            pass  # the device is gone; it will be back
        finally:
            if device is not None and device.session is self:
                device.past = Meter(*device.traffic)
                device.session = None
                self._services.relay.leave(device.id)
                self._services.writer.look()
                self._services.hub.note("left", device, "its session has ended")
            self._ended.set()
        return self._socket

    async def supersede(self) -> None:
        """End this session for a newer one; return when nothing of it is in flight."""
        await self._close(4000 + Superseded.status, None, Superseded.code)
        await self._ended.wait()

    async def drop(self, because: Dropped) -> None:
        """End this session because an operator wants it."""
        await self._close(4000 + because.status, because)

    async def leave(self) -> None:
        """End this session because the server stops; the device will try again."""
        await self._close(WSCloseCode.GOING_AWAY)

    async def _close(self, code: int, refusal: Refused | None = None, reason: str = "") -> None:
        """Say why, and hang up on a device that does not listen: nobody waits for it."""
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                if refusal is not None:
                    reason = refusal.code
                    await self._refuse(refusal, None)
                await self._socket.close(code=code, message=reason.encode())
        except ConnectionError:
            pass
        except TimeoutError:
            if self._transport is not None:
                self._transport.abort()

    async def _hello(self) -> Device:
        """Let the device in, or raise the refusal it meets."""
        services, layout = self._services, self._services.engine.layout
        try:
            async with asyncio.timeout(services.config.limits.hello_seconds):
                message = await self._socket.receive()
        except TimeoutError:
            raise UnexpectedRecord("no Hello in time") from None
        hello, frame = self._received(message.type, message.data)
        if not isinstance(hello, Hello):
            raise UnexpectedRecord(f"a session begins with a Hello, not a {type(hello).__name__}")
        if len(frame) > LONGEST_HELLO:
            raise FrameTooLarge(f"a Hello has at most {LONGEST_HELLO} bytes")
        if hello.protocol != PROTOCOL:
            raise ProtocolVersion(f"the server speaks protocol {PROTOCOL}, not {hello.protocol}")
        if not 0 < len(hello.device) <= 200:
            raise Malformed("a device's name has 1 to 200 characters")
        if hello.layout not in (b"", layout.digest):
            raise LayoutMismatch(
                f"the device has layout {hello.layout.hex()}, the run {layout.digest.hex()}; "
                "is it the same model?"
            )
        device = services.registry.admit(hello.device)
        async with device.arriving:  # in the order of their coming: the newest session is the one that stays
            if not device.id:
                device.id = await services.writer.call(lambda: services.engine.device_id(hello.device))
            if device.session is not None:
                await device.session.supersede()
                services.registry.admit(hello.device)  # an operator may have dropped it meanwhile
            device.session = self
        device.facts, device.telemetry, device.shares = hello.facts, {}, hello.shares
        device.last_seen = time.time()
        return device

    async def _greet(self, device: Device) -> None:
        """Tell the device the run. After `_hello`, so that a device lost in between is cleaned up after."""
        engine = self._services.engine
        version, sequence = await self._services.writer.call(
            lambda: (engine.version, engine.last_sequence(device.id))
        )
        if device.sequence is None:  # later it is of what came in since, also while the device was away
            device.sequence = sequence
        if device.shares:
            self._services.relay.join(device.id)
        await self._send(welcome(self._services.run, self._services.config, engine.layout, version, sequence))
        self._services.hub.note("joined", device, f"at version {version:,}")

    async def _answer(self, device: Device, record: Record, frame: bytes) -> None:
        services = self._services
        device.last_seen = time.time()
        if isinstance(record, Samples):
            self._share(device, record, frame)
        elif isinstance(record, Pull):
            await self._resumed(device)
            model = await self._model(record.base)
            await self._send_samples(device)
            await self._send(model)
        elif isinstance(record, Update):
            try:
                receipt = await self._push(device, Push(device.id, device.last_seen, record, frame))
            except RunComplete as complete:
                await self._send(Stop(str(complete)))
            except SessionRefused:
                raise
            except Refused as refusal:
                device.refused += 1
                services.hub.refused(device, refusal)
                await self._refuse(refusal, record.sequence)
            else:
                together = services.config.coordination.mode == "rounds"
                services.hub.updated(device, record, 0 if together else receipt.version - 1 - record.base)
                if await self._resumed(device) and record.pull:
                    receipt = replace(receipt, model=await self._model(record.base))
                await self._send_samples(device)
                await self._send(receipt)
        else:
            raise UnexpectedRecord(f"a {type(record).__name__} has no place here")

    async def _push(self, device: Device, push: Push) -> Receipt:
        """The receipt. A round may take long to end."""
        pushing = self._services.writer.push(push)
        if self._services.config.coordination.mode == "async":
            return await pushing
        return await self._listening(pushing, device)

    async def _resumed(self, device: Device) -> bool:
        """Wait as long as an operator wants the device to; whether there was anything to wait for.

        What it sent counts. It waits for the answer, as it would for that of a slow server.
        """
        waits = device.pause is not None
        while (pause := device.pause) is not None:
            await self._listening(pause.over.wait(), device)
        return waits

    async def _model(self, base: int | None) -> Model:
        return await self._services.writer.call(lambda: self._services.engine.model(base))

    async def _listening(self, awaited: Coroutine[Any, Any, T], device: Device) -> T:
        """What `awaited` comes to. It may take long: meanwhile pings are answered, samples are taken, and
        leaving is noticed.
        """
        waiting = asyncio.create_task(awaited)
        try:
            while not waiting.done():
                await self._share_until(waiting, device)
            return waiting.result()
        finally:
            waiting.cancel()
            await asyncio.wait((waiting,))

    async def _share_until(self, waiting: asyncio.Task[T], device: Device) -> None:
        """Take the samples that come next from the device, unless `waiting` is done before."""
        listening = asyncio.create_task(self._socket.receive())
        try:
            await asyncio.wait((waiting, listening), return_when=asyncio.FIRST_COMPLETED)
            if listening.done():
                message = listening.result()
                record, frame = self._received(message.type, message.data)
                if not isinstance(record, Samples):
                    raise UnexpectedRecord("a question is under way: wait for its answer")
                self._share(device, record, frame)
        finally:
            listening.cancel()
            await asyncio.wait((listening,))  # a socket has one listener at a time

    def _share(self, device: Device, samples: Samples, frame: bytes) -> None:
        self._services.relay.share(device.id, samples, frame)
        device.shared += samples.count

    async def _send_samples(self, device: Device) -> None:
        """What others have shared by now. Before an answer, since a device need not read while it trains."""
        for count, frame in self._services.relay.take(device.id):
            await self._send_octets(Samples, frame)
            device.received += count

    def _received(self, kind: WSMsgType, data: object) -> tuple[Record, bytes]:
        if kind in (WSMsgType.CLOSE, WSMsgType.CLOSING, WSMsgType.CLOSED, WSMsgType.ERROR):
            raise ConnectionError("closed by the device")
        if kind is not WSMsgType.BINARY or not isinstance(data, bytes):
            raise Malformed("records travel in binary messages")
        record = wire.decode(data)
        self._services.traffic.received[type(record)] += wire.framed_size(len(data), masked=True)
        return record, data

    async def _refuse(self, refusal: Refused, sequence: int | None) -> None:
        log.info("refused %s: %s", refusal.code, refusal)
        await self._send(Refusal(refusal.code, str(refusal), sequence))

    async def _send(self, record: Record) -> None:
        await self._send_octets(type(record), wire.encode(record))

    async def _send_octets(self, kind: type[Record], octets: bytes) -> None:
        if self._socket.closed:
            raise ConnectionError("closed by the device")
        self._services.traffic.sent[kind] += wire.framed_size(len(octets), masked=False)
        await self._socket.send_bytes(octets)

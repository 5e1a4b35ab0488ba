"""One device's WebSocket: hello, pulls, pushes, receipts. docs/protocol.md is the reference."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Collection
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import TypeVar

from aiohttp import WSCloseCode, WSMsgType, web

from edgeflock.server.coordination import Push
from edgeflock.server.doors import Door
from edgeflock.server.engine import Accepted, frame_bytes, part_of
from edgeflock.server.engine.welcome import welcome
from edgeflock.server.roster import Device, Meter, Pace
from edgeflock.server.sessions.desk import Desk, Place
from edgeflock.server.sessions.host import Front, Queue
from edgeflock.server.sessions.tasks import Talk
from edgeflock.server.sessions.writer import Held
from edgeflock.shared.errors import (
    AlreadyComputed,
    BaseInFuture,
    Malformed,
    Quarantined,
    Refused,
    RunComplete,
    SessionRefused,
    StepTooLarge,
    Superseded,
    TooManyRefused,
    UnexpectedRecord,
)
from edgeflock.shared.protocol import wire
from edgeflock.shared.protocol.messages import (
    GOODBYES,
    Goodbye,
    Hello,
    Model,
    Pull,
    Record,
    Refusal,
    Samples,
    Stop,
    Telemetry,
    Update,
)

T = TypeVar("T")

HEARTBEAT = 60.0
"""Seconds of silence after which the server pings; after half of it again without an answer it hangs up.
Devices ping earlier (client/transport/dialing.py), and answer pings only between two steps."""

CLOSE_SECONDS = 4.0
"""How long a device may take to take leave; aiohttp waits two seconds of them for its close frame."""

MOST_TOO_LARGE = 3
"""Updates refused for their size, none accepted between, that end a session."""

LONGEST_HELLO = 4096
"""Bytes. What a device tells about itself is kept for as long as the server runs."""

_FIRST: Collection[type[Record]] = (Hello,)
_LATER: Collection[type[Record]] = (Pull, Update, Samples, Telemetry, Goodbye)
"""What a device may send, until it is let in and after that."""


_UNANSWERED = (Samples, Telemetry, Goodbye)


class Session:
    """One connection of one device."""

    def __init__(
        self,
        host: Front,
        writer: Queue,
        request: web.Request,
        door: Door,
        desk: Desk,
        credential: bytes = b"",
    ) -> None:
        self._host = host
        self._writer = writer
        self._desk = desk
        self._request = request
        self._door = door
        self._device: Device | None = None
        self._transport = request.transport
        self._longest = frame_bytes(host.config, host.layout)
        self._socket = web.WebSocketResponse(
            # aiohttp refuses a message of exactly its limit.
            max_msg_size=self._longest + 1,
            compress=False,
            heartbeat=HEARTBEAT,
            timeout=2.0,
        )
        self.meter = Meter()
        if self._transport is not None:
            self.meter = self._transport.get_extra_info("meter", self.meter)
        self._socket.headers.update(desk.headers)
        self.credential = credential
        self._leaving, self._ended = asyncio.Event(), asyncio.Event()
        self._pace: Pace | None = None
        """Of the device, once it is let in."""
        self._too_large = 0
        """Updates that were refused for their size since the last accepted one."""
        self._why: str | None = None
        """It ends (frames.LEFT), as whoever ends it says first."""
        self._tasks: Talk | None = None
        """In a run of tasks, once the device is let in."""

    async def serve(self) -> web.StreamResponse:
        """Talk to the device until either side ends it."""
        request = self._request
        if self._socket.can_prepare(request) and (
            request.body_exists or not self._door.upgrade(LONGEST_HELLO, self._hung_up)
        ):
            return web.Response(status=400, text="nothing follows the request until it is answered\n")
        await self._socket.prepare(request)
        device: Device | None = None
        try:
            place = await self._hello()
            device = self._device = place.device
            await self._greet(place)
            async with self._following():
                while True:
                    record, frame = await self._next()
                    await self._answer(device, record, frame)
        except SessionRefused as refusal:
            self._end_for(f"refused: {refusal.code}")
            await self._turn_out(device, refusal)
        except ConnectionError:
            self._end_for(self._lost())  # the device is gone; it will be back
        finally:
            if device is not None and device.connection.line is self:
                self._desk.leave(device, self._why or "stopped: the server gave up")
            self._ended.set()
        return self._socket

    async def is_alive(self) -> bool:
        """Whether anything comes of the device, in the time after which it would be taken for gone anyway.

        Most answer the ping at once; those that read nothing while they train ping by themselves.
        """
        return await self._door.answers(1.5 * HEARTBEAT)

    async def supersede(self) -> None:
        """End this session for a newer one; return when nothing of it is in flight."""
        self._end_for("replaced: a newer session has its name")
        await self._close(4000 + Superseded.status, None, Superseded.code)
        await self._ended.wait()

    async def drop(self, because: SessionRefused) -> None:
        """End this session because an operator wants it."""
        self._end_for(f"refused: {because.code}")
        await self._close(4000 + because.status, because)

    async def leave(self) -> None:
        """End this session because the server stops; the device will try again."""
        self._end_for("stopped: the server stops")
        await self._close(WSCloseCode.GOING_AWAY)

    def heed(self) -> None:
        """It looks by itself, before each answer."""

    def _hung_up(self, refusal: Refused) -> None:
        """The door has said so to the device."""
        self._end_for(f"refused: {refusal.code}")
        self._desk.refuse(self._device, refusal)

    def _end_for(self, why: str) -> None:
        self._why = self._why or why

    def _lost(self) -> str:
        """Why a device's line has ended that said nothing."""
        if isinstance(self._socket.exception(), TimeoutError):
            return f"timed out: nothing came from it for {1.5 * HEARTBEAT:.0f} s"
        if self._socket.close_code in (WSCloseCode.OK, WSCloseCode.GOING_AWAY):
            return "retired: it closed its session"
        return "killed: the line broke without a word"

    async def _turn_out(self, device: Device | None, refusal: SessionRefused) -> None:
        """Tell it why, and hang up."""
        # The socket keeps what ends it, and what that came of: without frames, which hold the message.
        refusal.__cause__ = refusal.__context__ = None
        refusal = refusal.with_traceback(None)
        told = refusal if device is None else await self._desk.judge(device, refusal)
        self._desk.refuse(device, told)
        await self._close(4000 + told.status, told)

    async def _close(self, code: int, refusal: Refused | None = None, reason: str = "") -> None:
        """Say why, and hang up on a device that does not listen: nobody waits for it."""
        self._leaving.set()
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

    async def _hello(self) -> Place:
        """Let the device in, or raise the refusal it meets."""
        host = self._host
        try:
            async with asyncio.timeout(host.config.limits.hello_seconds):
                message = await self._socket.receive()
        except TimeoutError:
            raise UnexpectedRecord("no Hello in time") from None
        hello, frame = self._received(message.type, message.data, _FIRST)
        assert isinstance(hello, Hello), "nothing else is taken"
        place = await self._desk.take(self, hello, frame)
        self._tasks = self._desk.talk(place.device, self._send)
        self._door.welcome(self._longest)
        self._pace = host.paces.of(place.device.name)
        return place

    @asynccontextmanager
    async def _following(self) -> AsyncIterator[None]:
        """Meanwhile the device is told what it did not ask for, in a run of tasks."""
        if self._tasks is None:
            yield
            return
        following = asyncio.create_task(self._tasks.follow())
        try:
            yield
        finally:
            following.cancel()
            await asyncio.wait((following,))
            if not following.cancelled() and (error := following.exception()):
                raise error

    async def _greet(self, place: Place) -> None:
        """Tell the device the run. After `_hello`, so that a device lost in between is cleaned up after."""
        host, engine = self._host, self._host.engine
        version, weights = await self._writer.call(lambda: (engine.published.version, engine.weights()))
        terms = welcome(
            *(host.run, host.config, engine.layout, version, place.sequence, engine.start, weights),
            place.secret,
            host.input,
            host.described,
            host.app,
        )
        await self._send(terms)
        self._desk.greeted(place.device, version)

    async def _answer(self, device: Device, record: Record, frame: bytes) -> None:
        if isinstance(record, _UNANSWERED):
            return self._note(device, record, frame)
        device.connection.hear()
        if isinstance(record, Pull):
            if self._host.config.coordination.cohort:
                try:
                    await self._listening(self._desk.turn(device), device)
                except RunComplete as complete:
                    return await self._send(Stop(str(complete)))
            await self._resumed(device)
            model = await self._model(device, record)
            await self._send_samples(device)
            await self._send(model)
            if self._tasks is not None:
                await self._tasks.begin(model.version)
        else:
            assert isinstance(record, Update), "nothing else is taken"
            push = Push(device.id, device.connection.last_seen, record, frame)
            try:
                if self._tasks is not None:
                    await self._computed(device, push, self._tasks)
                    return
                accepted = await self._push(device, push)
            except RunComplete as complete:
                await self._send(Stop(str(complete)))
            except SessionRefused:
                raise
            except Refused as refusal:
                self._desk.refuse(device, refusal, update=True)
                if isinstance(told := await self._desk.judge(device, refusal), Quarantined):
                    raise told from refusal
                self._too_large += isinstance(refusal, StepTooLarge)
                if self._too_large == MOST_TOO_LARGE:
                    raise TooManyRefused(
                        f"{MOST_TOO_LARGE} updates in a row would have broken the model: {refusal}"
                    ) from refusal
                await self._refuse(refusal, record.sequence)
            else:
                device.connection.given = True
                self._too_large = 0
                self._host.hub.updated(device, record, accepted.staleness)
                receipt = accepted.receipt
                if await self._resumed(device) and receipt.model is not None:
                    receipt = replace(receipt, model=await self._model(device, record))
                await self._send_samples(device)
                await self._send(receipt)

    async def _computed(self, device: Device, push: Push, tasks: Talk) -> None:
        """In a run of tasks: the device goes on to the next one while its update waits for others."""
        counted = True
        try:
            answer = await self._writer.push(push)
        except AlreadyComputed:
            counted = False
            self._host.hub.duplicate(device)
        else:
            device.connection.given = True
            self._too_large = 0
            if isinstance(answer, Held):
                answer.answer.add_done_callback(partial(self._applied, device, push.update))
            else:
                self._host.hub.updated(device, push.update, answer.staleness)
        await self._resumed(device)
        await self._send_samples(device)
        await tasks.went_on(counted=counted)

    def _applied(self, device: Device, update: Update, answer: asyncio.Future[Accepted]) -> None:
        """An update that waited for the end of its round has its answer."""
        if answer.cancelled():
            return
        error = answer.exception()
        if error is None:
            self._host.hub.updated(device, update, answer.result().staleness)
        elif isinstance(error, Refused) and not isinstance(error, SessionRefused):
            self._desk.refuse(device, error, update=True)

    async def _push(self, device: Device, push: Push) -> Accepted:
        """What comes of it. It may have to wait for others, long."""
        answer = await self._writer.push(push)
        if isinstance(answer, Held):
            return await self._listening(answer.answer, device)
        return answer

    async def _resumed(self, device: Device) -> bool:
        """Wait as long as an operator wants the device to; whether there was anything to wait for.

        What it sent counts. It waits for the answer, as it would for that of a slow server.
        """
        waits = device.connection.order is not None
        while (order := device.connection.order) is not None:
            await self._listening(order.over.wait(), device)
        return waits

    async def _model(self, device: Device, asked: Pull | Update) -> Model:
        engine = self._host.engine
        version = engine.published.version
        if asked.base is not None and asked.base > version:
            # Anybody may say so: it is told to those who watch, and stops nothing (docs/security.md).
            ahead = f"it holds version {asked.base:,}, the run is at {version:,}; is the journal an old copy?"
            self._host.hub.note("refused", device, f"{BaseInFuture.code}: {ahead}")
        part = part_of(asked, engine.layout) if isinstance(asked, Pull) else None
        if isinstance(asked, Pull):
            if self._pace is not None and not device.connection.given:
                numbers = engine.layout.size if part is None else part.stop - part.start
                self._pace.let_make(numbers, asyncio.get_running_loop().time())
            device.connection.given = False
        return await self._writer.call(lambda: engine.model(asked.base, asked.held, device.id, part))

    async def _listening(self, awaited: Awaitable[T], device: Device) -> T:
        """What `awaited` comes to. It may take long: meanwhile pings are answered, samples are taken, and
        leaving is noticed.
        """
        waiting = asyncio.ensure_future(awaited)
        try:
            while not waiting.done():
                await self._share_until(waiting, device)
            return waiting.result()
        finally:
            waiting.cancel()
            await asyncio.wait((waiting,))

    async def _share_until(self, waiting: asyncio.Future[T], device: Device) -> None:
        """Take what comes next from the device without being a question, unless `waiting` is done before."""
        listening = asyncio.create_task(self._next())
        try:
            await asyncio.wait((waiting, listening), return_when=asyncio.FIRST_COMPLETED)
            if listening.done():
                record, frame = listening.result()
                if not isinstance(record, _UNANSWERED):
                    raise UnexpectedRecord("a question is under way: wait for its answer")
                self._note(device, record, frame)
        finally:
            listening.cancel()
            await asyncio.wait((listening,))  # a socket has one listener at a time

    def _note(self, device: Device, record: Samples | Telemetry | Goodbye, frame: bytes) -> None:
        """Take what has no answer."""
        if isinstance(record, Samples):
            device.connection.hear()
            self._share(device, record, frame)
        elif isinstance(record, Goodbye):
            self._end_for(_said(record.reason))
        else:
            self._desk.tell(device, record, frame)

    def _share(self, device: Device, samples: Samples, frame: bytes) -> None:
        self._host.relay.share(device.id, samples, frame)
        device.statistics.shared += samples.count

    async def _send_samples(self, device: Device) -> None:
        """What others have shared by now. Before an answer, since a device need not read while it trains."""
        for count, frame in self._host.relay.take(device.id):
            await self._send_octets(Samples, frame)
            device.statistics.received += count

    async def _next(self) -> tuple[Record, bytes]:
        """What comes next, once the device has paid for what came before. Meanwhile nothing is read."""
        clock, pace = asyncio.get_running_loop().time, self._pace
        if pace is not None and (wait := pace.wait(began := clock())) > 0:
            try:
                with suppress(TimeoutError):
                    async with asyncio.timeout(wait):
                        await self._leaving.wait()
            finally:
                pace.held_back += clock() - began
        message = await self._socket.receive()
        return self._received(message.type, message.data)

    def _received(
        self, kind: WSMsgType, data: object, taken: Collection[type[Record]] = _LATER
    ) -> tuple[Record, bytes]:
        if kind in (WSMsgType.CLOSE, WSMsgType.CLOSING, WSMsgType.CLOSED, WSMsgType.ERROR):
            raise ConnectionError("closed by the device")
        self._door.taken()
        if kind is not WSMsgType.BINARY or not isinstance(data, bytes):
            raise Malformed("records travel in binary messages")
        record = wire.decode(data, taken)
        self._host.traffic.received[type(record)] += wire.framed_size(len(data), masked=True)
        self._spend(len(data))
        return record, data

    def _spend(self, octets: int) -> None:
        if self._pace is not None:
            self._pace.spend(octets, asyncio.get_running_loop().time())

    async def _refuse(self, refusal: Refused, sequence: int | None) -> None:
        await self._send(Refusal(refusal.code, str(refusal), sequence, refusal.seconds))

    async def _send(self, record: Record) -> None:
        await self._send_octets(type(record), wire.encode(record))

    async def _send_octets(self, kind: type[Record], octets: bytes) -> None:
        if self._socket.closed:
            raise ConnectionError("closed by the device")
        self._host.traffic.sent[kind] += wire.framed_size(len(octets), masked=False)
        self._spend(len(octets))
        await self._socket.send_bytes(octets)


def _said(reason: str) -> str:
    """The reason of a Goodbye: whoever says no more leaves because its owner wants it."""
    if reason.startswith(GOODBYES):
        return reason
    return f"retired: {reason}" if reason else "retired"

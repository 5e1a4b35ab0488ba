"""Answers the records of an admitted device. docs/protocol.md is the reference."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import TypeVar

from edgeflock.server.coordination import Push
from edgeflock.server.engine import Accepted, requested_slice
from edgeflock.server.roster import Device, RateLimiter
from edgeflock.server.sessions.context import SessionContext, UpdateQueue
from edgeflock.server.sessions.device_admission import DeviceAdmission
from edgeflock.server.sessions.records import RecordSocket
from edgeflock.server.sessions.task_feed import TaskFeed
from edgeflock.server.sessions.writer import PendingUpdate
from edgeflock.shared.errors import (
    AlreadyComputed,
    BaseInFuture,
    Quarantined,
    Refused,
    RunComplete,
    SessionRefused,
    StepTooLarge,
    TooManyRefused,
    UnexpectedRecord,
)
from edgeflock.shared.protocol.messages import (
    GOODBYES,
    Goodbye,
    Model,
    Pull,
    Record,
    Samples,
    Stop,
    Telemetry,
    Update,
)

T = TypeVar("T")

TOO_LARGE_LIMIT = 3
"""How many updates in a row, refused as too large a step, end a session."""

_UNANSWERED = (Samples, Telemetry, Goodbye)


class Conversation:
    """The conversation of one session."""

    def __init__(
        self,
        host: SessionContext,
        writer: UpdateQueue,
        admission: DeviceAdmission,
        socket: RecordSocket,
        device: Device,
        limiter: RateLimiter,
        on_goodbye: Callable[[str], None],
    ) -> None:
        """`on_goodbye` is called with the reason (frames.LEFT) of a device that says Goodbye."""
        self._host, self._writer, self._admission = host, writer, admission
        self._socket, self._device, self._limiter = socket, device, limiter
        self._on_goodbye = on_goodbye
        self._too_large = 0
        """Updates that were refused as too large a step since the last accepted one."""
        self._tasks: TaskFeed | None = admission.task_feed(device, socket.send)
        """The device's task feed, in a run of tasks."""

    async def serve(self) -> None:
        """Answer records until the session ends. Raises ConnectionError, or SessionRefused to end it."""
        async with self._run_task_feed():
            while True:
                record, frame = await self._socket.receive()
                await self._answer(record, frame)

    @asynccontextmanager
    async def _run_task_feed(self) -> AsyncIterator[None]:
        """Inside the block, run the device's task feed, if it has one."""
        if self._tasks is None:
            yield
            return
        feeding = asyncio.create_task(self._tasks.follow())
        try:
            yield
        finally:
            feeding.cancel()
            await asyncio.wait((feeding,))
            if not feeding.cancelled() and (error := feeding.exception()):
                raise error

    async def _answer(self, record: Record, frame: bytes) -> None:
        if isinstance(record, _UNANSWERED):
            return self._handle_unanswered(record, frame)
        self._device.connection.mark_active()
        if isinstance(record, Pull):
            await self._answer_pull(record)
        else:
            assert isinstance(record, Update), "nothing else is taken"
            await self._answer_update(record, frame)

    async def _answer_pull(self, pull: Pull) -> None:
        if self._host.config.coordination.traits.cohort:
            try:
                await self._listen_until(self._admission.wait_for_turn(self._device))
            except RunComplete as complete:
                return await self._socket.send(Stop(str(complete)))
        await self._wait_while_paused()
        model = await self._make_model(pull)
        await self._send_samples()
        await self._socket.send(model)
        if self._tasks is not None:
            await self._tasks.begin(model.version)

    async def _answer_update(self, update: Update, frame: bytes) -> None:
        device = self._device
        push = Push(device.id, device.connection.last_seen, update, frame)
        try:
            if self._tasks is not None:
                await self._answer_task_update(push, self._tasks)
                return
            accepted = await self._push(push)
        except RunComplete as complete:
            await self._socket.send(Stop(str(complete)))
        except SessionRefused:
            raise
        except Refused as refusal:
            self._admission.note_refusal(device, refusal, update=True)
            if isinstance(verdict := await self._admission.judge(device, refusal), Quarantined):
                raise verdict from refusal
            self._too_large += isinstance(refusal, StepTooLarge)
            if self._too_large == TOO_LARGE_LIMIT:
                raise TooManyRefused(
                    f"{TOO_LARGE_LIMIT} updates in a row would have broken the model: {refusal}"
                ) from refusal
            await self._socket.refuse(refusal, update.sequence)
        else:
            device.connection.has_updated = True
            self._too_large = 0
            self._host.hub.count_update(device, update, accepted.staleness)
            receipt = accepted.receipt
            if await self._wait_while_paused() and receipt.model is not None:
                receipt = replace(receipt, model=await self._make_model(update))
            await self._send_samples()
            await self._socket.send(receipt)

    async def _answer_task_update(self, push: Push, tasks: TaskFeed) -> None:
        """Push an update in a run of tasks, and send the next task, even if the update waits for others."""
        device, counted = self._device, True
        try:
            answer = await self._writer.push(push)
        except AlreadyComputed:
            counted = False
            self._host.hub.count_duplicate(device)
        else:
            device.connection.has_updated = True
            self._too_large = 0
            if isinstance(answer, PendingUpdate):
                answer.answer.add_done_callback(partial(self._count_applied, push.update))
            else:
                self._host.hub.count_update(device, push.update, answer.staleness)
        await self._wait_while_paused()
        await self._send_samples()
        await tasks.advance(counted=counted)

    def _count_applied(self, update: Update, answer: asyncio.Future[Accepted]) -> None:
        """Count the answer to an update that waited for the end of its round."""
        if answer.cancelled():
            return
        error = answer.exception()
        if error is None:
            self._host.hub.count_update(self._device, update, answer.result().staleness)
        elif isinstance(error, Refused) and not isinstance(error, SessionRefused):
            self._admission.note_refusal(self._device, error, update=True)

    async def _push(self, push: Push) -> Accepted:
        """Push the update; return its result. This may wait long for others."""
        answer = await self._writer.push(push)
        if isinstance(answer, PendingUpdate):
            return await self._listen_until(answer.answer)
        return answer

    async def _wait_while_paused(self) -> bool:
        """Wait while an operator pauses the device. Return whether there was a pause.

        An update sent before counts. The device only waits longer for its answer.
        """
        connection = self._device.connection
        waits = connection.order is not None
        while (order := connection.order) is not None:
            await self._listen_until(order.ended.wait())
        return waits

    async def _make_model(self, query: Pull | Update) -> Model:
        engine, device = self._host.engine, self._device
        version = engine.published.version
        if query.base is not None and query.base > version:
            # Any device may claim any version, so this only notes an event (docs/security.md).
            detail = (
                f"it holds version {query.base:,}, the run is at {version:,}; is the journal an old copy?"
            )
            self._host.hub.note("refused", device, f"{BaseInFuture.code}: {detail}")
        part = requested_slice(query, engine.layout) if isinstance(query, Pull) else None
        if isinstance(query, Pull):
            if not device.connection.has_updated:  # one pull is free after each accepted update
                numbers = engine.layout.size if part is None else part.stop - part.start
                self._limiter.charge_numbers(numbers, asyncio.get_running_loop().time())
            device.connection.has_updated = False
        return await self._writer.call(lambda: engine.outlet.model(query.base, query.held, device.id, part))

    async def _listen_until(self, awaited: Awaitable[T]) -> T:
        """Return the result of `awaited`, which may take long.

        Meanwhile read what the device sends: pings, records without an answer, and its disconnection.
        """
        waiting = asyncio.ensure_future(awaited)
        try:
            while not waiting.done():
                await self._receive_until(waiting)
            return waiting.result()
        finally:
            waiting.cancel()
            await asyncio.wait((waiting,))

    async def _receive_until(self, waiting: asyncio.Future[T]) -> None:
        """Handle the next record, which must need no answer, unless `waiting` is done before it comes."""
        listening = asyncio.create_task(self._socket.receive())
        try:
            await asyncio.wait((waiting, listening), return_when=asyncio.FIRST_COMPLETED)
            if listening.done():
                record, frame = listening.result()
                if not isinstance(record, _UNANSWERED):
                    raise UnexpectedRecord("a Pull or an Update is not answered yet: wait for the answer")
                self._handle_unanswered(record, frame)
        finally:
            listening.cancel()
            await asyncio.wait((listening,))  # a socket has one listener at a time

    def _handle_unanswered(self, record: Samples | Telemetry | Goodbye, frame: bytes) -> None:
        """Handle a record that has no answer."""
        device = self._device
        if isinstance(record, Samples):
            device.connection.mark_active()
            self._host.relay.share(device.id, record, frame)
            device.statistics.shared += record.count
        elif isinstance(record, Goodbye):
            self._on_goodbye(_goodbye_reason(record.reason))
        else:
            self._admission.take_telemetry(device, record, frame)

    async def _send_samples(self) -> None:
        """Send the samples that others have shared. An answer follows at once, for which the device reads."""
        for count, frame in self._host.relay.take(self._device.id):
            await self._socket.send_octets(Samples, frame)
            self._device.statistics.received += count


def _goodbye_reason(reason: str) -> str:
    """Return the reason as in frames.LEFT. One that GOODBYES lacks means that the owner retires it."""
    if reason.startswith(GOODBYES):
        return reason
    return f"retired: {reason}" if reason else "retired"

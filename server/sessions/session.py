"""A device's WebSocket, from its request to its end: who the device is, and why the session ends."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiohttp import WSCloseCode, web

from edgeflock.server.connections import GuardedConnection
from edgeflock.server.engine import frame_bytes
from edgeflock.server.roster import Device
from edgeflock.server.sessions.context import SessionContext, UpdateQueue
from edgeflock.server.sessions.conversation import Conversation
from edgeflock.server.sessions.device_admission import AdmittedDevice, DeviceAdmission
from edgeflock.server.sessions.records import RecordSocket
from edgeflock.server.sessions.task_feed import TaskFeed
from edgeflock.shared.errors import Refused, SessionRefused, Superseded
from edgeflock.shared.identity import CHALLENGE, ROTATE, from_base64url
from edgeflock.shared.protocol.frames import SERVER_STOPPED
from edgeflock.shared.protocol.messages import IN_FIRST_RECORD, Challenge, Credential, Hello

Identify = Callable[[str], tuple[DeviceAdmission, bytes]]
"""Takes a credential; returns (the admission of its device, the credential's digest). Raises Unauthorized."""


class Session:
    """One connection of one device."""

    def __init__(
        self,
        host: SessionContext,
        writer: UpdateQueue,
        request: web.Request,
        connection: GuardedConnection,
        admission: DeviceAdmission,
        credential: bytes = b"",
        identify: Identify | None = None,
    ) -> None:
        """`credential`: digest of the one that the device has shown. It shows one to `identify`, if given."""
        self._host = host
        self._writer = writer
        self._admission = admission
        longest = frame_bytes(host.config, host.layout)
        self._identify = identify
        protocols = () if identify is None else (IN_FIRST_RECORD,)
        self._socket = RecordSocket(request, connection, host.traffic, longest, admission.headers, protocols)
        self._device: Device | None = None
        self.meter, self.credential = self._socket.meter, credential
        self._ended = asyncio.Event()
        self._end_reason: str | None = None
        """Why it ends (frames.LEFT). The first reason counts."""

    async def serve(self) -> web.StreamResponse:
        """Serve the device until either side ends the session.

        This has its own task: each record resumes all coroutines of a task, and a request has many.
        """
        return await asyncio.create_task(self._serve())

    async def _serve(self) -> web.StreamResponse:
        if (refused := await self._socket.open(self._note_hang_up)) is not None:
            return refused
        device: Device | None = None
        try:
            admitted = await self._admit()
            device = self._device = admitted.device
            self._socket.admit(self._host.rate_limiters.get(device.name), device.connection.mark_active)
            tasks = self._admission.task_feed(device, self._socket.send)
            conversation = Conversation(
                *(self._host, self._writer, self._admission, self._socket, device, tasks),
                self._set_end_reason,
            )
            await self._send_welcome(admitted)
            async with _following(tasks):
                while True:
                    await conversation.answer(*await self._socket.receive())
        except SessionRefused as refusal:
            self._set_end_reason(f"refused: {refusal.code}")
            await self._refuse(device, refusal)
        except ConnectionError:
            self._set_end_reason(self._socket.disconnect_reason)  # the device will connect again
        finally:
            if device is not None and device.connection.session is self:
                self._admission.leave(device, self._end_reason or "stopped: the server gave up")
            self._ended.set()
        return self._socket.response

    async def is_alive(self) -> bool:
        return await self._socket.is_alive()

    async def supersede(self) -> None:
        """End this session for a newer one. It returns when nothing is in flight."""
        self._set_end_reason("replaced: a newer session has its name")
        await self._socket.close(4000 + Superseded.status, None, Superseded.code)
        await self._ended.wait()

    async def drop(self, refusal: SessionRefused) -> None:
        """End this session because an operator wants it."""
        self._set_end_reason(f"refused: {refusal.code}")
        await self._socket.close(4000 + refusal.status, refusal)

    async def leave(self) -> None:
        """End this session because the server stops. The device will connect again."""
        self._set_end_reason(SERVER_STOPPED)
        await self._socket.close(WSCloseCode.GOING_AWAY)

    def apply_order(self) -> None:
        """Do nothing: the conversation checks for a pause before each answer."""

    async def _admit(self) -> AdmittedDevice:
        """Admit the device, or raise a refusal."""
        seconds = self._host.config.limits.hello_seconds
        if self._identify is not None:
            shown, _ = await self._socket.receive_first(Credential, seconds)
            self._admission, self.credential = self._identify(shown.credential)
            headers = self._admission.headers
            challenge = from_base64url(headers.get(CHALLENGE, ""))
            await self._socket.send(Challenge(challenge, ROTATE in headers))
        hello, frame = await self._socket.receive_first(Hello, seconds)
        return await self._admission.admit(self, hello, frame)

    async def _send_welcome(self, admitted: AdmittedDevice) -> None:
        """Send the Welcome. If the connection breaks here, `serve` removes the device: it knows it by now."""
        host, engine = self._host, self._host.engine
        version, weights = await self._writer.call(
            lambda: (engine.published.version, engine.outlet.weights())
        )
        await self._socket.send(host.welcome(version, weights, admitted.sequence, admitted.secret))
        self._admission.note_welcome(admitted.device, version)

    async def _refuse(self, device: Device | None, refusal: SessionRefused) -> None:
        """Send the refusal, and close."""
        # The socket keeps the exception and its cause. Drop their stack frames, which hold the message.
        refusal.__cause__ = refusal.__context__ = None
        refusal = refusal.with_traceback(None)
        verdict = refusal if device is None else await self._admission.judge(device, refusal)
        self._admission.note_refusal(device, verdict)
        await self._socket.close(4000 + verdict.status, verdict)

    def _note_hang_up(self, refusal: Refused) -> None:
        """Note a refusal that the connection's limits have sent to the device."""
        self._set_end_reason(f"refused: {refusal.code}")
        self._admission.note_refusal(self._device, refusal)

    def _set_end_reason(self, reason: str) -> None:
        self._end_reason = self._end_reason or reason


@asynccontextmanager
async def _following(tasks: TaskFeed | None) -> AsyncIterator[None]:
    """Inside the block, let the device's task feed send what it was not asked for."""
    if tasks is None:
        yield
        return
    following = asyncio.create_task(tasks.follow())
    try:
        yield
    finally:
        following.cancel()
        await asyncio.wait((following,))
        if not following.cancelled() and (error := following.exception()):
            raise error

"""A gateway's line to its leader: the model comes down, updates go up, many in a message.

When the line breaks, requests without an answer stay unanswered and the sessions end. Devices send updates
without a receipt again, here or through another gateway. The leader counts each once.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, contextmanager
from itertools import count
from random import Random
from typing import Any, TypeVar

import aiohttp
from yarl import URL

from edgeflock.server.coordination import Push
from edgeflock.server.engine import Accepted
from edgeflock.server.gateway.admission import LOST, GatewayAdmission
from edgeflock.server.gateway.leaders import Leaders
from edgeflock.server.gateway.mirror import GatewayRelay, Mirror
from edgeflock.server.roster import Device
from edgeflock.server.sessions import HANG_SECONDS, Outbox, PendingUpdate, ping
from edgeflock.shared.errors import Malformed, Unavailable
from edgeflock.shared.protocol import gateway, gateway_coding
from edgeflock.shared.protocol.backoff import RepeatedReasons, back_off, failure_reason
from edgeflock.shared.protocol.shown import printable
from edgeflock.shared.settings.config import Config

T = TypeVar("T")

log = logging.getLogger(__name__)

_QUICK = 1 << 20
"""The most parameters of a model that is processed on the event loop's thread: about a millisecond."""

_REFUSED = 4000
"""A leader closes the line with this number plus the refusal's status."""

_LONGEST_WAIT = 5.0
"""The most seconds between two attempts to reach the leader: many devices wait for one gateway."""


class Upstream:
    """The line to the leader, and the queue of the gateway's sessions (sessions.Queue)."""

    def __init__(self, leaders: Leaders, name: str, check: Callable[[gateway.Sync, Config], None]) -> None:
        """`check` raises ConfigError if this gateway cannot serve the leader that sent a Sync."""
        self.leaders, self.name, self._check_fit = leaders, name, check
        self.mirror: Mirror | None = None
        """None while there is no leader."""
        self._last_mirror: Mirror | None = None
        """The mirror of the last leader, in case it returns soon."""
        self._mark = b""
        """The position in the leader's changes; empty: unknown."""
        self.relay: GatewayRelay | None = None
        """Made with the mirror."""
        self.sync: gateway.Sync | None = None
        """The Sync that the mirror began with, without theta."""
        self.ready = asyncio.Event()
        """Set while there is a leader; `_lost` is set while there is none."""
        self._lost = asyncio.Event()
        self._at_rest = asyncio.Lock()
        self._http: aiohttp.ClientSession | None = None
        self._socket: aiohttp.ClientWebSocketResponse | None = None
        self._outbox = Outbox()
        self._numbers = count(1)
        self._tickets: dict[int, GatewayAdmission] = {}
        """The open tickets of this leader, by number."""
        self._devices: dict[int, GatewayAdmission] = {}
        """Those whose device the leader has admitted, by the device's number."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._handlers: dict[type[gateway_coding.Item], Callable[[GatewayAdmission, Any], object]] = {
            gateway.UpdateTaken: GatewayAdmission.take_result,
            gateway.AccessGranted: GatewayAdmission.answer,
            gateway.Entered: self._enter,
            gateway.Denied: GatewayAdmission.deny,
            gateway.UpdateHeld: GatewayAdmission.hold_update,
            gateway.End: lambda admission, end: self._start_task(admission.end(end)),
            gateway.AliveQuery: lambda admission, ask: self._start_task(admission.answer_alive(ask)),
            gateway.Paused: GatewayAdmission.set_paused,
            gateway.DeviceRecord: GatewayAdmission.take_record,
            gateway.Done: GatewayAdmission.answer,
        }

    @property
    def http(self) -> aiohttp.ClientSession:
        assert self._http is not None, "it runs"
        return self._http

    # Connection

    async def run(self) -> None:
        """Follow leader after leader until cancelled. Raises ConfigError if none accepts this gateway."""
        delays, reasons = back_off(Random(), longest=_LONGEST_WAIT), RepeatedReasons()
        connector = aiohttp.TCPConnector(ssl=self.leaders.tls)
        async with AsyncExitStack() as stack:
            http = self._http = await stack.enter_async_context(
                aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar())
            )
            stack.callback(self._drop_mirror)
            while True:
                server = str(self.leaders.url.origin())
                reason = f"the leader {server} hung up"
                try:
                    await self._follow(http)
                    delays, reasons = back_off(Random(), longest=_LONGEST_WAIT), RepeatedReasons()
                except (OSError, aiohttp.ClientError, TimeoutError, Malformed) as error:
                    reason = failure_reason(server, error)
                    if isinstance(error, Malformed):
                        reason = f"the leader {server}: {error}"
                        self._mark = b""  # the applied part is unknown
                    if (permanent := await self.leaders.diagnose(http, self._url, error)) is not None:
                        raise permanent from error
                finally:
                    await self._end_sessions()
                delay = next(delays)
                if reasons.is_due(reason, delay):
                    log.warning("%s; trying again in %.1f s, and then until it works", reason, delay)
                self.leaders.rotate()
                await asyncio.sleep(delay)

    async def _follow(self, http: aiohttp.ClientSession) -> None:
        """Follow one leader until it hangs up."""
        async with await self.leaders.connect(http, self._url) as socket:
            self._socket = socket
            tasks = [
                asyncio.create_task(self._outbox.send_through(socket)),
                asyncio.create_task(ping(socket)),
            ]
            try:
                while (message := await socket.receive()).type is aiohttp.WSMsgType.BINARY:
                    for item in gateway_coding.items(message.data, gateway.OF_LEADERS):
                        await self._handle(item)
                if message.type is aiohttp.WSMsgType.ERROR and isinstance(message.data, OSError):
                    raise ConnectionError(f"nothing came from it for {HANG_SECONDS:g} s") from message.data
                if message.type is aiohttp.WSMsgType.TEXT:
                    raise Malformed("the leader sent a text message, not items")
                if message.type is aiohttp.WSMsgType.CLOSE and message.data >= _REFUSED:
                    raise Malformed(f"it sends this gateway away: {printable(message.extra or '')}")
            finally:
                for task in tasks:
                    task.cancel()

    @property
    def _url(self) -> URL:
        mark = {"mark": self._mark.hex()} if self._mark else {}
        return self.leaders.url / "v1/gateway" % {"name": self.name, **mark}

    async def _end_sessions(self) -> None:
        """End the sessions and their pending requests, because the leader is lost."""
        self.ready.clear()
        self._lost.set()
        self._socket = None
        self._outbox.clear()
        admissions = list(self._tickets.values())
        self._tickets, self._devices = {}, {}
        for admission in admissions:
            admission.fail()
        await asyncio.gather(*(one.close() for one in admissions), return_exceptions=True)
        if self.mirror is not None:
            self._last_mirror, self.mirror = self.mirror, None

    def _drop_mirror(self) -> None:
        """Drop the mirror of the last leader."""
        before, self._last_mirror, self._mark = self._last_mirror, None, b""
        if before is not None:
            before.close()

    # Requests of sessions

    @contextmanager
    def ticket(self) -> Iterator[GatewayAdmission]:
        """Open a ticket. After the block, nothing of it is pending any more."""
        in_tasks = self.mirror is not None and self.mirror.config.coordination.traits.tasks
        admission = GatewayAdmission(next(self._numbers), self.send, in_tasks=in_tasks)
        self._tickets[admission.ticket] = admission
        try:
            yield admission
        finally:
            self._tickets.pop(admission.ticket, None)
            device, traffic = admission.device, (0, 0)
            if device is not None:
                traffic = device.connection.traffic
                if self._devices.get(device.id) is admission:
                    del self._devices[device.id]
                    if self.relay is not None:
                        self.relay.leave(device.id)
            self.send(gateway.SessionEnded(admission.ticket, admission.end_reason, *traffic))

    @property
    def devices(self) -> list[Device]:
        """The devices that are connected here."""
        return [admission.device for admission in self._devices.values() if admission.device is not None]

    async def close_sessions(self) -> None:
        """End all sessions, because this gateway stops."""
        await asyncio.gather(*(admission.close() for admission in self._devices.values()))

    async def run_while_led(self, awaited: Awaitable[T]) -> T:
        """Return the result of `awaited`. Raises Unavailable once the leader is lost, because it may hang."""
        both = asyncio.ensure_future(awaited), asyncio.create_task(self._lost.wait())
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if not both[0].done():
                raise Unavailable(LOST)
            return both[0].result()
        finally:
            for one in both:
                one.cancel()
            await asyncio.wait(both)

    async def push(self, push: Push) -> Accepted | PendingUpdate:
        """Send one update. Return its result, durable at the leader. Raises the Refused of the leader."""
        if (admission := self._devices.get(push.device)) is None:
            raise Unavailable(LOST)
        return await admission.push(push)

    async def call(self, function: Callable[[], T]) -> T:
        """Run `function` while the model is at rest."""
        async with self._at_rest:
            if self.mirror is None:
                raise Unavailable(LOST)
            if self.mirror.layout.size <= _QUICK:
                return function()
            return await asyncio.to_thread(function)

    def send(self, item: gateway_coding.Item) -> bool:
        """Send `item` with the next message. Return False if there is no leader."""
        if self._socket is None:
            return False
        self._outbox.add(gateway_coding.pack(item))
        self._outbox.wake()
        return True

    def _start_task(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # Items of the leader

    async def _handle(self, item: gateway_coding.Item) -> None:
        if isinstance(item, gateway.Sync):
            mirror = await asyncio.to_thread(Mirror, item)
            self._check_fit(item, mirror.config)
            self._drop_mirror()
            self._mark = item.mark
            if self.sync is None or self.sync.welcome != item.welcome:
                leader, version = self.leaders.url.origin(), mirror.published.version
                log.info("follows %s, run %s, from version %d on", leader, mirror.terms.run, version)
            self.mirror, self.sync = mirror, item._replace(theta=b"")
            self.relay = GatewayRelay(mirror.config, self.send)
            self._lost.clear()
            self.ready.set()
        elif isinstance(item, gateway.Resumed):
            before = self._last_mirror
            if before is None or item.mark != self._mark:
                raise Malformed("the leader resumes from a version that this gateway does not have")
            await asyncio.to_thread(before.resume, item)
            self._mark = gateway.advance(item.mark, len(item.changes))
            self.mirror, self._last_mirror = before, None
            self._lost.clear()
            self.ready.set()
        elif self.mirror is None:
            raise Malformed(f"the leader begins with a {type(item).__name__}")
        elif isinstance(item, gateway.Change):
            mirror, change = self.mirror, item
            await self.call(lambda: mirror.follow(change))
            self._mark = gateway.advance(self._mark, 1)
        elif isinstance(item, gateway.DealtSamples):
            if self.relay is not None:
                self.relay.queue_dealt(item)
        elif (admission := self._find_admission(item)) is not None:
            self._handlers[type(item)](admission, item)
        elif isinstance(item, gateway.AliveQuery):
            self.send(gateway.AliveReply(item.device, False))

    def _find_admission(self, item: gateway_coding.Item) -> GatewayAdmission | None:
        """Return the admission that an item is for, by its ticket or its device."""
        if ticket := getattr(item, "ticket", 0):
            return self._tickets.get(ticket)
        return self._devices.get(getattr(item, "device", 0))

    def _enter(self, admission: GatewayAdmission, entered: gateway.Entered) -> None:
        if admission.enter(entered):
            self._devices[entered.device] = admission
            if admission.shares and self.relay is not None:
                self.relay.join(entered.device)
        admission.answer(entered)

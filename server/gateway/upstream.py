"""A gateway's line to its leader: the model comes down, updates go up, many in a message.

When the line breaks, requests without an answer stay unanswered and the sessions end. Devices send updates
without a receipt again, here or through another gateway. The leader counts each once.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import replace
from itertools import count
from random import Random
from typing import Any, TypeVar

import aiohttp
from yarl import URL

from edgeflock.server.coordination import Push
from edgeflock.server.engine import Accepted
from edgeflock.server.gateway.leaders import Leaders
from edgeflock.server.gateway.mirror import Mirror
from edgeflock.server.gateway.present import GatewayDevices
from edgeflock.server.gateway.relay import GatewayRelay
from edgeflock.server.gateway.waiting import LOST, PendingRequests, ignore_failure
from edgeflock.server.roster import Device, OpenSession, Relay
from edgeflock.server.sessions import HANG_SECONDS, Outbox, PendingUpdate, ping
from edgeflock.shared.errors import Malformed, Unavailable
from edgeflock.shared.protocol import gateway, gateway_coding
from edgeflock.shared.protocol.backoff import back_off
from edgeflock.shared.protocol.messages import Hello, Record
from edgeflock.shared.protocol.shown import printable
from edgeflock.shared.settings.config import Config

A = TypeVar("A", gateway.AccessGranted, gateway.Entered, gateway.Done)
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
        self.leaders, self._name, self._check_fit = leaders, name, check
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
        self._tickets = count(1)
        self._pending, self._devices = PendingRequests(), GatewayDevices()
        self._tasks: set[asyncio.Task[None]] = set()
        self._handlers: dict[type[gateway_coding.Item], Callable[[Any], None]] = {
            gateway.UpdateTaken: self._pending.settle_push,
            gateway.AccessGranted: self._pending.settle_question,
            gateway.Entered: self._on_entered,
            gateway.Denied: self._pending.deny,
            gateway.UpdateHeld: self._pending.hold_push,
            gateway.End: lambda end: self._start_task(self._devices.end(end)),
            gateway.AliveQuery: lambda ask: self._start_task(self._answer_alive(ask)),
            gateway.Paused: self._devices.set_paused,
            gateway.DeviceRecord: self._devices.forward,
            gateway.Done: self._pending.settle_question,
            gateway.DealtSamples: self._on_dealt,
        }

    @property
    def http(self) -> aiohttp.ClientSession:
        assert self._http is not None, "it runs"
        return self._http

    # Connection

    async def run(self) -> None:
        """Follow leader after leader until cancelled. Raises ConfigError if none accepts this gateway."""
        delays = back_off(Random(), longest=_LONGEST_WAIT)
        connector = aiohttp.TCPConnector(ssl=self.leaders.tls)
        async with AsyncExitStack() as stack:
            http = self._http = await stack.enter_async_context(
                aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar())
            )
            stack.callback(self._drop_mirror)
            while True:
                reason: object = "it hung up"
                try:
                    await self._follow(http)
                    delays = back_off(Random(), longest=_LONGEST_WAIT)
                except (OSError, aiohttp.ClientError, TimeoutError, Malformed) as error:
                    reason = error
                    if isinstance(error, Malformed):
                        self._mark = b""  # the applied part is unknown
                    if (permanent := await self.leaders.diagnose(http, self._url, error)) is not None:
                        raise permanent from error
                finally:
                    await self._end_sessions()
                delay = next(delays)
                log.warning(
                    "the leader %s: %s; trying again in %.1f s", self.leaders.url.origin(), reason, delay
                )
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
        return self.leaders.url / "v1/gateway" % {"name": self._name, **mark}

    async def _end_sessions(self) -> None:
        """End the sessions and their pending requests, because the leader is lost."""
        self.ready.clear()
        self._lost.set()
        self._socket = None
        self._outbox.clear()
        self._pending.fail_all()
        await self._devices.end_all()
        if self.mirror is not None:
            self._last_mirror, self.mirror = self.mirror, None

    def _drop_mirror(self) -> None:
        """Drop the mirror of the last leader."""
        before, self._last_mirror, self._mark = self._last_mirror, None, b""
        if before is not None:
            before.close()

    # Requests of sessions

    def ticket(self) -> int:
        return next(self._tickets)

    async def knock(self, knock: gateway.AccessRequest) -> gateway.AccessGranted:
        """Identify the sender of a secret. Raises the refusal of the leader."""
        return await self._ask(knock.ticket, knock, gateway.AccessGranted)

    async def enter(
        self, ticket: int, hello: Hello, frame: bytes, session: OpenSession
    ) -> tuple[Device, gateway.Entered]:
        """Admit the device of a ticket that has knocked. Raises the refusal of the leader."""
        with self._devices.expect(ticket, hello, session):
            answer = await self._ask(ticket, gateway.Enter(ticket, frame), gateway.Entered)
        try:
            return self._devices[answer.device], answer
        except KeyError:  # the leader was lost just now
            raise Unavailable(LOST) from None

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

    def listen(self, ticket: int, send: Callable[[Record], None]) -> None:
        """Call `send` with the leader's records for this session's device, until it leaves."""
        self._devices.listen(ticket, send)

    async def report_ready(self, ready: gateway.Ready) -> None:
        """Send that a device is ready. When this returns, all answers have been passed on. Raises Refused."""
        await self._ask(ready.ticket, ready, gateway.Done)

    def leave(self, ticket: int, device: Device | None, reason: str) -> None:
        """End a ticket: nothing of it is pending any more."""
        ingress, egress = (0, 0) if device is None else device.connection.traffic
        removed = self._devices.leave(ticket, device)
        if removed is not None and self.relay is not None:
            self.relay.leave(removed.id)
        self.send(gateway.SessionEnded(ticket, reason, ingress, egress))

    async def push(self, push: Push) -> Accepted | PendingUpdate:
        """Send one update. Return its result, durable at the leader. Raises the Refused of the leader."""
        future = self._pending.add_push(push.device)
        self.send(gateway.DeviceUpdate(push.device, *self._devices.traffic(push.device), push.frame))
        outcome = await future
        mirror = self.mirror
        if mirror is not None and mirror.config.coordination.traits.tasks:
            return outcome  # the device goes on to its next task, and the leader counts
        if isinstance(outcome, PendingUpdate):
            pending = asyncio.ensure_future(self._await_accepted(push, outcome.answer))
            return PendingUpdate(ignore_failure(pending))
        return await self._add_model(push, outcome)

    async def _await_accepted(self, push: Push, answer: asyncio.Future[Accepted]) -> Accepted:
        return await self._add_model(push, await answer)

    async def _add_model(self, push: Push, accepted: Accepted) -> Accepted:
        update, mirror = push.update, self.mirror
        if not update.pull:
            return accepted
        if mirror is None:
            raise Unavailable(LOST)
        if mirror.config.coordination.traits.cohort:
            return accepted  # the leader knows the cohort: the device asks for the model
        model = await self.call(lambda: mirror.outlet.model(update.base, update.held, push.device))
        return accepted._replace(receipt=replace(accepted.receipt, model=model))

    async def call(self, function: Callable[[], T]) -> T:
        """Run `function` while the model is at rest."""
        async with self._at_rest:
            if self.mirror is None:
                raise Unavailable(LOST)
            if self.mirror.layout.size <= _QUICK:
                return function()
            return await asyncio.to_thread(function)

    def send(self, item: gateway_coding.Item) -> None:
        """Send `item` with the next message; drop it if there is no leader."""
        if self._socket is not None:
            self._outbox.add(gateway_coding.pack(item))
            self._outbox.wake()

    async def _ask(self, ticket: int, item: gateway_coding.Item, kind: type[A]) -> A:
        if self._socket is None:
            raise Unavailable(LOST)
        with self._pending.question(ticket) as future:
            self.send(item)
            answer = await future
        assert isinstance(answer, kind), "it answers this item"
        return answer

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
            relay = Relay(mirror.config.injection, mirror.config.limits.samples)
            self.mirror, self.sync = mirror, item._replace(theta=b"")
            self.relay = GatewayRelay(relay, self.send)
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
        else:
            self._handlers[type(item)](item)

    def _on_entered(self, entered: gateway.Entered) -> None:
        if self._devices.add(entered) and self.relay is not None:
            self.relay.join(entered.device)
        self._pending.settle_question(entered)

    async def _answer_alive(self, ask: gateway.AliveQuery) -> None:
        self.send(gateway.AliveReply(ask.device, await self._devices.is_alive(ask.device)))

    def _on_dealt(self, dealt: gateway.DealtSamples) -> None:
        if self.relay is not None:
            self.relay.queue(dealt)

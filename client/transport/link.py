"""The device's side of a session: requests and answers, across reconnects.

A request without an answer is sent again after a reconnect. Requests are idempotent: a Pull changes nothing,
and the server answers a repeated Update, with the same sequence number, with the first receipt. The server is
not trusted: an answer of the wrong type ends the device's part with a ServerAtFault.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from random import Random
from typing import TypeVar

import aiohttp

from edgeflock.client.identity import ClientIdentity, urls_of
from edgeflock.client.training.conversation import DeviceConversation, ServerLink, check_answer, unrequested
from edgeflock.client.transport.credentials import Credentials
from edgeflock.client.transport.dialing import HEARTBEAT, HOME_SECONDS, Dialer
from edgeflock.client.transport.downloads import Downloads
from edgeflock.client.transport.http import open_http
from edgeflock.client.transport.liveness import HANG_SECONDS
from edgeflock.client.transport.retrying import Retries
from edgeflock.client.transport.session import RecordSession
from edgeflock.shared.errors import ConfigError, RunReplaced, ServerAtFault, SessionRefused
from edgeflock.shared.identity import tls_for
from edgeflock.shared.protocol import wire
from edgeflock.shared.protocol.messages import (
    LONGEST_REASON,
    Facts,
    Goodbye,
    Hello,
    Record,
    Samples,
    Task,
    Telemetry,
    Welcome,
)
from edgeflock.shared.protocol.shown import printable

R = TypeVar("R")

_UNLIMITED = 1 << 40


class Link(ServerLink):
    """A device's connection to its server. Use as an async context manager."""

    def __init__(
        self,
        server: str,
        identity: ClientIdentity | None,
        hello: Hello,
        random: Random,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        *,
        memory: int = _UNLIMITED,
        samples: int = 0,
        bandwidth: float | None = None,
        insecure: bool = False,
        on_renewed: Callable[[ClientIdentity], None] = lambda identity: None,
        hang_seconds: float = HANG_SECONDS,
        home_seconds: float = HOME_SECONDS,
    ) -> None:
        """`server` is an http(s) URL, or several separated by commas. The device's name defines their order.

        Raises ConfigError if it is invalid, or plain HTTP to another machine without `insecure`. Without
        an identity only an open run accepts this device. `on_renewed` gets each new identity.
        A model that needs more than `memory` bytes is refused, and Samples of more than `samples` bytes.
        `bandwidth` limits the bytes per second of both directions together. A server without a sign of life
        for `hang_seconds` is given up (liveness.py). From another server the device returns to its first
        within `home_seconds`.
        """
        servers = urls_of(server)
        pin = b"" if identity is None else identity.pin
        for url in reversed(servers):
            self._tls = tls_for(
                url.scheme, url.host or "", pin, insecure=insecure, mutable=identity is not None
            )
        self._rate = math.inf if bandwidth is None else bandwidth
        self._credentials = Credentials(identity, self._tls, on_renewed)
        self.conversation = DeviceConversation(hello)
        self._dialer = Dialer(
            *(servers, self._credentials, self.conversation, random),
            memory=memory,
            samples=samples,
            rate=self._rate,
            hang_seconds=hang_seconds,
            home_seconds=home_seconds,
        )
        self._liveness = self._dialer.liveness
        self._retries = Retries(lambda: self._dialer.address, random, sleep, self._dialer.lose)
        self.downloads = Downloads(self._dialer, self._credentials.headers, self._retries, memory)
        self._stack = AsyncExitStack()
        self._run = ""
        self._needs_session = False
        """Whether the next request needs a new session."""

    async def __aenter__(self) -> "Link":
        http = open_http(self._credentials, self._tls, self._rate)
        self._dialer.http = await self._stack.enter_async_context(http)
        self._stack.push_async_callback(self._dialer.close)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    @property
    def connections(self) -> int:
        """The number of sessions started."""
        return self._dialer.connections

    async def join(self) -> Welcome:
        """Connect, with retries. Raises SessionRefused if rejected, ConfigError if it can never connect."""
        await self._dialer.hang_up()
        self._run = ""
        welcome = await self._retries.until_answered(self._dial)
        self._run = welcome.run
        return welcome

    async def task(self) -> Task | None:
        """Wait for a task; None: the round is over or the connection lost, so pull. Raises RunOver."""
        session = self._dialer.session
        return None if self.conversation.round_ended or session is None else await self._next_task(session)

    async def round_end(self) -> None:
        """Wait until the round in which the device computes is over. Raises RunOver."""
        if await self.task() is not None:
            raise ServerAtFault("the server sent a Task while the last one was being computed")
        if not self.conversation.round_ended:  # the connection is lost: the next one sends the result
            await asyncio.get_running_loop().create_future()

    async def share(self, samples: Samples) -> None:
        """Send samples to other devices, if the run uses injection. They are lost with the connection."""
        if self.conversation.injects:
            await self._send(samples)

    async def send_facts(self, facts: Facts) -> None:
        """Send the device's facts, if there is a connection."""
        await self._send(Telemetry(facts))

    async def leave(self, reason: str) -> None:
        """Send the reason why this device leaves, if there is a connection."""
        await self._send(Goodbye(printable(reason)[:LONGEST_REASON]))

    async def introduce(self, facts: Facts) -> None:
        """Announce `facts` in the Hello. If they changed, the next request starts a new session.

        Until then the old session stays open, so that the device can send why it leaves.
        """
        if facts != self.conversation.hello.facts:
            self.conversation.hello = replace(self.conversation.hello, facts=facts)
            self._needs_session = True

    async def ask(self, question: Record, expected: type[R]) -> R:
        octets = wire.encode(question)
        self._check_fits(len(octets))

        async def attempt() -> R:
            session = await self._connected()
            answer = await self._liveness.during(session.ask(octets), lambda: session)
            return check_answer(question, answer, expected)

        return await self._retries.until_answered(attempt)

    async def _send(self, record: Record) -> None:
        """Send a record that needs no answer, if there is a connection."""
        if self._dialer.session is not None:
            await self._dialer.session.send(wire.encode(record))

    def _check_fits(self, size: int) -> None:
        """Raises ConfigError if a message takes longer than the heartbeat allows."""
        minimum = size / (HEARTBEAT / 2)
        if self._rate < minimum:
            raise ConfigError(
                f"client.bandwidth = {self._rate / 1e3:g}kB/s: a message of this run has {size:,} "
                f"bytes, which needs {math.ceil(minimum / 1e3)}kB/s: raise or leave out client.bandwidth"
            )

    async def _connected(self) -> RecordSession:
        if self._needs_session or self._dialer.is_called_home():
            await self._dialer.hang_up()
        if self._dialer.session is None:
            welcome = await self._dial()
            if welcome.run != self._run:
                raise RunReplaced(f"the server now hosts run {welcome.run}")
        assert self._dialer.session is not None
        return self._dialer.session

    async def _dial(self) -> Welcome:
        welcome = await self._dialer.dial()
        self._needs_session = False
        return welcome

    async def _next_task(self, session: RecordSession) -> Task | None:
        """Return the next Task from the server, or None after the round's Over or a lost connection."""
        try:
            while not self.conversation.round_ended:
                record = await self._liveness.during(session.next(), lambda: session)
                if isinstance(record, Task):
                    return record
                if record is not None:
                    raise unrequested(record)
        except (ConnectionError, aiohttp.ClientError, SessionRefused):
            await self._dialer.hang_up()  # the next request reports the cause
        return None

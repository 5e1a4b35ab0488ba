"""The session from the device's side: ask, and get an answer, however often the line drops in between.

A request that got no answer is sent again after a reconnect. That is safe for each: a Pull changes nothing,
and an Update keeps its sequence number, so that the server answers a second one with the first one's receipt.

A server is believed no more than it must be: an answer comes from where it was asked, and to what was asked;
else the device's part ends with a ServerAtFault.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from random import Random
from typing import TypeVar

import aiohttp

from edgeflock.client.first_model import CachedFirstModel
from edgeflock.client.identity import ClientIdentity
from edgeflock.client.servers import urls_of
from edgeflock.client.transport.credentials import Credentials
from edgeflock.client.transport.dialing import HEARTBEAT, Dialer
from edgeflock.client.transport.downloads import Downloads
from edgeflock.client.transport.home import HOME_SECONDS
from edgeflock.client.transport.http import opened
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
    Model,
    Over,
    Pull,
    Receipt,
    Record,
    Samples,
    Task,
    Telemetry,
    Update,
    Welcome,
)
from edgeflock.shared.protocol.shown import shown

R = TypeVar("R")

_PLENTY = 1 << 40


class Link:
    """A device's line to its server. Use as an async context manager."""

    def __init__(
        self,
        server: str,
        identity: ClientIdentity | None,
        hello: Hello,
        random: Random,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        *,
        memory: int = _PLENTY,
        samples: int = 0,
        bandwidth: float | None = None,
        insecure: bool = False,
        renewed: Callable[[ClientIdentity], None] = lambda identity: None,
        hang_seconds: float = HANG_SECONDS,
        home_seconds: float = HOME_SECONDS,
    ) -> None:
        """`server` is the server's http(s) URL; of several, with commas between them, one that answers: which
        is tried first follows from the device's name. Raises ConfigError if it is none, or if it is plain
        HTTP beyond this machine and not `insecure`. Without an identity only a run that is open lets this
        device in; `renewed` is told of another one that the server wants it to have.

        A model that does not fit into `memory` bytes is refused, and Samples of more than `samples` bytes.
        Both ways together no more than `bandwidth` bytes a second pass. A server that shows no life for
        `hang_seconds` is given up (liveness.py); from another one the device returns to its first within
        `home_seconds` (home.py).
        """
        servers = urls_of(server)
        pin = b"" if identity is None else identity.pin
        for url in reversed(servers):
            self._tls = tls_for(
                url.scheme, url.host or "", pin, insecure=insecure, of_its_own=identity is not None
            )
        self._rate = math.inf if bandwidth is None else bandwidth
        self._credentials = Credentials(identity, self._tls, renewed)
        self._dialer = Dialer(
            *(servers, self._credentials, hello, self._note, random),
            memory=memory,
            samples=samples,
            rate=self._rate,
            hang_seconds=hang_seconds,
            home_seconds=home_seconds,
        )
        self._liveness = self._dialer.liveness
        self._retries = Retries(str(url), random, sleep, self._dialer.lose)
        headers = self._credentials.headers
        self._downloads = Downloads(self._dialer.server, headers, hello.device, self._retries)
        self._stack = AsyncExitStack()
        self._http: aiohttp.ClientSession | None = None
        self._run = ""
        self._injects = self._tasks = False
        self._over = False
        """Whether the server said that the round of the model that the device has is over."""
        self._anew = False
        """Whether the next question is for a new session."""
        self._listener: Callable[[Samples], None] = lambda samples: None

    async def __aenter__(self) -> "Link":
        http = opened(self._credentials, self._tls, self._rate)
        self._http = self._dialer.http = await self._stack.enter_async_context(http)
        self._stack.push_async_callback(self._dialer.close)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    @property
    def connections(self) -> int:
        """How many sessions were begun."""
        return self._dialer.connections

    async def join(self) -> Welcome:
        """Connect, for as long as it takes. Raises SessionRefused if the server will not have this device,
        ConfigError if there is no server that it could connect to.
        """
        await self._dialer.hang_up()
        self._run = ""
        welcome = await self._retries.until_answered(self._dial)
        self._run = welcome.run
        return welcome

    async def push(self, update: Update) -> Receipt:
        """The receipt for `update`, which is then durable. Raises Refused, RunOver or RunReplaced."""
        return await self._ask(update, Receipt)

    async def pull(self, base: int | None, held: int = 0, start: int = 0, stop: int = 0) -> Model:
        """The current model, or the parameters from `start` up to `stop` of it. Raises Refused, RunOver or
        RunReplaced.
        """
        return await self._ask(Pull(base, held, start, stop), Model)

    async def offer(self, update: Update) -> Task:
        """What came of `update`, and what to compute next. Raises Refused, RunOver or RunReplaced."""
        return await self._ask(update, Task)

    async def task(self) -> Task | None:
        """What to compute next, once there is something; None if the round is over, or the line lost: then
        the model is to be pulled. Raises RunOver.
        """
        session = self._dialer.session
        return None if self._over or session is None else await self._told(session)

    async def over(self) -> None:
        """Return once the round is over in which the device computes. Raises RunOver."""
        session = self._dialer.session
        if not self._over and session is not None and await self._told(session) is not None:
            raise ServerAtFault("the server sent a Task while the last one was being computed")
        if not self._over:  # the line is lost: what is computed is offered on the next one
            await asyncio.get_running_loop().create_future()

    async def share(self, samples: Samples) -> None:
        """Send samples to the others, if the run still wants that. They are lost if the line is."""
        if self._injects:
            await self._say(samples)

    async def tell(self, facts: Facts) -> None:
        """Tell how the device does, if there is a line."""
        await self._say(Telemetry(facts))

    async def leave(self, reason: str) -> None:
        """Tell why this device leaves, if there is a line."""
        await self._say(Goodbye(shown(reason)[:LONGEST_REASON]))

    def listen(self, listener: Callable[[Samples], None]) -> None:
        """Hand what others share to `listener`: it comes along with answers."""
        self._listener = listener

    async def graph(self, kind: str) -> bytes:
        """The run's "step" or "evaluation" as an ONNX graph (Downloads.graph)."""
        return await self._downloads.graph(self._opened, kind, self._liveness)

    async def load(self, kept: CachedFirstModel) -> bool:
        """Bring what is missing of a first model; False if the server has it no longer (Downloads.load)."""
        return await self._downloads.load(self._opened, kept, self._liveness)

    def speak_as(self, layout: bytes) -> None:
        """Name the layout in every Hello from now on, so that a server with another model refuses it."""
        self._dialer.hello = replace(self._dialer.hello, layout=layout)

    async def introduce(self, facts: Facts) -> None:
        """Tell the server `facts` about this device: if it was told others, in a new session with the next
        question. Until then the device is there, and can say why it leaves.
        """
        if facts != self._dialer.hello.facts:
            self._dialer.hello = replace(self._dialer.hello, facts=facts)
            self._anew = True

    @property
    def _opened(self) -> aiohttp.ClientSession:
        assert self._http is not None, "use Link as an async context manager"
        return self._http

    async def _ask(self, question: Record, expected: type[R]) -> R:
        octets = wire.encode(question)
        self._fits(len(octets))

        async def attempt() -> R:
            session = await self._connected()
            answer = await self._liveness.during(session.ask(octets), lambda: session)
            if not isinstance(answer, expected):
                raise ServerAtFault(
                    f"the server answered a {type(question).__name__} with a {type(answer).__name__}"
                )
            if isinstance(answer, Model):
                self._over = False
            return answer

        return await self._retries.until_answered(attempt)

    async def _say(self, record: Record) -> None:
        """What needs no answer, if there is a line."""
        if self._dialer.session is not None:
            await self._dialer.session.send(wire.encode(record))

    def _fits(self, size: int) -> None:
        """Raises ConfigError if a message takes so long that the line would count as dead meanwhile."""
        least = size / (HEARTBEAT / 2)
        if self._rate < least:
            raise ConfigError(
                f"client.bandwidth = {self._rate / 1e3:g}kB/s: a message of this run has {size:,} "
                f"bytes, which needs {math.ceil(least / 1e3)}kB/s; allow that, or leave client.bandwidth out"
            )

    async def _connected(self) -> RecordSession:
        if self._anew or self._dialer.is_called_home():
            await self._dialer.hang_up()
        if self._dialer.session is None:
            welcome = await self._dial()
            if welcome.run != self._run:
                raise RunReplaced(f"the server now hosts run {welcome.run}")
        assert self._dialer.session is not None
        return self._dialer.session

    async def _dial(self) -> Welcome:
        welcome = await self._dialer.dial()
        self._anew = False
        self._injects = welcome.alpha > 0 and welcome.beta > 0
        self._tasks, self._over = welcome.tasks, False
        return welcome

    def _note(self, record: Record) -> None:
        """What comes without being asked for, between answers."""
        if isinstance(record, Samples):
            if not self._dialer.hello.shares:
                raise ServerAtFault("the server sent samples, but this device does not share any")
            self._listener(record)
        elif isinstance(record, Over) and self._tasks:
            self._over = True
        else:
            raise ServerAtFault(f"the server sent a {type(record).__name__} that was not asked for")

    async def _told(self, session: RecordSession) -> Task | None:
        """The next Task that is not asked for, None if the round's Over comes first, or the line is lost."""
        try:
            while not self._over:
                record = await self._liveness.during(session.next(), lambda: session)
                if isinstance(record, Task):
                    return record
                self._note(record)
        except (ConnectionError, aiohttp.ClientError, SessionRefused):
            await self._dialer.hang_up()  # whatever it is, the next question meets it
        return None

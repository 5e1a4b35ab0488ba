"""The device's side of a session, without I/O: what it says first, and what the server's records mean.

A socket (client/transport) and an emulated link read the server's records through it. The server is not
trusted: a record out of turn is a ServerAtFault.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from edgeflock.shared.errors import REFUSALS, Refused, RunOver, ServerAtFault
from edgeflock.shared.protocol.messages import (
    Hello,
    Model,
    Over,
    Pull,
    Receipt,
    Record,
    Refusal,
    Samples,
    SecureSum,
    Stop,
    Task,
    Update,
    Welcome,
)
from edgeflock.shared.protocol.shown import printable

R = TypeVar("R")


class DeviceConversation:
    """One device's conversation with its server, across sessions."""

    def __init__(self, hello: Hello) -> None:
        self.hello = hello
        """The first record of the next session."""
        self.listener: Callable[[Samples], None] = lambda samples: None
        """Gets others' samples, which arrive between answers."""
        self.injects = False
        """Whether devices of this run share samples."""
        self.round_ended = False
        """Whether the server ended the round of the device's model."""
        self._tasks = False

    def begin(self, record: Record | None) -> Welcome:
        """Begin a session with the answer to the Hello, and return it. Raises ServerAtFault."""
        welcome = check_answer(self.hello, record, Welcome)
        self.hello = replace(self.hello, secret=welcome.secret)
        self.injects = welcome.alpha > 0 and welcome.beta > 0
        self._tasks, self.round_ended = welcome.tasks, False
        return welcome

    def read(self, record: Record) -> Record | None:
        """Return the record if it may be an answer; None if it is handled.

        Raises the server's refusal, RunOver, or ServerAtFault.
        """
        if isinstance(record, Refusal):
            refusal = REFUSALS.get(record.code, Refused)(printable(record.detail))
            refusal.seconds = record.seconds
            raise refusal
        if isinstance(record, Stop):
            raise RunOver(printable(record.reason))
        if isinstance(record, Samples):
            if not self.hello.shares:
                raise ServerAtFault("the server sent samples, but this device does not share any")
            self.listener(record)
            return None
        if isinstance(record, Over):
            if not self._tasks:
                raise unrequested(record)
            self.round_ended = True
            return None
        if isinstance(record, Model):
            self.round_ended = False
        return record


class ServerLink:
    """The server as a worker sees it. A subclass asks, over a socket or an emulated link.

    Questions raise Refused or RunOver, and over a socket RunReplaced.
    """

    conversation: DeviceConversation

    async def join(self) -> Welcome:
        """Connect and return the run's terms."""
        raise NotImplementedError

    async def task(self) -> Task | None:
        """Return the next task, after a pull or after a Task without one; None: pull again."""
        raise NotImplementedError

    async def round_end(self) -> None:
        """Wait until the round in which the device computes is over."""
        raise NotImplementedError

    async def ask(self, question: Record, expected: type[R]) -> R:
        """Send a question, and return its answer."""
        raise NotImplementedError

    async def push(self, update: Update) -> Receipt:
        """Push `update`; return the receipt: it is then durable."""
        return await self.ask(update, Receipt)

    async def pull(self, base: int | None, held: int = 0, start: int = 0, stop: int = 0) -> Model:
        """Return the model, or parameters `start` to `stop` - 1, for a replica of version `base`.

        `held` is Replica.held, which tells the server exactly what the replica contains.
        """
        return await self.ask(Pull(base, held, start, stop), Model)

    async def offer(self, update: Update) -> Task:
        """In a run of tasks: send `update`; return its result with the next task."""
        return await self.ask(update, Task)

    async def sum(self, message: SecureSum) -> SecureSum:
        """Send a step of a secure sum; return its answer."""
        return await self.ask(message, SecureSum)

    def listen(self, listener: Callable[[Samples], None]) -> None:
        """Pass others' samples, which arrive between answers, to `listener`."""
        self.conversation.listener = listener

    def announce_layout(self, layout: bytes) -> None:
        """Name the layout in every Hello from now on, so that a server with another model refuses it."""
        self.conversation.hello = replace(self.conversation.hello, layout=layout)


def check_answer(question: Record, answer: Record | None, expected: type[R]) -> R:
    """Return the answer. Raises ServerAtFault if it is of another type."""
    if not isinstance(answer, expected):
        raise ServerAtFault(f"the server answered a {type(question).__name__} with a {type(answer).__name__}")
    return answer


def unrequested(record: Record) -> ServerAtFault:
    """Return the error for a record that answers nothing."""
    return ServerAtFault(f"the server sent a {type(record).__name__} that this device did not request")

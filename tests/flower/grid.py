"""A Flower grid in memory: the API and behaviour of a SuperLink's, on a clock that jumps to the next event.

Nodes run real ClientApps. Messages and replies go through Flower's own serialisation, as over the network.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import count

from flwr.app import Context, Error, Message, RecordDict
from flwr.app.message import Message as Inflated
from flwr.clientapp import ClientApp
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.run import Run


@dataclass
class Clock:
    """Stands in for the module `time`: sleeping is what makes time pass."""

    now: float = 0.0
    events: list[tuple[float, Callable[[], None]]] = field(default_factory=list)

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        due = sorted((e for e in self.events if e[0] <= self.now), key=lambda e: e[0])
        self.events = [e for e in self.events if e[0] > self.now]
        for _, happen in due:
            happen()

    def at(self, time: float, happen: Callable[[], None]) -> None:
        self.events.append((time, happen))


@dataclass
class Node:
    """A SuperNode: it works on one message after the other, each for `seconds`."""

    app: ClientApp
    seconds: float
    context: Context
    free_at: float = 0.0


@dataclass
class _UnderWay:
    node: int
    ready_at: float
    expires_at: float
    reply: Message


class FakeGrid(Grid):
    """What a ServerApp sees of a SuperLink."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.nodes: dict[int, Node] = {}
        self.log: list[tuple[float, int, str]] = []
        """(time, node, message type) of every message pushed."""
        self._under_way: dict[str, _UnderWay] = {}
        self._ids = count(1)

    def add(self, node: int, app: ClientApp, seconds: float = 1.0) -> None:
        self.nodes[node] = Node(app, seconds, Context(1, node, {}, RecordDict(), {}), self.clock.now)

    def remove(self, node: int) -> None:
        """As if somebody pulled its plug."""
        del self.nodes[node]

    def set_run(self, run: Run) -> None:
        raise NotImplementedError

    @property
    def run(self) -> Run:
        raise NotImplementedError

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self) -> Iterable[int]:
        return list(self.nodes)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        return [self._push(m) if m.metadata.dst_node_id in self.nodes else "" for m in messages]

    def _push(self, message: Message) -> str:
        identifier, now = f"message-{next(self._ids)}", self.clock.now
        number = message.metadata.dst_node_id
        node = self.nodes[number]
        self.log.append((now, number, message.metadata.message_type))
        arrived = _over_the_wire(message, identifier)
        try:
            reply = _over_the_wire(node.app(arrived, node.context), "")
        except Exception as error:  # as a ClientApp's process does
            code = ErrorCode.CLIENT_APP_RAISED_EXCEPTION
            reply = Message(Error(code, f"{type(error)}:<'{error}'>"), reply_to=arrived)
        node.free_at = max(now, node.free_at) + node.seconds
        self._under_way[identifier] = _UnderWay(number, node.free_at, now + message.metadata.ttl, reply)
        return identifier

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        replies = (self._pull(identifier) for identifier in message_ids)
        return [reply for reply in replies if reply is not None]

    def _pull(self, identifier: str) -> Message | None:
        message = self._under_way.get(identifier)
        if message is None:
            raise AssertionError(f"{identifier} was never sent, or answered already")
        now = self.clock.now
        if now >= message.expires_at:
            reply = _failure(message.reply, ErrorCode.MESSAGE_UNAVAILABLE)
        elif message.node not in self.nodes:
            reply = _failure(message.reply, ErrorCode.NODE_UNAVAILABLE)
        elif now >= message.ready_at:
            reply = message.reply
        else:
            return None
        del self._under_way[identifier]
        return reply

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        waiting = set(self.push_messages(messages))
        end = self.clock.now + (timeout or 0)
        replies: list[Message] = []
        while waiting and (timeout is None or self.clock.now < end):
            come = list(self.pull_messages(waiting))
            waiting -= {reply.metadata.reply_to_message_id for reply in come}
            replies += come
            self.clock.sleep(3)
        return replies


def _over_the_wire(message: Message, identifier: str) -> Message:
    contents = {key: part.deflate() for key, part in get_all_nested_objects(message).items()}
    inflated = inflate_object_from_contents(message.object_id, contents)
    assert isinstance(inflated, Inflated)
    inflated.metadata.__dict__["_message_id"] = identifier
    return inflated


def _failure(reply: Message, code: int) -> Message:
    failure = Message(Error(code), reply_to=reply)
    failure.metadata.__dict__["_reply_to_message_id"] = reply.metadata.reply_to_message_id
    return failure

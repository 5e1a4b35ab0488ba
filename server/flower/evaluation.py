"""Federated evaluation during training: nodes evaluate a round's model while others continue."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from flwr.app import Message

_MAX_PENDING = 2
"""The most pending evaluations of a node: a node that trains meanwhile is always a round behind."""


@dataclass(frozen=True, slots=True)
class PendingEvaluation:
    """An evaluation that was requested from a node."""

    round: int
    node: int
    time: float


@dataclass(slots=True)
class Evaluations:
    """The pending evaluations. Times are seconds of any one clock."""

    pending: dict[str, PendingEvaluation] = field(default_factory=dict)
    """Message id -> an evaluation that has not been answered."""
    _replies: dict[int, list[Message]] = field(default_factory=dict)

    def add(self, message: str, server_round: int, node: int, now: float) -> None:
        self.pending[message] = PendingEvaluation(server_round, node, now)
        self._replies.setdefault(server_round, [])

    def busy_nodes(self) -> set[int]:
        """Return the nodes that have not answered for the last two models. They get no further request."""
        waiting = Counter(asked.node for asked in self.pending.values())
        return {node for node, models in waiting.items() if models >= _MAX_PENDING}

    def take(self, replies: Iterable[Message]) -> Iterator[tuple[PendingEvaluation, Message]]:
        """Store replies, and yield those that are errors. Replies to other messages are ignored."""
        for reply in replies:
            asked = self.pending.pop(reply.metadata.reply_to_message_id, None)
            if asked is not None:
                self._replies[asked.round].append(reply)
                if reply.has_error():
                    yield asked, reply

    def expire(self, now: float, timeout: float) -> list[PendingEvaluation]:
        """Remove and return the evaluations that are pending for `timeout` or longer."""
        late = [message for message, asked in self.pending.items() if now - asked.time >= timeout]
        return [self.pending.pop(message) for message in late]

    def pop_finished(self) -> list[tuple[int, list[Message]]]:
        """Return the rounds without pending answers, with their replies. Each round is returned once."""
        open_rounds = {asked.round for asked in self.pending.values()}
        return [(r, self._replies.pop(r)) for r in sorted(self._replies.keys() - open_rounds)]

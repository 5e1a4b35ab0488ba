"""One model trained by Flower nodes: their replies become pushes to the engine, like a device's updates.

The engine does all that makes an update count: admission, exactly-once delivery, the journal, weighting, the
optimizer. A node is a device whose name is the node's id.
"""

import logging
import re
import time
from collections.abc import Iterable, Iterator, Set
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid
from numpy.typing import NDArray

from edgeflock.server.coordination import Push
from edgeflock.server.engine.admission import EXPANSION_PER_ENTRY
from edgeflock.server.engine.outcomes import Accepted
from edgeflock.server.engine.welcome import welcome
from edgeflock.server.flower.messages import Keys, Template, content_bytes, read_update, train_message
from edgeflock.server.flower.nodes import FlowerNode, Nodes, PendingTraining, SentModel
from edgeflock.server.flower.shares import Shares
from edgeflock.server.ledger import Claim, claim_run
from edgeflock.shared.errors import BaseExpired, ConfigError, Refused
from edgeflock.shared.protocol import wire
from edgeflock.shared.protocol.frames import Evaluation
from edgeflock.shared.settings.config import Config

log = logging.getLogger("flwr")

_SLACK = 0.2
"""The relative change of the number of nodes from which replies are weighted by the new number."""

_ERRORS = {
    ErrorCode.NODE_UNAVAILABLE: "vanished",
    ErrorCode.MESSAGE_UNAVAILABLE: "timed-out",
    ErrorCode.REPLY_MESSAGE_UNAVAILABLE: "timed-out",
}
"""Flower's error codes that say nothing about the ClientApp; any other is an "error-reply"."""

_RAISED = re.compile(
    r"<class '(?:[^'()]*\.)?(\w+)'>:<'(.*)'>|<class .*Exception (\w+) occurred\. Message: (.*)'>", re.DOTALL
)
"""Flower's message about an app's exception: its class and reason; simulations put a traceback first."""

_REASONS = {"vanished": "the node has disconnected", "timed-out": "no answer came in time"}


def outcome_of(reply: Message) -> str:
    """Return the outcome under which a reply without content is counted."""
    return _ERRORS.get(reply.error.code, "error-reply")


def reason_of(reply: Message) -> str:
    """Return why a reply has no content, for people."""
    reason = reply.error.reason or _REASONS.get(outcome_of(reply), "Flower gives no reason")
    if raised := _RAISED.fullmatch(reason):
        reason = ": ".join(part for part in raised.groups() if part is not None)
    return " ".join(reason.split())


def push_message(grid: Grid, message: Message) -> str | None:
    """Send a message and return its identifier; None if Flower does not take it.

    Messages go one at a time: some grids omit messages that they refuse, others return None or "" for them.
    """
    return next(iter(grid.push_messages([message])), None) or None


class FlowerRun:
    """A Flower job: the engine, the journal, the arrays as users know them, and the nodes."""

    def __init__(
        self, claim: Claim, template: Template, config: Config, keys: Keys, *, durable: bool
    ) -> None:
        """Without `durable` the journal keeps no update records, since no restart replays them."""
        self.nodes = Nodes()
        self.shares = Shares()
        journal, self.engine = claim.journal, claim.engine
        self.evaluations = journal.evaluations()
        """One evaluation for each round, in order, or two of the same version once it was judged. The first
        round is of the initial model."""
        self._run = claim.run
        self._template = template
        self._config = config
        self._keys = keys
        self._durable = durable
        how = config.coordination
        self._counts_nodes = not how.traits.gathers and not how.base_batch  # base_batch weighs them
        template.statistics = journal.snapshot(first=True).theta[template.layout.parameters.size :]
        self._past = {account.name: account for account in journal.accounts()}
        self._current: tuple[int, ArrayRecord, NDArray[np.float32]] | None = None

    def arrays(self) -> ArrayRecord:
        """Return the current model, for training."""
        return self._current_model()[1]

    def result(self) -> ArrayRecord:
        """Return the model to use: the averaged model if the run keeps one."""
        return self._template.record(self.engine.result()[1])

    def _current_model(self) -> tuple[int, ArrayRecord, NDArray[np.float32]]:
        """Return (version, arrays, theta as nodes see it), built once a version for all nodes."""
        if self._current is None or self._current[0] != self.engine.published.version:
            version, theta = self.engine.theta()
            self._current = version, self._template.record(theta), self._template.round_to_types(theta)
        return self._current

    def train_message(self, node: int, config: ConfigRecord, ttl: float) -> Message:
        """Return the message that asks a node to train on the current model."""
        version, arrays, _ = self._current_model()
        flower_node = self._node(node)
        last = self.engine.receipts.last_sequence(flower_node.device)
        terms = welcome(self._run, self._config, self._template.sent_layout)
        terms = replace(terms, version=version, sequence=last)
        return train_message(node, arrays, terms, config, self._keys, ttl, refused=flower_node.refused)

    def send(self, grid: Grid, question: Message, now: float) -> None:
        """Send `train_message`, and record that it is pending."""
        version, _, theta = self._current_model()
        node = question.metadata.dst_node_id
        flower_node = self._node(node)
        message = push_message(grid, question)
        if message is None:
            self._record_failure(node, "unsent", "Flower did not take the message", now)
            return
        flower_node.egress += content_bytes(question)
        sent = SentModel(version, self.engine.receipts.last_sequence(flower_node.device) + 1, theta)
        self.nodes.add(message, PendingTraining(node, sent, now))
        self.shares.record_request(node)

    def set_node_count(self, nodes: int) -> None:
        """Set how many nodes train at a time. As in FedAvg, each reply counts by its part of them."""
        if not self._counts_nodes:
            nodes = 1
        before = self.engine.parameters.regime.method.nodes
        if abs(nodes - before) > _SLACK * before or nodes == 1:
            self.engine.steering.set_node_count(nodes)

    def _node(self, node: int) -> FlowerNode:
        if node not in self.nodes.by_id:
            name = str(node)
            past = self._past.get(name)
            traffic = (past.ingress, past.egress) if past else (0, 0)
            self.nodes.by_id[node] = FlowerNode(
                self.engine.device_id(name), ingress=traffic[0], egress=traffic[1]
            )
        return self.nodes.by_id[node]

    def take(self, replies: Iterable[Message], now: float) -> list[RecordDict]:
        """Commit replies. Returns the contents of those that were accepted."""
        accepted: list[RecordDict] = []
        taken: list[tuple[int, RecordDict]] = []
        pushes: list[Push] = []
        for reply in replies:
            asked = self.nodes.pending.pop(reply.metadata.reply_to_message_id, None)
            if asked is None:
                continue
            flower_node = self._node(asked.node)
            flower_node.ingress += content_bytes(reply)
            if reply.has_error():
                self._record_failure(asked.node, outcome_of(reply), reason_of(reply), now)
                continue
            try:
                update = read_update(reply.content, asked.sent, self._template, self._keys)
            except Refused as refusal:
                self._record_refusal(asked.node, refusal, now)
                continue
            self.shares.record_reply(asked.node, update.samples)
            frame = wire.encode(update) if self._durable else b""
            pushes.append(Push(flower_node.device, time.time(), update, frame))
            taken.append((asked.node, reply.content))
        self._update_devices()
        settled = dict(self.engine.commit(pushes, now))
        for push, (node, content) in zip(pushes, taken, strict=True):
            answer = settled.get(push)  # none yet, if it waits for the end of its round
            if isinstance(answer, Refused):
                self._record_refusal(node, answer, now)
            else:
                self.nodes.record_success(node)
                self.shares.record_update(node, self._weight(push, answer))
                accepted.append(content)
        self.shares.advance(len(accepted))
        return accepted

    def _weight(self, push: Push, answer: Accepted | None) -> float:
        """Return about how much a reply counts in comparison with others."""
        regime = self.engine.parameters.regime
        by_samples = push.update.samples if regime.rounds or regime.base_batch else 1
        turns = answer.staleness / regime.method.nodes if answer and regime.rule != "none" else 0
        return by_samples / max(1, turns)

    def _record_refusal(self, node: int, refusal: Refused, now: float) -> None:
        self._node(node).refused = not isinstance(refusal, BaseExpired)
        reason = str(refusal).replace("coordination.", "")  # a strategy's options are in no section
        self._record_failure(node, refusal.code, reason, now)

    def _record_failure(self, node: int, outcome: str, reason: str, now: float) -> None:
        log.warning("Node %d: %s: %.300s", node, outcome, reason)
        self.nodes.record_failure(node, outcome, now, f"node {node}: {outcome}: {reason:.300}")

    def _update_devices(self) -> None:
        """Update the engine on the devices with pending answers: others wait for these."""
        under_way = self.nodes.devices()
        for node in self.nodes.by_id.values():
            (self.engine.add_device if node.device in under_way else self.engine.remove_device)(node.device)

    def check_round(self, now: float) -> None:
        """Check whether a round is over, because time has passed or a device is gone."""
        self._update_devices()
        self.engine.commit([], now)

    def held_nodes(self) -> Set[int]:
        """Return the nodes whose updates wait for others."""
        devices = self.engine.held_updates
        return {number for number, node in self.nodes.by_id.items() if node.device in devices}

    def rounds(self) -> dict[int, Evaluation]:
        """Return the finished rounds, from 0 on, each with its latest evaluation."""
        latest = {evaluation.version: evaluation for evaluation in self.evaluations}
        return dict(enumerate(latest.values()))

    def record(self, version: int, loss: float | None = None, accuracy: float | None = None) -> None:
        """Write into the journal that a round has ended with this model, and the result of its evaluation."""
        left = [past for name, past in self._past.items() if int(name) not in self.nodes.by_id]
        nodes = self.nodes.by_id.values()
        ingress = sum(node.ingress for node in nodes) + sum(node.ingress for node in left)
        egress = sum(node.egress for node in nodes) + sum(node.egress for node in left)
        evaluation = Evaluation(version, time.time(), loss, accuracy, ingress, egress)
        self.engine.steering.record(evaluation, self.nodes.traffic())
        self.evaluations.append(evaluation)


@contextmanager
def open_run(
    checkpoint: str | Path, initial: ArrayRecord, statistics: Iterable[str], config: Config, keys: Keys
) -> Iterator[FlowerRun]:
    """Open the job in the directory `checkpoint`, or begin it there; in memory without a directory.

    Raises ConfigError if the directory is unusable or holds another model.
    """
    how = config.coordination
    if how.traits.private:
        raise ConfigError(
            'coordination.mode = "private": Flower\'s nodes send single updates; choose another mode, or '
            "Edgeflock's own devices"
        )
    # A mean stays within the nodes' values, as a variance must. Larger steps may leave them.
    average = how.traits.rounds and not how.base_batch and how.learning_rate <= 1
    template = Template(initial, statistics, follow=not average)
    directory = Path(checkpoint) if checkpoint else None
    largest = config.limits.model_copy(update={"expansion_bytes": EXPANSION_PER_ENTRY * template.layout.size})
    config = config.model_copy(update={"limits": largest})
    with claim_run(directory, "checkpoint", template.layout, template.theta, config) as claim:
        yield FlowerRun(claim, template, config, keys, durable=directory is not None)

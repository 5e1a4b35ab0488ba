"""The base class of the Flower strategies: the exchange with nodes, rounds, evaluation, reports.

Flower's own start() sends to all nodes and waits for all. This one takes the replies that have come, asks the
idle nodes, and looks again.
"""

import math
import random
import time
from collections import Counter
from collections.abc import Iterable
from copy import deepcopy

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy
from flwr.serverapp.strategy.strategy_utils import aggregate_metricrecords

from edgeflock.server.flower.evaluation import Evaluations
from edgeflock.server.flower.judging import EvaluateFn, FlowerEvaluator
from edgeflock.server.flower.messages import Keys, evaluate_message
from edgeflock.server.flower.options import COMPRESSION, FEDAVG, StrategySettings, format_options
from edgeflock.server.flower.reports import (
    EVALUATED,
    JUDGED,
    TRAINED,
    FlowerReports,
    aggregate,
    finite_number,
    to_numbers,
)
from edgeflock.server.flower.run import FlowerRun, log, open_run, outcome_of, push_message, reason_of
from edgeflock.shared.errors import ConfigError

_MAX_FAILURES = 10
"""Failures in a row, for each node, after which a run ends."""

_REFRESH_SECONDS = 1.0
"""Seconds between two looks at which nodes are online."""


class EdgeflockStrategy(Strategy):
    """The base of both strategies. Subclasses decide when a round is over."""

    outcomes: Counter[str]
    """Counts of training messages: "applied", refused (by code), or not answered."""

    def __init__(self, coordination: dict[str, object], settings: StrategySettings) -> None:
        """Raises ConfigError if an option has an invalid value."""
        self.settings = settings
        self._coordination = coordination
        self.config = settings.config(**coordination)
        self._statistics = tuple(settings.statistics)
        self._keys = Keys(settings.arrayrecord_key, settings.configrecord_key, settings.weighted_by_key)
        self._timeout = math.inf

    def summary(self) -> None:
        """Log the settings."""
        for about, options in self._summarised():
            log.info("\t├──> %s: %s", about, format_options(options))
        log.info("\t└──> Checkpoint: %s", self.settings.checkpoint or "none")

    def _summarised(self) -> Iterable[tuple[str, dict[str, object]]]:
        config, settings = self.config, self.settings
        yield "Replies", self._coordination
        yield "Optimizer", {"kind": config.optimizer.kind, **settings.optimizer}
        yield "Defence", {"mode": config.defence.mode, "samples": config.limits.samples}
        yield "Nodes", settings.subset(FEDAVG[:5])
        yield "Nodes with the mod send", settings.subset(COMPRESSION)
        yield "Keys in records", settings.subset(FEDAVG[5:8])

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: EvaluateFn | None = None,
    ) -> Result:
        """Train until `num_rounds` rounds are over, including those in the checkpoint.

        A node that has not answered after `timeout` seconds is asked anew. Otherwise as in Flower's own
        strategies. Raises ConfigError if an argument is of a wrong type, the checkpoint is unusable, or
        nothing but failures comes back.
        """
        if type(num_rounds) is not int or not isinstance(timeout, int | float):
            raise ConfigError(f"num_rounds = {num_rounds!r}, timeout = {timeout!r}: they must be numbers")
        log.info("Starting %s strategy:", type(self).__name__)
        self.summary()
        self._train_config = self._config_before = train_config or ConfigRecord()
        evaluate_config = evaluate_config or ConfigRecord()
        self._timeout, began = timeout, time.monotonic()
        with (
            open_run(
                self.settings.checkpoint, initial_arrays, self._statistics, self.config, self._keys
            ) as job,
            FlowerEvaluator(evaluate_fn) as self._evaluator,
        ):
            result = Result(arrays=job.result())
            self._reports = FlowerReports(result, self.settings.checkpoint)
            self._begin(job, num_rounds)
            first = job.engine.published.version
            while self._rounds < num_rounds:
                self._refresh_nodes(grid)
                over = self._exchange(grid, last=self._rounds + 1 == num_rounds)
                self._report_evaluations()
                self._report_judged()
                if over:
                    self._end_round(grid, evaluate_config, result)
            self._drain(grid)
            log.info(
                "Training is over after round %d, at version %d; updates: %d in %.1f s, %s",
                *(self._rounds, self._end_version, self._end_version - first),
                *(time.monotonic() - began, format_options(self.outcomes)),
            )
        log.info("Final results:\n%s", result)
        return result

    def _begin(self, job: FlowerRun, num_rounds: int) -> None:
        self._job = job
        self.outcomes = job.nodes.outcomes
        self._accepted: list[RecordDict] = []
        self._metrics: MetricRecord | None = None
        self._aggregated_at, self._configured = -1, 0
        self._evaluations = Evaluations()
        self._later_replies: list[Message] = []
        """Replies that have come, but belong to the next round."""
        self._refreshed = -math.inf
        self._last = num_rounds
        self._rounds, self._end_version = 0, job.engine.published.version
        """How many rounds are over, and the version at the end of the last one."""
        if not (past := job.rounds()):
            job.record(self._end_version)
            self._evaluator.submit(0, self._end_version, job.result())
        else:
            self._rounds, self._end_version = len(past) - 1, past[len(past) - 1].version
            self._reports.restore(past)
            log.info("Going on at version %d, after round %d", job.engine.published.version, self._rounds)
            if self._rounds >= num_rounds:
                log.warning(
                    "The checkpoint has %d round%s, and num_rounds = %d counts these: nothing is left to do. "
                    "Ask for more rounds, or use another checkpoint",
                    *(self._rounds, "s" * (self._rounds != 1), num_rounds),
                )
            judged = self._reports.has(JUDGED, self._rounds)
            if not judged and self._end_version == job.engine.published.version:
                self._evaluator.submit(self._rounds, self._end_version, job.result())
        self._report_judged()
        self._round_began = time.monotonic()

    def _refresh_nodes(self, grid: Grid) -> None:
        """Update the online nodes; the first time, wait until there are enough."""
        nodes, enough = self._job.nodes, self.settings.min_available_nodes
        if time.monotonic() - self._refreshed < _REFRESH_SECONDS:
            return
        nodes.online = frozenset(grid.get_node_ids())
        if self._refreshed == -math.inf and len(nodes.online) < enough:
            log.info("Waiting for nodes: %d of %d are online", len(nodes.online), enough)
            while len(nodes.online) < enough:
                time.sleep(_REFRESH_SECONDS)
                nodes.online = frozenset(grid.get_node_ids())
        if self._refreshed == -math.inf:
            version = self._job.engine.published.version
            log.info("Training starts at version %d; nodes online: %d", version, len(nodes.online))
        self._refreshed = time.monotonic()
        settings = self.settings
        self._job.set_node_count(nodes.capacity(settings.fraction_train, settings.min_train_nodes))

    def _exchange(self, grid: Grid, last: bool) -> bool:
        """Take replies and ask idle nodes. Return whether the round is over. `last`: it is the last round."""
        job, now = self._job, time.monotonic()
        replies = self._pull(grid)
        current = self._rounds + 1
        if replies:
            arrays, metrics = self.aggregate_train(current, replies)
            self._metrics = self._metrics if metrics is None else metrics
            if arrays is not None and arrays is not job.arrays():
                raise ConfigError(
                    f"{type(self).__name__}.aggregate_train returns arrays of its own, but the checkpoint "
                    "stores only updates: return the arrays of super(), or use one of Flower's strategies"
                )
        for late in [] if self._later_replies else job.nodes.expire(now, self._timeout):
            log.warning("Node %d: no answer within %g s", late.node, self._timeout)
        self._stop_if_failing()
        over = self._is_round_over(now)
        if not (over and last):
            for question in self._train_messages(current + over, grid):
                job.send(grid, question, now)
        if not replies and not over:
            time.sleep(self.settings.poll)
        return over

    def _stop_if_failing(self) -> None:
        nodes = self._job.nodes
        if nodes.all_broken() or nodes.failures >= _MAX_FAILURES * max(1, len(nodes.online)):
            outcomes = format_options(self.outcomes)
            raise ConfigError(
                f"{nodes.failures} failures in a row end the run: {outcomes}; the last: {nodes.last_failure}"
            )

    def _train_messages(self, number: int, grid: Grid) -> Iterable[Message]:
        """Return configure_train's messages, if there are nodes to ask.

        It may change its config, as Flower's examples do to lower a learning rate in some round. As with
        FedAvg, such a change happens once a round and lasts. So it is also called for rounds without requests
        and for those of a resumed run. All messages of a round begin with the same copy.
        """
        if not self._nodes_to_train():
            return []
        questions: list[Message] | None = None
        while self._configured < number:
            self._configured += 1
            self._config_before, self._train_config = self._train_config, _copy(self._train_config)
            questions = list(self._configured_by(self._configured, self._train_config, grid))
        if questions is None:
            questions = list(self._configured_by(number, _copy(self._config_before), grid))
        return questions

    def _configured_by(self, number: int, config: ConfigRecord, grid: Grid) -> Iterable[Message]:
        return self.configure_train(number, self._job.arrays(), config, grid)

    def _nodes_to_train(self) -> list[int]:
        """Return the idle nodes that are to train now."""
        settings = self.settings
        idle = self._job.nodes.idle(time.monotonic(), settings.fraction_train, settings.min_train_nodes)
        return [node for node in idle if self._wants(node)]

    def _pull(self, grid: Grid) -> list[Message]:
        """Return as many training replies as the round has room for; the rest wait for the next one.

        Replies to evaluations are stored.
        """
        pending, held = self._job.nodes.pending, {_request_id(reply) for reply in self._later_replies}
        under_way = [*(pending.keys() - held), *self._evaluations.pending]
        replies = list(grid.pull_messages(under_way)) if under_way else []
        self._take_evaluations(replies)
        replies = self._later_replies + [reply for reply in replies if _request_id(reply) in pending]
        room = self._remaining()
        self._later_replies = [] if room is None else replies[room:]
        return replies[:room]

    def _remaining(self) -> int | None:
        """Return how many more replies the round may take; None: any number."""
        return None

    def _is_round_over(self, now: float) -> bool:
        raise NotImplementedError

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return messages to the idle nodes, with the current model."""
        config = ConfigRecord({**config, "server-round": server_round})
        return [self._job.train_message(node, config, self._timeout) for node in self._nodes_to_train()]

    def _wants(self, node: int) -> bool:
        """Whether an idle node is to train now."""
        return True

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Apply replies. Return (the model, the metrics of the round if it is over)."""
        self._accepted += self._job.take(replies, time.monotonic())
        over = self._is_round_over(time.monotonic())
        return self._job.arrays(), self._aggregate() if over else None

    def _aggregate(self) -> MetricRecord | None:
        """Return the round's metrics, once a round, since a user's function may have side effects."""
        if self._aggregated_at == self._rounds:
            return None
        self._aggregated_at = self._rounds
        function = self.settings.train_metrics_aggr_fn or aggregate_metricrecords
        return aggregate(function, self._accepted, self._keys.weight)

    def _end_round(self, grid: Grid, config: ConfigRecord, result: Result) -> None:
        """Report a round, and start the evaluation of its model."""
        metrics = self._metrics or self._aggregate()
        job, version = self._job, self._job.engine.published.version
        now, updates = time.monotonic(), version - self._end_version
        rate = 60 * updates / max(now - self._round_began, 1e-3)
        self._rounds, self._end_version, self._round_began = self._rounds + 1, version, now
        number = self._rounds
        log.info(
            "[ROUND %d/%d] version %d, %.1f updates a minute; since the start: %s",
            *(number, self._last, version, rate, format_options(self.outcomes)),
        )
        self._accepted, self._metrics = [], None
        if metrics is not None:
            self._reports.add(TRAINED, number, metrics)
            log.info("\t└──> Aggregated MetricRecord: %s", to_numbers(metrics))
        self._reports.warn_of_short(job.shares.find_short(job.nodes.online))
        result.arrays = job.result()
        job.record(version)
        self._request_evaluations(number, grid, config)
        self._evaluator.submit(number, version, result.arrays)
        self._report_judged()

    def _report_judged(self, *, wait: bool = False) -> None:
        """Report the finished results of evaluate_fn."""
        for number, version, metrics in self._evaluator.pop_finished(wait=wait):
            if metrics is not None:
                self._reports.add(JUDGED, number, metrics)
                self._job.record(version, finite_number(metrics, "loss"), finite_number(metrics, "accuracy"))
                log.info("Global evaluation after round %d: %s", number, to_numbers(metrics))

    def _request_evaluations(self, number: int, grid: Grid, config: ConfigRecord) -> None:
        """Ask nodes to evaluate. Training continues; results are reported when they arrive."""
        now = time.monotonic()
        for question in self.configure_evaluate(number, self._job.result(), config, grid):
            message = push_message(grid, question)
            if message is not None:
                self._evaluations.add(message, number, question.metadata.dst_node_id, now)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return messages to a random `fraction_evaluate` of the nodes, without those that are behind."""
        online = self._job.nodes.online
        free = sorted(online - self._evaluations.busy_nodes())
        share = self.settings.fraction_evaluate
        wanted = max(math.ceil(share * len(online)), self.settings.min_evaluate_nodes) if share else 0
        nodes, keys = random.sample(free, min(len(free), wanted)), self._keys
        config = ConfigRecord({**config, "server-round": server_round})
        return [evaluate_message(node, arrays, config, keys, self._timeout) for node in nodes]

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Return the nodes' metrics, weighted by their samples; None if there are none."""
        own, weight, contents = self.settings.evaluate_metrics_aggr_fn, self._keys.weight, []
        for reply in replies:
            if reply.has_error():
                continue
            if own or all(weight in metrics for metrics in reply.content.metric_records.values()):
                contents.append(reply.content)
                continue
            log.warning(
                "Node %d: its evaluation of round %d does not count: its metrics lack %r",
                *(reply.metadata.src_node_id, server_round, weight),
            )
        return aggregate(own or aggregate_metricrecords, contents, weight)

    def _take_evaluations(self, replies: Iterable[Message]) -> None:
        for failed, reply in self._evaluations.take(replies):
            log.warning(
                "Node %d: its evaluation of round %d: %s: %.300s",
                *(failed.node, failed.round, outcome_of(reply), reason_of(reply)),
            )

    def _report_evaluations(self) -> None:
        for late in self._evaluations.expire(time.monotonic(), self._timeout):
            log.warning(
                "Node %d: no evaluation of round %d within %g s", late.node, late.round, self._timeout
            )
        for number, replies in self._evaluations.pop_finished():
            metrics = self.aggregate_evaluate(number, replies)
            if metrics is not None:
                self._reports.add(EVALUATED, number, metrics)
                log.info("Federated evaluation after round %d: %s", number, to_numbers(metrics))

    def _drain(self, grid: Grid) -> None:
        """Wait for the pending evaluations."""
        if waiting := sorted({asked.node for asked in self._evaluations.pending.values()}):
            nodes = ", ".join(map(str, waiting))
            log.info("Waiting for evaluations of node %s, for %g s at most", nodes, self._timeout)
        while self._evaluations.pending:
            self._take_evaluations(grid.pull_messages(list(self._evaluations.pending)))
            self._report_evaluations()
            time.sleep(self.settings.poll)
        self._report_evaluations()
        self._report_judged(wait=True)


def _request_id(reply: Message) -> str:
    return reply.metadata.reply_to_message_id


def _copy(config: ConfigRecord) -> ConfigRecord:
    return ConfigRecord(deepcopy(dict(config)))

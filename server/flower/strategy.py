"""What Edgeflock's Flower strategies have in common: the exchange with nodes, rounds, evaluation, reports.

Flower's own start() sends to all and waits for all. This one takes what has come, asks whoever has nothing to
do, and looks again.
"""

import math
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from edgeflock.server.flower.evaluation import Evaluations
from edgeflock.server.flower.messages import Keys, evaluation
from edgeflock.server.flower.options import Aggregate, StrategySettings
from edgeflock.server.flower.run import FlowerRun, log, opened, outcome_of, pushed
from edgeflock.shared.errors import ConfigError

EvaluateFn = Callable[[int, ArrayRecord], MetricRecord | None]

_HOPELESS = 10
"""Failures in a row, per node, after which a run that gets nowhere ends."""

_LOOK_AROUND = 1.0
"""Seconds between two looks at which nodes are online."""


class EdgeflockStrategy(Strategy):
    """What the two have in common: everything but when a round is over."""

    outcomes: Counter[str]
    """What came of the training messages: how many were "applied", refused (by code), or not answered."""

    def __init__(self, coordination: dict[str, object], settings: StrategySettings) -> None:
        """Raises ConfigError if an option has a value that it cannot have."""
        self.settings = settings
        self.config = settings.config(**coordination)
        self._statistics = tuple(settings.statistics)
        self._keys = Keys(settings.arrayrecord_key, settings.configrecord_key, settings.weighted_by_key)
        self._timeout = math.inf

    def summary(self) -> None:
        """Log the settings."""
        for section in (self.config.coordination, self.config.compression):
            log.info("\t├──> %s: %s", type(section).__name__, section)
        log.info("\t└──> Checkpoint: %s", self.settings.checkpoint or "none")

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
        """Train until `num_rounds` rounds are over, those in the checkpoint counted.

        `timeout` seconds after it was asked a node that has not answered is asked anew. Otherwise as in
        Flower's own strategies. Raises ConfigError if the checkpoint cannot serve or nothing but failures
        comes back.
        """
        log.info("Starting %s strategy:", type(self).__name__)
        self.summary()
        train_config, evaluate_config = train_config or ConfigRecord(), evaluate_config or ConfigRecord()
        self._timeout = timeout
        with opened(
            self.settings.checkpoint, initial_arrays, self._statistics, self.config, self._keys
        ) as job:
            self._begin(job)
            result = Result(arrays=job.result())
            if job.evaluations:
                _recall(job, result)
                log.info("Going on at version %d, after round %d", job.engine.published.version, self._rounds)
            else:
                self._evaluate_here(0, evaluate_fn, result)
            while self._rounds < num_rounds:
                self._look_around(grid)
                over = self._exchange(grid, train_config, last=self._rounds + 1 == num_rounds)
                self._report_evaluations(result)
                if over:
                    self._end_round(grid, evaluate_config, evaluate_fn, result)
            self._drain(grid, result)
        log.info("Final results:\n%s", result)
        return result

    def _begin(self, job: FlowerRun) -> None:
        self._job = job
        self.outcomes = job.nodes.outcomes
        self._accepted: list[RecordDict] = []
        self._evaluations = Evaluations()
        self._looked = -math.inf

    @property
    def _rounds(self) -> int:
        """How many rounds are over."""
        return len(self._job.evaluations) - 1

    def _look_around(self, grid: Grid) -> None:
        """See who is online; the first time wait until there are enough."""
        nodes, enough = self._job.nodes, self.settings.min_available_nodes
        if time.monotonic() - self._looked < _LOOK_AROUND:
            return
        nodes.online = frozenset(grid.get_node_ids())
        if self._looked == -math.inf and len(nodes.online) < enough:
            log.info("Waiting for %d nodes, %d are here", enough, len(nodes.online))
            while len(nodes.online) < enough:
                time.sleep(_LOOK_AROUND)
                nodes.online = frozenset(grid.get_node_ids())
        self._looked = time.monotonic()

    def _exchange(self, grid: Grid, config: ConfigRecord, last: bool) -> bool:
        """Take what has come, ask who is idle; whether that ended the round, the `last` one perhaps."""
        job, now = self._job, time.monotonic()
        replies = self._pull(grid)
        current = self._rounds + 1
        if replies:
            self.aggregate_train(current, replies)
        for late in job.nodes.expire(now, self._timeout):
            log.warning("Node %d: no answer within %g s", late.node, self._timeout)
        if job.nodes.failures >= _HOPELESS * max(1, len(job.nodes.online)):
            raise ConfigError(f"{job.nodes.failures} failures in a row, nothing else: {dict(self.outcomes)}")
        over = self._round_is_over(now)
        if not (over and last):
            for question in self.configure_train(current + over, job.arrays(), config, grid):
                job.ask(grid, question, now)
        if not replies and not over:
            time.sleep(self.settings.poll)
        return over

    def _pull(self, grid: Grid) -> list[Message]:
        """Replies to training messages. Those to evaluations are put aside."""
        under_way = [*self._job.nodes.asked, *self._evaluations.asked]
        replies = list(grid.pull_messages(under_way)) if under_way else []
        self._evaluations.take(replies)
        return [r for r in replies if r.metadata.reply_to_message_id in self._job.nodes.asked]

    def _round_is_over(self, now: float) -> bool:
        raise NotImplementedError

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Messages to the nodes that have nothing to do; the model is the current one."""
        config = ConfigRecord({**config, "server-round": server_round})
        idle = self._job.nodes.idle(time.monotonic(), self.settings.fraction_train)
        return [self._job.question(node, config, self._timeout) for node in idle if self._wants(node)]

    def _wants(self, node: int) -> bool:
        """Whether an idle node is to train now."""
        return True

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Apply replies: (the model then, the metrics of the round so far)."""
        self._accepted += self._job.take(replies, time.monotonic())
        metrics = _aggregated(self.settings.train_metrics_aggr_fn, self._accepted, self._keys.weight)
        return self._job.arrays(), metrics

    def _end_round(
        self, grid: Grid, config: ConfigRecord, evaluate_fn: EvaluateFn | None, result: Result
    ) -> None:
        """Report a round, evaluate what it came to and put that into the journal."""
        number = self._rounds + 1
        metrics = _aggregated(self.settings.train_metrics_aggr_fn, self._accepted, self._keys.weight)
        log.info("[ROUND %d] version %d, %s", number, self._job.engine.published.version, dict(self.outcomes))
        self._accepted = []
        if metrics is not None:
            result.train_metrics_clientapp[number] = metrics
            log.info("\t└──> Aggregated MetricRecord: %s", metrics)
        result.arrays = self._job.result()
        self._evaluate_there(number, grid, config)
        self._evaluate_here(number, evaluate_fn, result)

    def _evaluate_here(self, number: int, evaluate_fn: EvaluateFn | None, result: Result) -> None:
        metrics = evaluate_fn(number, result.arrays) if evaluate_fn else None
        if metrics is not None:
            result.evaluate_metrics_serverapp[number] = metrics
            log.info("Global evaluation after round %d: %s", number, metrics)
        self._job.record(*(_finite(metrics, key) for key in ("loss", "accuracy")))

    def _evaluate_there(self, number: int, grid: Grid, config: ConfigRecord) -> None:
        """Ask nodes to evaluate. Training goes on; what they say is reported when it is there."""
        now = time.monotonic()
        for question in self.configure_evaluate(number, self._job.result(), config, grid):
            message = pushed(grid, question)
            if message is not None:
                self._evaluations.ask(message, number, question.metadata.dst_node_id, now)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Messages to a random `fraction_evaluate` of the nodes, but for those that are behind."""
        online = self._job.nodes.online
        free = sorted(online - self._evaluations.behind())
        count = min(len(free), math.ceil(self.settings.fraction_evaluate * len(online)))
        config = ConfigRecord({**config, "server-round": server_round})
        return [evaluation(n, arrays, config, self._keys, self._timeout) for n in random.sample(free, count)]

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """The nodes' metrics, weighted by their samples; None if there are none."""
        contents = []
        for reply in replies:
            if reply.has_error():
                log.warning("Evaluation of round %d: %s", server_round, outcome_of(reply))
            else:
                contents.append(reply.content)
        return _aggregated(self.settings.evaluate_metrics_aggr_fn, contents, self._keys.weight)

    def _report_evaluations(self, result: Result) -> None:
        if late := self._evaluations.expire(time.monotonic(), self._timeout):
            log.warning("%d evaluations were not answered within %g s", late, self._timeout)
        for number, replies in self._evaluations.over():
            metrics = self.aggregate_evaluate(number, replies)
            if metrics is not None:
                result.evaluate_metrics_clientapp[number] = metrics
                log.info("Federated evaluation after round %d: %s", number, metrics)

    def _drain(self, grid: Grid, result: Result) -> None:
        """Wait for the evaluations that are still under way."""
        while self._evaluations.asked:
            self._evaluations.take(grid.pull_messages(list(self._evaluations.asked)))
            self._report_evaluations(result)
            time.sleep(self.settings.poll)
        self._report_evaluations(result)


def _aggregated(function: Aggregate, contents: list[RecordDict], weight: str) -> MetricRecord | None:
    """What a user's (or Flower's) function makes of metrics, whose names nodes choose; None if it cannot."""
    if not contents:
        return None
    try:
        return function(contents, weight)
    except Exception as error:  # whatever it raises, training goes on without
        log.warning("Metrics cannot be aggregated: %r", error)
        return None


def _finite(metrics: MetricRecord | None, key: str) -> float | None:
    number = metrics.get(key) if metrics else None
    return float(number) if isinstance(number, int | float) and math.isfinite(number) else None


def _recall(job: FlowerRun, result: Result) -> None:
    """Earlier evaluations, as far as the journal has them."""
    for number, past in enumerate(job.evaluations):
        known = {"loss": past.loss, "accuracy": past.accuracy}
        metrics = {key: value for key, value in known.items() if value is not None}
        if metrics:
            result.evaluate_metrics_serverapp[number] = MetricRecord(dict(metrics))

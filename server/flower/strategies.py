"""Flower strategies: a ServerApp that used FedAvg uses one of these instead.

    AsyncAdaComp   asynchronous: each reply applies as it comes, weighted by the staleness of each parameter
    ScaDLES        synchronous: the replies of a round apply together, weighted by their samples

The engine (server/engine/engine.py) decides what an update does, as for native devices.
"""

from typing import Any, Unpack

from edgeflock.server.flower.options import Options, read_options
from edgeflock.server.flower.run import FlowerRun
from edgeflock.server.flower.strategy import EdgeflockStrategy
from edgeflock.shared.errors import ConfigError

__all__ = ["AsyncAdaComp", "ScaDLES"]


class AsyncAdaComp(EdgeflockStrategy):
    """Keeps every node busy. A reply applies when it comes, at learning_rate / max(n, sigma_k).

    n nodes train at a time; n = 1 with `base_batch`. sigma_k updates have changed parameter k since the node
    was sent the model (AdaComp's equation 5). A round, which Flower uses for evaluations and metrics, is over
    after `updates_per_round` updates.
    """

    def __init__(
        self,
        *fedavg: Any,
        rule: str = "adacomp",
        learning_rate: float = 1.0,
        window: int = 256,
        average: float = 0.0,
        base_batch: int = 0,
        buffer: int = 1,
        updates_per_round: int = 0,
        **options: Unpack[Options],
    ) -> None:
        """Positional arguments are FedAvg's.

        updates_per_round = 0: the number of nodes online at first. `buffer` replies make a step; FedBuff's
        rule is "sqrt".

        Raises ConfigError if an option has an invalid value.
        """
        coordination: dict[str, object] = dict(
            mode="async", rule=rule, learning_rate=learning_rate, window=window, average=average,
            base_batch=base_batch,
        )  # fmt: skip
        if buffer != 1:
            coordination |= dict(mode="buffer", buffer=buffer)
        if type(updates_per_round) is not int or updates_per_round < 0:
            raise ConfigError(
                f"updates_per_round = {updates_per_round!r}: it must be an integer of at least 0"
            )
        own = AsyncAdaComp.__init__.__kwdefaults__ or ()
        super().__init__(coordination, read_options(fedavg, options, own))
        self._updates_per_round = updates_per_round

    def _begin(self, job: FlowerRun, num_rounds: int) -> None:
        super()._begin(job, num_rounds)
        self._size = self._updates_per_round

    def _remaining(self) -> int:
        self._size = self._size or len(self._job.nodes.online)
        return max(0, self._size - (self._job.engine.published.version - self._end_version))

    def _is_round_over(self, now: float) -> bool:
        return self._remaining() == 0


class ScaDLES(EdgeflockStrategy):
    """Rounds: w <- w - learning_rate sum_i r_i (w - w_i), where r_i is node i's share of the samples.

    This is FedAvg. With `base_batch` = B > 0 the step is multiplied by sum_i S_i / B, ScaDLES' linear scaling
    (equations 4a to 4c). `aggregate` may replace the mean. A round ends when every connected node has
    answered, or `quorum` have, or `deadline` seconds after the first.
    """

    def __init__(
        self,
        *fedavg: Any,
        learning_rate: float = 1.0,
        average: float = 0.0,
        base_batch: int = 0,
        aggregate: str = "mean",
        quorum: int = 0,
        deadline: float = 3600.0,
        **options: Unpack[Options],
    ) -> None:
        """Positional arguments are FedAvg's. Raises ConfigError if an option has an invalid value."""
        coordination = dict(
            mode="rounds", rule="none", learning_rate=learning_rate, average=average, base_batch=base_batch,
            aggregate=aggregate, quorum=quorum, deadline=deadline,
        )  # fmt: skip
        own = ScaDLES.__init__.__kwdefaults__ or ()
        super().__init__(coordination, read_options(fedavg, options, own))

    def _wants(self, node: int) -> bool:
        """Whether an idle node joins: a round that has begun to gather takes it only if it is needed."""
        held = self._job.held_nodes()
        return node not in held and (not held or self.config.coordination.quorum > 0)

    def _is_round_over(self, now: float) -> bool:
        self._job.check_round(now)
        # Also true where the ServerApp died between a round's end and its evaluation.
        return self._job.engine.published.version > self._end_version

"""What secure sums do to the model: the entries of a round, their code, and the update that a sum makes.

The sum comes to the engine as one update of a device that no device can be: it is journaled, applied and
published like the sum of any round. With differential privacy the engine adds noise to it and counts its
devices. All that follows, the entries of the next rounds included, depends on the noisy model alone.
"""

from collections.abc import Mapping
from statistics import median_low

import numpy as np
from numpy.typing import NDArray

from edgeflock.server.coordination import Push
from edgeflock.server.descent import AGGREGATES, Step
from edgeflock.server.engine import Accepted, Engine
from edgeflock.server.engine.limits import usual_fraction
from edgeflock.server.engine.welcome import sum_terms
from edgeflock.server.journal.records import SUM_DEVICE
from edgeflock.server.sessions.answers import PendingUpdate
from edgeflock.server.sessions.context import UpdateQueue
from edgeflock.shared.codecs import entries, sparse, values
from edgeflock.shared.protocol import wire
from edgeflock.shared.protocol.messages import Update
from edgeflock.shared.secure_sum.aggregator import Aggregator
from edgeflock.shared.secure_sum.bounded import BoundedQuantiser, quantiser_of
from edgeflock.shared.secure_sum.coordinates import Coordinates
from edgeflock.shared.secure_sum.groups import GroupedRound, deal
from edgeflock.shared.secure_sum.keys import PublicKeys
from edgeflock.shared.secure_sum.messages import SumAbandoned
from edgeflock.shared.secure_sum.participant import RoundTerms
from edgeflock.shared.secure_sum.quantiser import DecodedSum, Quantiser
from edgeflock.shared.settings.config import Config


class SumUpdates:
    """Begins the rounds of one run, and makes updates of their sums."""

    def __init__(self, run: str, config: Config, engine: Engine, queue: UpdateQueue) -> None:
        terms, self._layout = sum_terms(config), engine.layout.parameters
        assert terms is not None, "the run is of secure sums"
        self._run, self._sums, self._engine, self._queue = run, terms, engine, queue
        self._clip = config.privacy.clip if config.privacy.mode == "server" else 0.0
        self._batch, self._most_samples = config.local.batch * config.local.steps, config.limits.samples
        fraction = usual_fraction(config, engine.layout)
        self._coordinates = Coordinates(run, self._layout.size, fraction)
        self._ranges = np.zeros(len(self._layout.tensors), np.float32)
        """The range of each tensor; 0: not known yet."""
        self._groups = config.coordination.groups
        self._aggregate = AGGREGATES.lookup(config.coordination.aggregate, "coordination.aggregate")
        self._quantisers: dict[bytes, Quantiser | BoundedQuantiser]
        """The code of each group, by its digest: it depends on the number of devices."""

    def begin(self, version: int, keys: Mapping[int, PublicKeys]) -> GroupedRound:
        """Begin the round of these devices that follows `version`. Each is in a random group."""
        sums, layout = self._sums, self._layout
        terms = RoundTerms(self._run, version, layout.size, len(layout.tensors), sums.threshold, sums.fewest)
        positions = self._coordinates.choose(version)
        groups, self._quantisers = list[Aggregator](), {}
        for members in deal(keys, self._groups):
            quantiser = quantiser_of(layout, positions, sums.bits, len(members), self._clip)
            if isinstance(quantiser, BoundedQuantiser):
                self._ranges = quantiser.ranges
            group = Aggregator(terms, members, self._ranges, positions, quantiser.shape)
            self._quantisers[group.digest] = quantiser
            groups.append(group)
        return GroupedRound(groups)

    async def finish(self, round: GroupedRound, time: float) -> tuple[Update, Accepted] | None:
        """Compute the sum and push it: (the update, what became of it); None: it was for the ranges alone.

        Raises SumAbandoned or Refused.
        """
        found = await self._queue.call(lambda: self._decode(round))
        if isinstance(found, SumAbandoned):
            raise found
        applied = None
        if self._ranges.any():
            before = await self._queue.call(lambda: self._entries(round))
            applied = await self._push(round, found, time)
            moved = await self._queue.call(lambda: self._entries(round)) - before
            self._coordinates.record(round.entries, moved if self._clip else found.values)
        self._ranges = found.ranges
        return applied

    def _decode(self, round: GroupedRound) -> DecodedSum | SumAbandoned:
        try:
            round.advance()
        except SumAbandoned as abandoned:
            return abandoned
        sums = [
            self._quantisers[group.digest].decode(group.total, len(group.summed), round.ranges)
            for group in round.groups
        ]
        if self._aggregate is None:
            return sums[0]
        steps = [Step(round.base, round.entries, one.values) for one in sums]
        losses = [one.loss_level for one in sums if one.loss_level is not None]
        return DecodedSum(
            self._aggregate(steps, self._layout.size)[round.entries],
            sum(one.samples for one in sums),
            median_low(losses) if losses else None,
            np.median(np.array([one.ranges for one in sums], np.float64), axis=0).astype(np.float32),
        )

    def _entries(self, round: GroupedRound) -> NDArray[np.float32]:
        """Return the model's entries at the round's positions."""
        return self._engine.parameters.theta[round.entries]

    async def _push(self, round: GroupedRound, found: DecodedSum, time: float) -> tuple[Update, Accepted]:
        """Push the sum as an update. Raises Refused."""
        engine, layout = self._engine, self._layout
        device = await self._queue.call(lambda: engine.device_id(SUM_DEVICE))
        sequence = await self._queue.call(lambda: engine.receipts.last_sequence(device)) + 1
        where: NDArray[np.int64] | None = None if round.entries.size == layout.size else round.entries
        coded = entries.encode(found.values, where, layout, sparse.GOLOMB, values.CODINGS["f32"].mode)
        samples = found.samples or self._batch * len(round.summed)
        update = Update(
            sequence=sequence,
            base=round.base,
            index_mode=coded.index_mode,
            value_mode=coded.value_mode,
            count=found.values.size,
            indices=coded.indices,
            values=coded.values,
            loss=wire.loss_of(found.loss_level),
            samples=min(max(1, samples), self._most_samples),
            pull=False,
            facts={"devices": len(round.summed)},
        )
        summed = tuple(sorted(round.summed))
        outcome = await self._queue.push(Push(device, time, update, wire.encode(update), summed))
        if isinstance(outcome, PendingUpdate):
            outcome = await outcome.answer
        return update, outcome

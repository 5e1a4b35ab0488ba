"""The guard's part in the engine: it decides what share of an update counts, and the journal keeps that."""

from collections.abc import Callable
from contextlib import suppress

import numpy as np
from numpy.typing import NDArray

from edgeflock.server.coordination import Push
from edgeflock.server.defence import REFRESH, Decision, DefenceGuard
from edgeflock.server.descent import Parameters, Step
from edgeflock.shared.errors import ConfigError


class Screening:
    """Keeps the guard's decisions on updates that are not in the model yet."""

    def __init__(
        self, guard: DefenceGuard | None, parameters: Parameters, past: Callable[[int], Parameters] | None
    ) -> None:
        """`past` returns the parameters of an earlier version, or raises ConfigError."""
        self._guard, self._parameters, self._past = guard, parameters, past
        self._decisions: dict[Push, Decision] = {}

    def decide(self, device: int, step: Step) -> tuple[Step, Decision | None]:
        """Return (what counts of a step, the guard's decision). Changes no state."""
        if self._guard is None:
            return step, None
        weight = self._parameters.reported_weight(step)
        decision = self._guard.decide(self._parameters.version, device, step, weight)
        return step.scaled(decision.share), decision

    def keep(self, push: Push, decision: Decision | None) -> None:
        """Keep the decision until the update is in the model, or dropped."""
        if decision is not None:
            self._decisions[push] = decision

    def drop(self, push: Push) -> None:
        """Forget the decision on an update that will not apply."""
        self._decisions.pop(push, None)

    def drop_all(self) -> None:
        """Forget all decisions that are kept: no held update will apply."""
        self._decisions.clear()

    def record(self, version: int, push: Push) -> tuple[float, bytes | None]:
        """Return (the share that counts of the update that makes `version`, the decision for the journal)."""
        decision = self._decisions.pop(push, None)
        if self._guard is None or decision is None:
            return 1.0, None
        self._guard.add_decision(version, push.device, decision)
        return decision.share, decision.pack()

    def models_to_trust(self) -> list[tuple[int, NDArray[np.float32]]]:
        """Return (version, a copy of theta) of the models to compute trusted directions at, in order.

        They are computed each REFRESH versions. The list is empty or has the current model. The first time
        after a restart, it has the last two at multiples of REFRESH, if the journal can make them.
        """
        guard, parameters, past = self._guard, self._parameters, self._past
        version = parameters.version
        if guard is None or not guard.needs_refresh(version):
            return []
        models = [parameters]
        if guard.lacks_trusted and version and past is not None:
            last = version - version % REFRESH
            with suppress(ConfigError):  # the journal lacks the updates of this version
                models = [past(one) for one in (last - REFRESH, last) if one >= 0]
        return [(model.version, model.theta.copy()) for model in models]

"""How updates count from a version on: the part of the settings that a replay must know."""

from dataclasses import dataclass, replace

from edgeflock.server.descent.method import StepMethod
from edgeflock.server.descent.statistics import FREE, LIMITED
from edgeflock.shared.settings.config import Config
from edgeflock.shared.settings.coordination import ELASTIC


@dataclass(frozen=True, slots=True)
class Regime:
    """How updates count from a version on."""

    rule: str
    learning_rate: float
    """alpha of elastic averaging."""
    window: int
    """Updates may be based on any of the latest `window` versions."""
    average: float = 0.0
    """eta of the averaged model; 0 keeps none."""
    base_batch: int = 0
    """B: a step of b samples counts b / B times; 0: all steps alike, or in a round by their share."""
    rounds: bool = False
    """Whether the steps that start at the same version apply together."""
    how: StepMethod = StepMethod()
    """The optimizer, and how many updates make a step."""

    @classmethod
    def of(cls, config: Config, norms: bool = False) -> "Regime":
        """`norms`: whether all running statistics of the model are known means and variances."""
        settings = config.coordination
        return cls(
            settings.rule,
            settings.alpha if settings.mode == ELASTIC else settings.learning_rate,
            settings.window,
            settings.average,
            settings.base_batch,
            settings.mode == "rounds",
            replace(StepMethod.of(config), statistics=LIMITED if norms else FREE),
        )

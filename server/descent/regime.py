"""The regime: the settings that decide how updates count from a version on. A replay needs them."""

from dataclasses import dataclass, replace

from edgeflock.server.descent.method import StepMethod
from edgeflock.server.descent.statistics import FREE, LIMITED
from edgeflock.shared.settings.config import Config


@dataclass(frozen=True, slots=True)
class Regime:
    """The settings that decide how updates count from a version on."""

    rule: str
    learning_rate: float
    """The learning rate; alpha in elastic averaging."""
    window: int
    """Updates may be based on any of the latest `window` versions."""
    average: float = 0.0
    """eta of the averaged model; 0: there is no averaged model."""
    base_batch: int = 0
    """B: a step of b samples has weight b / B. 0: all steps count alike; in a round, by their samples."""
    rounds: bool = False
    """Whether the steps that start at the same version apply together."""
    method: StepMethod = StepMethod()
    """The optimizer, and how many updates make a step."""

    @classmethod
    def from_config(cls, config: Config, norms: bool = False) -> "Regime":
        """`norms`: whether all of the model's running statistics are known to be means and variances."""
        settings = config.coordination
        return cls(
            settings.rule,
            settings.moving_rate if settings.traits.elastic else settings.learning_rate,
            settings.window,
            settings.average,
            settings.base_batch,
            settings.traits.rounds,
            replace(StepMethod.from_config(config), statistics=LIMITED if norms else FREE),
        )

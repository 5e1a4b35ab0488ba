"""The step method: the part of [optimizer] that a replay needs. It is journaled with the regime."""

import json
from dataclasses import asdict, dataclass, fields

from edgeflock.server.descent.aggregates import MEAN
from edgeflock.server.descent.statistics import FREE
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.settings.config import Config


@dataclass(frozen=True, slots=True)
class StepMethod:
    """The optimizer, and how many updates make a step."""

    kind: str = "sgd"
    """A name in optimizer.KINDS."""
    together: int = 1
    """Updates that make a step: K of coordination.mode = "buffer"."""
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    weight_decay: float = 0.0
    clip: float = 0.0
    """The largest norm of an update's weighed gradient; 0: no limit."""
    schedule: str = "constant"
    """A name in rates.SCHEDULES."""
    by: str = "updates"
    """The unit of warmup and period: "updates" or "seconds"."""
    warmup: float = 0.0
    period: float = 0.0
    factor: float = 0.5
    least: float = 0.01
    aggregate: str = MEAN
    """A name in aggregates.AGGREGATES: how the updates of a round become one."""
    statistics: str = FREE
    """FREE or LIMITED: how far an update's running statistics count (statistics.py)."""
    nodes: int = 1
    """n, the number of nodes that train at a time, each with its own steps. An update counts 1 / n, as in a
    mean of n. Staleness is counted in units of n updates."""

    @classmethod
    def from_config(cls, config: Config) -> "StepMethod":
        coordination, settings = config.coordination, dict(config.optimizer)
        together = coordination.buffer if coordination.traits.buffers else 1
        shared = {field.name: settings[field.name] for field in fields(cls) if field.name in settings}
        shared["by"], shared["least"] = config.optimizer.schedule_unit, config.optimizer.min_factor
        shared["period"] = config.optimizer.end(config.run.updates)
        return cls(together=together, aggregate=coordination.aggregate, **shared)

    @property
    def is_plain(self) -> bool:
        """Whether a step is just theta - rate g, at any rate."""
        return self.kind == "sgd" and not self.weight_decay and not self.clip and self.together == 1

    @property
    def unit(self) -> int:
        """How many updates staleness counts as one: those of a step, or one from each node."""
        return max(self.together, self.nodes)

    def text(self) -> str:
        """Encode the fields that differ from the defaults, for the journal; "" if none do."""
        changed = {name: value for name, value in asdict(self).items() if value != getattr(_DEFAULT, name)}
        return json.dumps(changed) if changed else ""

    @classmethod
    def from_text(cls, text: str) -> "StepMethod":
        """Decode what `text()` returned. Raises ConfigError if it is invalid."""
        try:
            return cls(**json.loads(text)) if text else _DEFAULT
        except (ValueError, TypeError) as error:
            raise ConfigError(f"{text!r:.80} is no step method: {error}") from error


_DEFAULT = StepMethod()

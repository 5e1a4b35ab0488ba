"""How steps are taken: the part of [optimizer] that a replay must know. It is journaled with the regime."""

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
    """The largest norm of an update's gradient, weighed; 0: any."""
    schedule: str = "constant"
    """A name in rates.SCHEDULES."""
    by: str = "updates"
    """Or "seconds": what warmup and period count."""
    warmup: float = 0.0
    period: float = 0.0
    factor: float = 0.5
    least: float = 0.01
    aggregate: str = MEAN
    """A name in aggregates.AGGREGATES: how the updates of a round come together."""
    statistics: str = FREE
    """Or LIMITED: how far an update's running statistics count (statistics.py)."""
    nodes: int = 1
    """Nodes that train at a time, each by steps of its own: n. An update counts 1 / n, as in a mean of n, and
    its staleness is counted in n updates."""

    @classmethod
    def of(cls, config: Config) -> "StepMethod":
        coordination, settings = config.coordination, dict(config.optimizer)
        together = coordination.buffer if coordination.mode == "buffer" else 1
        known = {field.name: settings[field.name] for field in fields(cls) if field.name in settings}
        known["period"] = config.optimizer.end(config.run.updates)
        return cls(together=together, aggregate=coordination.aggregate, **known)

    @property
    def is_plain(self) -> bool:
        """Whether a step is theta - rate g, whatever the rate, and nothing else."""
        return self.kind == "sgd" and not self.weight_decay and not self.clip and self.together == 1

    def text(self) -> str:
        """What is not as usual, for the journal; "" if nothing is."""
        told = {name: value for name, value in asdict(self).items() if value != getattr(_USUAL, name)}
        return json.dumps(told) if told else ""

    @classmethod
    def read(cls, text: str) -> "StepMethod":
        """What `text` came to. Raises ConfigError if it cannot be that."""
        try:
            return cls(**json.loads(text)) if text else _USUAL
        except (ValueError, TypeError) as error:
            raise ConfigError(f"{text!r:.80} does not say how steps are taken: {error}") from error


_USUAL = StepMethod()

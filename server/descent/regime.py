"""The regime: the settings that decide how updates count from a version on. A replay needs them.

Its step method is what a replay needs of [optimizer]. Both are journaled.
"""

import json
from dataclasses import asdict, dataclass, fields, replace

from edgeflock.server.descent.aggregates import MEAN
from edgeflock.server.descent.statistics import FREE, LIMITED
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
    least: float = 0.01
    """No schedule lowers the learning rate below this part of it."""
    aggregate: str = MEAN
    """A name in aggregates.AGGREGATES: how the updates of a round become one."""
    statistics: str = FREE
    """FREE or LIMITED: how far an update's running statistics count (statistics.py)."""
    nodes: int = 1
    """n, the number of nodes that train at a time, each with its own steps. An update counts 1 / n, as in a
    mean of n. Staleness is counted in units of n updates."""
    bound: float = 0.0
    """The largest norm of an update, in a private run (noise.py); 0: it is not private."""
    noise: float = 0.0
    """The standard deviation of a node's noise over `bound`."""
    tree: int = 1
    """The steps of a tree."""
    group: int = 0
    """The number of updates, or of devices, that the sum of a private round is divided by."""
    summed: bool = False
    """Whether an update of a private run is a sum of up to `group` devices, of public entries. Each device
    bounds what it adds."""
    trees_ended: int = 0
    """How many trees ended before their last step. A replay begins new ones at the same versions."""
    local_terms: str = ""
    """The settings that an update's cost follows from, where devices add noise (privacy/accounting.py)."""
    noise_key: str = ""
    """The secret that the noise follows from, hexadecimal."""

    @classmethod
    def from_config(cls, config: Config) -> "StepMethod":
        coordination, settings = config.coordination, dict(config.optimizer)
        together = coordination.buffer if coordination.traits.buffers else 1
        shared = {field.name: settings[field.name] for field in fields(cls) if field.name in settings}
        shared["by"] = config.optimizer.schedule_unit
        shared["period"] = config.optimizer.end(config.end.updates)
        privacy = config.privacy
        if privacy.mode == "server":
            shared["bound"], shared["noise"], shared["tree"] = privacy.clip, privacy.noise, privacy.tree
            shared["summed"] = coordination.traits.private
            shared["group"] = (not shared["summed"] and coordination.quorum) or coordination.cohort
        return cls(together=together, aggregate=coordination.aggregate, **shared)

    @property
    def is_plain(self) -> bool:
        """Whether a step is just theta - rate g, at any rate."""
        return self.kind == "sgd" and not self.weight_decay and not self.clip and self.together == 1

    @property
    def update_bound(self) -> float:
        """The largest norm of an update, in a private run. In a sum beyond it a device broke its bound."""
        return self.bound * (self.group if self.summed else 1)

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
        try:  # the plateau of earlier journals is a constant schedule: new regimes lowered its rate
            stored = json.loads(text.replace('"plateau"', '"constant"')) if text else {}
            if unknown := stored.keys() - {field.name for field in fields(cls)}:
                names = ", ".join(sorted(unknown))
                raise ValueError(f"this Edgeflock has no {names}; open it with the one that wrote it")
            return cls(**stored)
        except (ValueError, TypeError, AttributeError) as error:
            raise ConfigError(f"{text!r:.80} is no step method: {error}") from error


_DEFAULT = StepMethod()


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

"""The options of the Flower strategies: the native server's names, and the arguments of Flower's FedAvg."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, TypedDict

from flwr.app import MetricRecord, RecordDict
from pydantic import Field, Strict, ValidationError
from pydantic.dataclasses import dataclass

from edgeflock.server.defence import DEFENCES
from edgeflock.server.hosting.choices import CHOICES
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.settings.config import Config
from edgeflock.shared.settings.optimizer import OptimizerSettings

Aggregate = Callable[[list[RecordDict], str], MetricRecord]


class FedAvgOptions(TypedDict, total=False):
    """FedAvg's arguments, in its order."""

    fraction_train: float
    fraction_evaluate: float
    min_train_nodes: int
    min_evaluate_nodes: int
    min_available_nodes: int
    weighted_by_key: str
    arrayrecord_key: str
    configrecord_key: str
    train_metrics_aggr_fn: Aggregate | None
    evaluate_metrics_aggr_fn: Aggregate | None


class Options(FedAvgOptions, total=False):
    """The options of both strategies."""

    checkpoint: str | Path
    statistics: Iterable[str]
    select: float
    balance: float
    feedback: float
    threshold: float
    indices: str
    values: str
    optimizer: Mapping[str, Any]
    defence: str
    samples: int
    snapshot_every: int
    keep_updates: bool
    poll: float


FEDAVG = tuple(FedAvgOptions.__annotations__)
"""The names of FedAvg's arguments, in its order."""

COMPRESSION = ("select", "balance", "feedback", "threshold", "indices", "values")
"""The compression options, which nodes with the mod use."""


def format_options(options: Mapping[str, object]) -> str:
    """Format options or counts for people: name = value, ..."""
    values = {name: f"{value:g}" if isinstance(value, float) else value for name, value in options.items()}
    return ", ".join(f"{name} = {value}" for name, value in values.items()) or "none"


def read_options(positional: tuple[Any, ...], options: Options, own: Iterable[str]) -> "StrategySettings":
    """Return a strategy's settings; some of FedAvg's arguments are given by position.

    Raises TypeError as Python does, with a suggestion: names of Flower's earlier strategies (fraction_fit)
    are near those of today. `own` are the strategy's further options, which are not among these. Raises
    ConfigError if an option has an invalid value.
    """
    if len(positional) > len(FEDAVG):
        raise TypeError(f"at most {len(FEDAVG)} arguments are positional, FedAvg's: {', '.join(FEDAVG)}")
    by_place = dict(zip(FEDAVG, positional, strict=False))
    if twice := by_place.keys() & options.keys():
        raise TypeError(f"{min(twice)} is given twice, by position and by name")
    known = [*(field.name for field in fields(StrategySettings)), *own]
    if odd := sorted(options.keys() - set(known)):
        near = get_close_matches(odd[0], known, n=1)
        raise TypeError(
            f"{odd[0]!r} is no option of this strategy"
            + (f"; did you mean {near[0]!r}?" if near else f"; its options are {', '.join(known)}")
        )
    try:
        return StrategySettings(**{**by_place, **options})
    except ValidationError as invalid:
        raise _explain(invalid) from invalid


def _explain(invalid: ValidationError) -> ConfigError:
    """The options that are wrong, by their names: those of the native server have a section before them."""
    own = {field.name for field in fields(StrategySettings)}
    problems: dict[str, str] = {}
    for error in invalid.errors():
        reason = error["msg"].replace("Input should", "it must").removeprefix("Value error, ")
        place = [str(part) for part in error["loc"]]
        if not place:  # of several settings, which the reason names
            problems[reason] = reason
            continue
        if place[0] == "optimizer":
            name = ".".join(place)
        else:
            name = ".".join((place[0], *filter(str.isdigit, place))) if place[0] in own else place[-1]
        if error["type"] == "extra_forbidden":
            reason = f"the optimizer has no such setting; it has {', '.join(OptimizerSettings.model_fields)}"
        problems.setdefault(name, f"{name} = {error['input']!r}: {reason}")
    return ConfigError("; ".join(problems.values()))


@dataclass(frozen=True, slots=True, kw_only=True, config={"strict": True})
class StrategySettings:
    """The options with their defaults."""

    checkpoint: str | Path = ""
    """A directory; empty: in memory."""
    statistics: Annotated[tuple[str, ...], Strict(False)] = ("running_mean", "running_var")
    """The last parts of the names of arrays with running statistics. As in PyTorch."""
    select: float = 0.1
    balance: float = 1.0
    feedback: float = 0.5
    threshold: float = 0.0
    indices: str = "golomb"
    values: str = "codebook4"
    optimizer: Mapping[str, Any] = field(default_factory=dict)
    """The native server's [optimizer] section: kind, beta1, schedule, ..."""
    defence: str = "none"
    """The native server's defence.mode, except the modes that need gradients of the server's own."""
    samples: int = 1 << 32
    snapshot_every: int = 100
    keep_updates: bool = False
    fraction_train: Annotated[float, Field(gt=0, le=1)] = 1.0
    """At 0 nobody would train. To evaluate only, use Flower's FedAvg."""
    fraction_evaluate: Annotated[float, Field(ge=0, le=1)] = 1.0
    min_train_nodes: Annotated[int, Field(ge=0)] = 2
    min_evaluate_nodes: Annotated[int, Field(ge=0)] = 2
    min_available_nodes: Annotated[int, Field(ge=0)] = 2
    weighted_by_key: str = "num-examples"
    arrayrecord_key: str = "arrays"
    configrecord_key: str = "config"
    train_metrics_aggr_fn: Aggregate | None = None
    evaluate_metrics_aggr_fn: Aggregate | None = None
    """None: Flower's mean, weighted by samples."""
    poll: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 0.2
    """Seconds between two polls for replies."""

    def subset(self, names: Iterable[str]) -> dict[str, object]:
        """Return the options of these names."""
        return {name: getattr(self, name) for name in names}

    def config(self, **coordination: Any) -> Config:
        """Return the native server's configuration. Raises ConfigError if an option has an invalid value."""
        sections = {
            "coordination": coordination,
            "optimizer": dict(self.optimizer),
            "defence": {"mode": self.defence},
            "compression": self.subset(COMPRESSION),
            "downlink": {"mode": "exact"},  # Flower's messages carry whole models
            "limits": {"samples": self.samples},
            "journal": {"snapshot_every": self.snapshot_every, "keep_updates": self.keep_updates},
            "model": {"module": "a Flower app's model", "data": ""},
        }
        try:
            config = Config.model_validate(sections, context=CHOICES)
        except ValidationError as invalid:
            raise _explain(invalid) from invalid
        if DEFENCES.resolve(self.defence).trusts:
            raise ConfigError(
                f"defence = {self.defence!r} needs samples on the server, which a strategy does not have; "
                "use 'clip'"
            )
        return config

"""The options of the Flower strategies: the native server's names, and the arguments of Flower's FedAvg."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypedDict

from flwr.app import MetricRecord, RecordDict
from pydantic import ValidationError

from edgeflock.server.defence import DEFENCES
from edgeflock.server.hosting.choices import CHOICES
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.settings.config import Config

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


def merge_arguments(positional: tuple[Any, ...], options: Options, own: Iterable[str]) -> Options:
    """Return FedAvg's arguments, some of them given by position.

    Raises TypeError as Python does, with a suggestion: names of Flower's earlier strategies (fraction_fit)
    are near those of today. `own` are the strategy's further options, which are not among these.
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
    return {**by_place, **options}  # type: ignore[typeddict-item]


def _option(place: Sequence[int | str]) -> str:
    """Return the option for a path in the native server's configuration."""
    inner = place[0] == "optimizer"
    return ".".join(map(str, place if inner else place[-1:]))


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategySettings:
    """The options with their defaults."""

    checkpoint: str | Path = ""
    """A directory; empty: in memory."""
    statistics: Iterable[str] = ("running_mean", "running_var")
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
    fraction_train: float = 1.0
    fraction_evaluate: float = 1.0
    min_train_nodes: int = 2
    min_evaluate_nodes: int = 2
    min_available_nodes: int = 2
    weighted_by_key: str = "num-examples"
    arrayrecord_key: str = "arrays"
    configrecord_key: str = "config"
    train_metrics_aggr_fn: Aggregate | None = None
    evaluate_metrics_aggr_fn: Aggregate | None = None
    """None: Flower's mean, weighted by samples."""
    poll: float = 0.2
    """Seconds between two polls for replies."""

    def __post_init__(self) -> None:
        for name in ("fraction_train", "fraction_evaluate"):
            fraction = getattr(self, name)
            if not 0 <= fraction <= 1:
                raise ConfigError(f"{name} = {fraction!r}: it must be from 0 to 1")
        if not self.fraction_train:
            raise ConfigError("fraction_train = 0: nobody would train; to evaluate only, use Flower's FedAvg")
        if not 0 < self.poll < math.inf:
            raise ConfigError(f"poll = {self.poll!r}: it must be above 0 seconds")
        if not isinstance(self.optimizer, Mapping):
            raise ConfigError(
                f'optimizer = {self.optimizer!r}: it must be a dict, such as {{"kind": "adam"}}'
            )
        if isinstance(self.statistics, str):
            raise ConfigError(
                f"statistics = {self.statistics!r}: it must be a list, such as ['running_mean']"
            )

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
            raise ConfigError(
                "; ".join(f"{_option(e['loc'])} = {e['input']!r}: {e['msg']}" for e in invalid.errors())
            ) from invalid
        if DEFENCES.resolve(self.defence).trusts:
            raise ConfigError(
                f"defence = {self.defence!r} needs samples on the server, which a strategy does not have; "
                "use 'clip'"
            )
        return config

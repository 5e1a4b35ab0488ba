"""Who learns: the product with its defaults or some settings, and rivals with theirs.

An arm is called "product", "product NAME" with a name of VARIANTS, "product section.key=value ..." with
settings of a run, or "FAMILY key=value ..." with a family of FAMILIES and fields of its record, such as
"FedAvg rate=0.1 steps=5 cohort=10". With average=8 the average of a rival's models is evaluated.
"""

import tomllib
from dataclasses import dataclass, fields
from typing import Any

from benchmarks.learning.rivals.asynchronous import FedAsync, FedBuff, HeavyBall
from benchmarks.learning.rivals.averaging import FedAdam, FedAvg, FedAvgM
from benchmarks.learning.rivals.central import Adam, Sgd, SyncSgd
from benchmarks.learning.rivals.compass import FedCompass
from benchmarks.learning.rivals.federation import Averaged, Rival
from benchmarks.learning.rivals.local import DiLoCo, SparseLoCo
from benchmarks.learning.rivals.scaffold import Scaffold
from benchmarks.learning.rivals.sparse import Dgc, Ef21
from benchmarks.learning.rivals.ternary import Stc

PRODUCT = "product"

VARIANTS: dict[str, dict[str, object]] = {
    "exact-downlink": {"downlink.mode": "exact"},
    "lossy-downlink": {"downlink.share": 0.02},
    "sgd": {"local.optimizer": "sgd"},
    "unbalanced": {"local.balance_labels": False},
    "feedback-1": {"compression.feedback": 1.0},
    "no-average": {"coordination.average": 0.0},
    "dense": {"compression.select": 1.0, "compression.values": "f32", "downlink.mode": "exact"},
}
"""Settings over the product's defaults, for ablations: "product NAME"."""

COHORT = f"{PRODUCT} coordination.cohort=3"
"""The product with three devices at a time."""

FAMILIES: dict[str, Any] = {
    "Sgd": Sgd,
    "Adam": Adam,
    "SyncSgd": SyncSgd,
    "FedAvg": FedAvg,
    "FedProx": FedAvg,
    "FedAvgM": FedAvgM,
    "FedAdam": FedAdam,
    "FedBuff": FedBuff,
    "Scaffold": Scaffold,
    "DiLoCo": DiLoCo,
    "SparseLoCo": SparseLoCo,
    "FedAsync": FedAsync,
    "FedCompass": FedCompass,
    "Dgc": Dgc,
    "Ef21": Ef21,
    "HeavyBall": HeavyBall,
    "Stc": Stc,
}
"""Rivals by name."""

CENTRAL = ("Sgd", "Adam")
"""Those that have all data on one machine: the reference."""

AVERAGE = "average"
"""The key of eta, for any rival."""

GRIDS: dict[str, tuple[str, ...]] = {
    "Sgd": ("momentum=0.9 rate=0.01", "momentum=0.9 rate=0.003", "rate=0.05", "rate=0.1", "rate=0.02"),
    "Adam": ("rate=0.001", "rate=0.0003", "rate=0.003"),
    "SyncSgd": ("rate=0.1", "rate=0.2", "momentum=0.9 rate=0.02", "momentum=0.9 rate=0.05"),
    "FedAvg": (
        "rate=0.1 steps=5 cohort=10", "rate=0.1 steps=20 cohort=10", "rate=0.1 steps=5 cohort=3",
        "rate=0.05 steps=5 cohort=10", "rate=0.05 steps=5 cohort=3", "rate=0.1 steps=20 cohort=3",
        "rate=0.1 epochs=1 cohort=3", "rate=0.1 epochs=5 cohort=1", "rate=0.1 steps=20 cohort=1 average=8",
    ),
    "FedProx": ("rate=0.1 epochs=5 cohort=1 proximal=0.01", "rate=0.1 steps=5 cohort=3 proximal=0.01",
                "rate=0.1 steps=20 cohort=3 proximal=0.1", "rate=0.1 steps=5 cohort=10 proximal=0.1"),
    "FedAvgM": ("rate=0.05 steps=5 cohort=10 server_rate=0.3", "rate=0.05 steps=5 cohort=3 server_rate=0.3",
                "rate=0.1 steps=5 cohort=3 server_rate=0.1",
                "rate=0.05 steps=5 cohort=1 server_rate=0.3 average=8"),
    "FedAdam": ("rate=0.05 steps=5 cohort=10 server_rate=0.003",
                "rate=0.05 steps=5 cohort=3 server_rate=0.003",
                "rate=0.05 steps=5 cohort=3 server_rate=0.001",
                "rate=0.05 steps=5 cohort=1 server_rate=0.003 average=8"),
    "FedBuff": ("rate=0.05 steps=5 buffer=3", "rate=0.1 steps=5 buffer=3", "rate=0.1 steps=5 buffer=10",
                "rate=0.1 steps=1 buffer=3", "rate=0.05 steps=20 buffer=3"),
    "Scaffold": ("rate=0.1 steps=5 cohort=10", "rate=0.05 steps=5 cohort=3", "rate=0.1 steps=5 cohort=3",
                 "rate=0.1 steps=20 cohort=3", "rate=0.1 steps=5 cohort=1 average=8"),
    "DiLoCo": ("rate=0.001 steps=5", "rate=0.001 steps=20", "rate=0.003 steps=5",
               "rate=0.001 steps=5 outer_rate=0.3"),
    "SparseLoCo": ("rate=0.001 steps=5", "rate=0.001 steps=20", "rate=0.003 steps=5",
                   "rate=0.001 steps=5 share=0.1"),
    "FedAsync": ("rate=0.1 steps=5", "rate=0.1 steps=20 mixing=0.3", "rate=0.2 steps=5",
                 "rate=0.2 steps=5 mixing=0.9"),
    "FedCompass": ("rate=0.1 least=1 most=5", "rate=0.2 least=1 most=5", "rate=0.1 least=4 most=20",
                   "rate=0.2 least=4 most=20", "rate=0.1 least=20 most=100",
                   "rate=0.4 least=1 most=5", "rate=0.4 least=4 most=20", "rate=0.4 least=1 most=5 mixing=2",
                   "rate=0.1 least=1 most=5 mixing=2", "rate=0.05 least=1 most=5 mixing=2"),
    "Dgc": ("rate=0.1", "rate=0.1 share=0.01", "rate=0.2 share=0.01", "rate=0.05 share=0.01"),
    "Ef21": ("rate=0.1", "rate=0.2", "rate=0.5", "rate=0.5 share=0.05"),
}  # fmt: skip
"""Settings of a family that are tried at n = 10, even data, seed 0; its best one then runs everywhere."""


@dataclass(frozen=True, slots=True)
class Arm:
    """One that learns."""

    name: str
    family: str
    settings: dict[str, object]
    """Of the product, as [section.key]; of rivals none."""
    rival: Rival | None = None

    @property
    def central(self) -> bool:
        """Whether all data lie on one machine."""
        return self.family in CENTRAL


def parsed(name: str) -> Arm:
    """The arm of that name. Raises ValueError if it is none."""
    family, *words = name.split()
    if family == PRODUCT:
        if len(words) == 1 and words[0] in VARIANTS:
            return Arm(name, name, VARIANTS[words[0]])
        if not all("=" in word for word in words):
            raise ValueError(f"arm {name!r}: known variants of the product are {', '.join(VARIANTS)}")
        return Arm(name, name, dict(map(_setting, words)))
    if family not in FAMILIES:
        raise ValueError(f"arm {name!r}: known are {PRODUCT}, {', '.join(FAMILIES)}")
    known = {field.name: field.type for field in fields(FAMILIES[family])} | {AVERAGE: float}
    settings: dict[str, Any] = {}
    for word in words:
        key, _, value = word.partition("=")
        if key not in known or not value:
            raise ValueError(f"arm {name!r}: {word!r} is no setting; known are {', '.join(known)}")
        settings[key] = {"float": float, "int": int}.get(
            str(getattr(known[key], "__name__", known[key])), str
        )(value)
    average = settings.pop(AVERAGE, 0.0)
    try:
        rival = FAMILIES[family](**settings)
        return Arm(name, family, {}, Averaged(rival, average) if average else rival)
    except TypeError as error:
        raise ValueError(f"arm {name!r}: {error}; give its settings, such as rate=0.1") from error


def _setting(word: str) -> tuple[str, object]:
    """A setting of a run, such as downlink.share=0.5. What is no TOML is text."""
    key, _, value = word.partition("=")
    try:
        return key, tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key, value


def grid(family: str) -> list[str]:
    """The arms of a family that are tried."""
    return [f"{family} {settings}" for settings in GRIDS[family]]


def averaged(arm: str) -> str:
    """The arm of a rival with its averaged model, which is averaged as Edgeflock's is by default."""
    return arm if f" {AVERAGE}=" in arm else f"{arm} {AVERAGE}=8"

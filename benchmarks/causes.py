"""Which findings come of which cause, and whether the right device is named and nobody else.

    python -m benchmarks.causes [--seeds 3] [--first 0] [--only WORDS] [--out FILE]

Emulated fleets of ten devices train the digits in virtual time. In each row one thing is wrong, with a device
that the seed chooses or with the run; in the controls nothing is. A finding is right if it is the row's, and
of the device that is wrong; `also` are findings that the same cause may bring; any other is wrong.
docs/findings.md has the results.
"""

import argparse
import asyncio
import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray
from torch import nn

from edgeflock.client.backends import Backend
from edgeflock.client.data.checks import Checks
from edgeflock.client.data.fitting import Fitting
from edgeflock.client.data.records import Skipped, StreamChunk
from edgeflock.client.data.stream_buffer import Truncation
from edgeflock.client.data.stream_disk import Persistence
from edgeflock.devices.emulation import config
from edgeflock.devices.emulation.fleet import FleetObjects, PreparedFleet, prepare, run_fleet
from edgeflock.papers.machine import machine
from edgeflock.server.monitoring.listeners import Callbacks
from edgeflock.shared.data.datasets import Dataset, concatenate
from edgeflock.shared.model.gradient import Gradient
from edgeflock.shared.protocol.frames import Finding, FindingKind
from edgeflock.shared.protocol.messages import Facts

DEVICES, SECONDS = 10, 180
STEP_MS, EVALUATE_EVERY = 800, 25
LONG = 1600
"""Updates until nobody is named any more: where a device's updates go, shows late."""
WHO = "victim"
"""The class of the device that something is wrong with; in controls, of any."""

Data = Callable[[Dataset, PreparedFleet, np.random.Generator], Dataset]
Altered = Callable[[NDArray[np.float32]], NDArray[np.float32]]
Tells = Callable[[Path], Callable[[float], Facts]]
"""(folder) -> (virtual second) -> what the device tells of itself then."""


def digits() -> FleetObjects:
    """A model of 4,810 parameters: what is found hardly depends on its size, and its steps take no time."""
    return FleetObjects(
        make=lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    )


@dataclass(frozen=True)
class Cause:
    """What is wrong, and what should be found."""

    kinds: tuple[FindingKind, ...]
    """Any of these is right."""
    of_device: bool = True
    also: tuple[FindingKind, ...] = ()
    data: Data | None = None
    """Makes the victim's data of its share, and"""
    rest: Data | None = None
    """those of the others of theirs."""
    gradient: Altered | None = None
    tells: Tells | None = None
    device: Mapping[str, object] = field(default_factory=dict)
    """Settings of the victim's class, and"""
    others: Mapping[str, object] = field(default_factory=dict)
    """of the others'."""
    settings: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    given: Callable[[], FleetObjects] = digits
    updates: int = 900


def relabelled(of: Callable[[NDArray[np.int64], np.random.Generator], NDArray[np.int64]]) -> Data:
    return lambda data, _, random: Dataset(
        data.x, of(data.y.astype(np.int64), random), description=data.description
    )


def scaled(of: Callable[[NDArray[np.float32]], NDArray[np.float32]]) -> Data:
    return lambda data, _, random: Dataset(of(data.x), data.y, description=data.description)


def spoilt(y: NDArray[np.int64], random: np.random.Generator) -> NDArray[np.int64]:
    return np.where(random.random(len(y)) < 0.5, random.integers(10, size=len(y)), y)


def of_one_label(data: Dataset, prepared: PreparedFleet, random: np.random.Generator) -> Dataset:
    everything = concatenate(prepared.shares)
    where = np.flatnonzero(everything.y == random.integers(10))
    return Dataset(everything.x[where], everything.y[where], description=data.description)


def of_labels(first: int, last: int) -> Data:
    def make(data: Dataset, prepared: PreparedFleet, random: np.random.Generator) -> Dataset:
        everything = concatenate(prepared.shares) if first > 0 else data
        where = np.flatnonzero((everything.y >= first) & (everything.y <= last))
        return Dataset(everything.x[where], everything.y[where], description=data.description)

    return make


def held_out(data: Dataset, prepared: PreparedFleet, random: np.random.Generator) -> Dataset:
    return concatenate([data, replace(prepared.test, description=data.description)])


def wrong_clock(folder: Path) -> Callable[[float], Facts]:
    return lambda now: {"clock": int(now) - 3600}


def hot(folder: Path) -> Callable[[float], Facts]:
    """About the bound, up and down."""
    return lambda now: {"temperature": 80.5 + 4 * np.sin(now)}


def full_disk(folder: Path) -> Callable[[float], Facts]:
    """A stream's buffer on a disk that has no page left after a while."""
    buffer = Persistence(folder / "buffer.sqlite", 1 << 30)
    fitting = Fitting(buffer, Skipped(), Checks())

    def tell(now: float) -> Facts:
        if now > 30:
            buffer._db.execute("PRAGMA max_page_count = 1")
        buffer.add(StreamChunk(np.ones((100, 64), np.float32), np.zeros(100, np.int64)), now)
        fitting.received += 100
        return fitting.facts()

    return tell


def unfit(folder: Path) -> Callable[[float], Facts]:
    """A stream of which every third sample has a NaN."""
    tally = Skipped()
    fitting, checks = Fitting(Truncation(np.inf, 8, 1 << 30), tally, Checks()), Checks()

    def tell(now: float) -> Facts:
        x = np.ones((90, 64), np.float32)
        x[::3, 5] = np.nan
        fitting.received += len(checks.admit(StreamChunk(x, np.zeros(90, np.int64)), tally))
        return fitting.facts()

    return tell


def regression() -> FleetObjects:
    random = np.random.default_rng(5)
    x = random.normal(size=(1200, 8)).astype(np.float32)
    y = (x[:, 0] * 30 + 400).astype(np.float32)
    train, test = Dataset(x[200:], y[200:]), Dataset(x[:200], y[:200])
    return FleetObjects(train, test, lambda: nn.Sequential(nn.Linear(8, 1), nn.Flatten(0)))


BROKEN: tuple[FindingKind, ...] = ("diverged", "learning", "disagrees", "refused")
"""What follows if one device spoils the model."""

CAUSES: dict[str, Cause] = {
    "labels shifted by one": Cause(("disagrees",), data=relabelled(lambda y, _: (y + 1) % 10), updates=LONG),
    "labels drawn at random": Cause(
        ("disagrees",), data=relabelled(lambda y, random: random.permutation(y)), updates=LONG
    ),
    "labels mirrored": Cause(("disagrees",), data=relabelled(lambda y, _: 9 - y), updates=LONG),
    "sign of gradients flipped": Cause(("disagrees",), gradient=lambda g: -g, updates=LONG),
    "gradients times 1,000": Cause(  # Adafactor steps as far for any size of gradients
        ("norm",), also=BROKEN, gradient=lambda g: g * 1000, settings={"local": {"optimizer": "sgd"}}
    ),
    "inputs times 255": Cause(
        ("norm", "disagrees"), also=BROKEN, data=scaled(lambda x: x * 255), updates=LONG
    ),
    "inputs times -1": Cause(("disagrees", "norm"), data=scaled(lambda x: -x), updates=LONG),
    "rows of the held-out data": Cause(("held-out",), data=held_out),
    "processor 25 times as slow": Cause(("stale",), device={"step_ms": 25 * STEP_MS}, updates=LONG),
    "line of 8 s a message": Cause(("stale",), device={"latency_ms": 8000}, updates=LONG),
    "flapping": Cause(("flapping",), also=("gone",), device={"session_s": 8.0, "away_s": 4.0}),
    "killed": Cause(("gone",), device={"crash": 0.1}),
    "stream faster than the device": Cause(("dropping",), device={"rate": "2000", "batch_max": 64}),
    "stream falls silent": Cause(("silent",), device={"rate": "steps:0:60,30:0", "buffer": "persistence"}),
    "a third of the samples are NaN": Cause(("unfit",), tells=unfit),
    "disk full": Cause(("disk",), tells=full_disk),
    "clock an hour behind": Cause(("clock",), tells=wrong_clock),
    "hot, about the bound": Cause(("hot",), tells=hot),
    "window too short for it": Cause(
        ("refused",), also=("stale",), device={"step_ms": 12 * STEP_MS},
        settings={"coordination": {"window": 40}},
    ),
    "learning rate 100 times too high": Cause(
        ("learning", "diverged"), False,
        settings={"coordination": {"learning_rate": 5.0}, "evaluation": {"recover": False}},
    ),
    "learning rate 1,000 times too low": Cause(
        ("learning",), False,
        settings={"coordination": {"learning_rate": 1e-5}, "local": {"optimizer": "adafactor"}},
    ),
    "100 samples, half of their labels wrong": Cause(
        ("overfitting",), False, also=("lost-class",), data=relabelled(spoilt), rest=relabelled(spoilt),
        updates=2400, settings={"fleet": {"samples": 100}},
    ),
    "targets about 400": Cause(
        ("targets",), False, also=("diverged", "learning"), given=regression,
        settings={"model": {"loss": "mse"}},
    ),
}  # fmt: skip

CONTROLS: dict[str, Cause] = {
    "honest, even data": Cause((), updates=LONG),
    "honest, one label each": Cause((), updates=LONG, settings={"fleet": {"labels": 1}}),
    "honest, two labels each": Cause((), updates=LONG, settings={"fleet": {"labels": 2}}),
    "honest, one of ten has one label": Cause((), updates=LONG, data=of_one_label),
    "honest, one alone has two labels": Cause((), updates=LONG, data=of_labels(8, 9), rest=of_labels(0, 7)),
    "honest, one alone has half of the labels": Cause(
        (), updates=LONG, data=of_labels(5, 9), rest=of_labels(0, 4)
    ),
    "honest, speeds 1 to 10, half of each": Cause(
        (), updates=LONG, device={"share": 1.0, "step_ms": 10 * STEP_MS}, others={"share": 1.0}
    ),
    "honest, one of ten ten times slower": Cause((), updates=LONG, device={"step_ms": 10 * STEP_MS}),
    "honest, one label each, half ten times slower": Cause(
        (),
        updates=LONG,
        device={"share": 1.0, "step_ms": 10 * STEP_MS},
        others={"share": 1.0},
        settings={"fleet": {"labels": 1}},
    ),
    "honest, all come and go": Cause(
        (), updates=LONG, device={"session_s": 20.0, "away_s": 5.0}, others={"session_s": 20.0, "away_s": 5.0}
    ),
}


@dataclass(frozen=True)
class Found:
    """A finding when it began."""

    at: float
    """Virtual seconds."""
    finding: Finding


class Altering:
    """A backend whose gradients are altered."""

    def __init__(self, inner: Backend, of: Altered) -> None:
        self._inner, self._of = inner, of
        self.layout = inner.layout

    def gradient(
        self, theta: NDArray[np.float32], x: NDArray[np.float32], y: NDArray[np.generic]
    ) -> Gradient:
        made = self._inner.gradient(theta, x, y)
        return made._replace(gradient=self._of(made.gradient))


def prepared_for(cause: Cause) -> PreparedFleet:
    device = {"step_ms": STEP_MS, "spread": 0.2, "uplink_mbps": 20, "downlink_mbps": 50, "latency_ms": 20}
    sections: dict[str, dict[str, object]] = {
        "end": {"updates": cause.updates},
        "model": {"data": "digits:"},
        "fleet": {
            "devices": DEVICES,
            "data": "digits:",
            "seconds": SECONDS,
            "evaluate_every": EVALUATE_EVERY,
        },
    }
    for section, settings in cause.settings.items():
        sections.setdefault(section, {}).update(settings)
    few = {"share": 1.0} | device | dict(cause.device)
    many = {"share": float(DEVICES - 1)} | device | dict(cause.others)
    given: dict[str, object] = {**sections, "devices": {"pi": many, WHO: few}}
    return prepare(config.parse("", "benchmarks.causes", settings=given), cause.given())


def names_of(prepared: PreparedFleet, seed: int) -> list[str]:
    """As the fleet deals its classes over the places (devices/emulation/fleet/members.py)."""
    counts = config.headcount(prepared.file.classes, DEVICES)
    kinds = np.random.default_rng([seed, 0]).permutation(np.repeat(list(counts), list(counts.values())))
    return [f"{kind}-{place}" for place, kind in enumerate(kinds)]


def run(cause: Cause, prepared: PreparedFleet, seed: int) -> tuple[str, list[Found]]:
    """(the device that is wrong, what was found)."""
    names = names_of(prepared, seed)
    place = next(place for place, name in enumerate(names) if name.startswith(WHO))
    shares = list(prepared.shares)
    random = np.random.default_rng([seed, 99])
    for one, share in enumerate(prepared.shares):
        if (of := cause.data if one == place else cause.rest) is not None:
            shares[one] = of(share, prepared, random)
    found: list[Found] = []

    def tell(finding: Finding) -> None:
        found.append(Found(asyncio.get_running_loop().time(), finding))

    with TemporaryDirectory() as folder:

        def health_of(name: str) -> Callable[[], Facts]:
            own = cause.tells(Path(folder)) if cause.tells is not None and name == names[place] else None
            return partial(facts, own)

        def backend_of(number: int, backend: Backend) -> Backend:
            of = cause.gradient
            return backend if of is None or number != place else Altering(backend, of)

        run_fleet(
            replace(prepared, shares=shares),
            seed,
            Callbacks(on_finding=tell),
            backend_of=backend_of,
            health_of=health_of,
        )
    return names[place], found


def facts(own: Callable[[float], Facts] | None) -> Facts:
    """What a healthy device tells, and what the victim does beside."""
    now = asyncio.get_running_loop().time()
    return {"clock": int(now), "temperature": 55.0, **({} if own is None else own(now))}


def judge(name: str, cause: Cause, seeds: range) -> dict[str, object]:
    """A row."""
    prepared = prepared_for(cause)
    right, when, wrong, most = 0, [], Counter[str](), 0
    for seed in seeds:
        who, found = run(cause, prepared, seed)
        whose = who if cause.of_device else None
        times = [
            one.at
            for one in found
            if (one.finding.kind, one.finding.device) in [(k, whose) for k in cause.kinds]
        ]
        right += bool(times)
        when += times[:1]
        for one in found:
            kind, device = one.finding.kind, one.finding.device
            if kind in cause.kinds and device == whose:
                continue
            if kind not in cause.also or device not in (None, whose):
                wrong[
                    f"{kind} {'run' if device is None else 'right device' if device == who else device}"
                ] += 1
        begun = Counter((one.finding.kind, one.finding.device) for one in found)
        most = max(most, *begun.values(), 0)
    return {
        "cause": name,
        "finding": " or ".join(cause.kinds) or "none",
        "seeds": len(seeds),
        "right": right if cause.kinds else None,
        "median s": round(float(np.median(when)), 1) if when else None,
        "wrong": dict(wrong),
        "began at most": most,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--only", default="", help="rows that hold this")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    rows = []
    print("| cause | finding | right | after s | wrong | begins |\n|---|---|--:|--:|---|--:|")
    for name, cause in (CAUSES | CONTROLS).items():
        if asked.only not in name:
            continue
        row = judge(name, cause, range(asked.first, asked.first + asked.seeds))
        rows.append(row)
        right = "" if row["right"] is None else f"{row['right']} of {row['seeds']}"
        wrong = row["wrong"] or 0
        print(
            f"| {name} | {row['finding']} | {right} | {row['median s'] or ''} | {wrong} "
            f"| {row['began at most']} |",
            flush=True,
        )
    if asked.out is not None:
        made = {"machine": machine(), "seeds": [asked.first, asked.first + asked.seeds - 1], "rows": rows}
        asked.out.write_text(json.dumps(made, indent=1) + "\n")


if __name__ == "__main__":
    main()

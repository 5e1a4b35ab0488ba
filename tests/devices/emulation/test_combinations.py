"""Settings pair by pair: a fleet makes twenty updates with both, or the table of combinations refuses."""

from itertools import combinations
from pathlib import Path

import pytest

from edgeflock.devices.emulation.config import parse
from edgeflock.devices.emulation.fleet import prepare, run_fleet
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.settings.combinations import ROWS

FLEET = (
    "model.module=edgeflock.client.zoo:DigitsLinear",
    "model.data=digits:",
    "run.updates=20",
    "run.batch=4",
    "fleet.devices=4",
    "fleet.samples=64",
    "fleet.evaluate_every=20",
    "devices.one.step_ms=10",
)
ROUNDS = ("coordination.mode=rounds",)
CHOSEN: dict[str, dict[str, tuple[str, ...]]] = {
    "coordination": {
        "rounds": ROUNDS,
        "median": (*ROUNDS, "coordination.aggregate=median"),
        "cohort": ("coordination.mode=cohort", "coordination.cohort=2"),
        "tasks": ("coordination.mode=tasks", "coordination.tasks=2"),
        "buffer": ("coordination.mode=buffer",),
        "elastic": ("coordination.mode=elastic", "coordination.chunk=0"),
        "tau": ("coordination.rule=tau",),
    },
    "gate": {"ssp": ("coordination.gate=ssp",), "asp": ("coordination.gate=asp",)},
    "optimizer": {
        name: (f"optimizer.kind={name}",) for name in ("momentum", "nesterov", "adam", "adamw", "adagrad")
    },
    "schedule": {
        "step": ("optimizer.schedule=step", "optimizer.period=10"),
        "cosine": ("optimizer.schedule=cosine",),
        "plateau": ("optimizer.schedule=plateau",),
    },
    "selection": {
        "significance": ("compression.selection=significance",),
        "select": ("compression.select=0.1",),
        "threshold": ("compression.threshold=0.5",),
        "dense": ("compression.select=1",),
    },
    "coding": {"golomb": ("compression.indices=golomb",), "f32": ("compression.values=f32",)},
    "downlink": {
        "exact": ("downlink.mode=exact",),
        "golomb down": ("downlink.indices=golomb", "downlink.values=f16"),
    },
    "local": {
        "sgd": ("run.local_optimizer=sgd",),
        "adafactor": ("run.local_optimizer=adafactor",),
        "steps": ("run.local_steps=2",),
        "adam": ("run.local_optimizer=adam", "run.local_steps=2"),
        "momentum": ("run.local_optimizer=sgd", "run.local_momentum=0.5", "run.local_steps=2"),
        "proximal": ("run.proximal=0.1", "run.local_steps=2"),
    },
    "average": {"none": ("coordination.average=0",)},
    "weights": {"by samples": ("coordination.base_batch=8",)},
    "defence": {"clip": ("defence.mode=clip",), "score": ("defence.mode=score",)},
    "injection": {"on": ("injection.alpha=0.5", "injection.beta=0.5")},
}
PAIRS = [
    (*one, *other)
    for (first, ones), (second, others) in combinations(CHOSEN.items(), 2)
    for one in ones.values()
    for other in others.values()
]


@pytest.mark.parametrize("settings", PAIRS, ids=" ".join)
def test_a_pair_runs_or_is_refused_by_the_table(settings: tuple[str, ...], tmp_path: Path) -> None:
    refusal = ""
    try:
        file = parse("", "fleet", (*FLEET, *settings))
    except ConfigError as error:
        refusal = str(error)
    if refusal:
        assert any(f"it {row.reason}; {row.remedy}" in refusal for row in ROWS)
        return
    result = run_fleet(prepare(file), 0, tmp_path)
    assert result.ended in ("complete", "diverged")
    assert result.updates >= 20

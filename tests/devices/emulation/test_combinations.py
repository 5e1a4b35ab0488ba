"""Settings pair by pair: a fleet makes twelve updates with both, or the table of combinations refuses them.

A run has a choice of as many settings as go together, so that few runs have all pairs.
"""

from collections.abc import Callable
from itertools import combinations

import pytest

from edgeflock.devices.emulation.config import FleetFile, parse
from edgeflock.devices.emulation.fleet import prepare, run_fleet
from edgeflock.server.hosting.choices import CHOICES
from edgeflock.shared.codecs import sparse, values
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.settings.combinations import ROWS
from edgeflock.shared.settings.config import Config
from edgeflock.shared.settings.config import parse as parse_config

FLEET = (
    "model.module=edgeflock.client.zoo:DigitsLinear",
    "model.data=digits:",
    "end.updates=12",
    "local.batch=4",
    "fleet.devices=4",
    "fleet.samples=64",
    "fleet.evaluate_every=12",
    "devices.one.step_ms=10",
    "devices.one.shares=true",
)

Settings = tuple[str, ...]
Choice = tuple[str, Settings]
"""A concept, and settings that choose one of its values."""


def _aggregates(mode: str) -> list[Settings]:
    return [(f"coordination.mode={mode}",), (f"coordination.mode={mode}", "coordination.aggregate=median")]


CONCEPTS: dict[str, list[Settings]] = {
    "mode": [
        ("coordination.mode=async",),
        ("coordination.mode=buffer", "coordination.buffer=3"),
        *_aggregates("rounds"),
        *_aggregates("cohort"),
        *_aggregates("tasks"),
        ("coordination.mode=private", "coordination.learning_rate=0.1"),
        ("coordination.mode=elastic", "coordination.chunk=0"),
        ("coordination.mode=elastic", "coordination.chunk=100"),
    ],
    "rule": [(f"coordination.rule={name}",) for name in CHOICES["coordination.rule"]],
    "gate": [(f"coordination.gate={name}",) for name in ("none", "asp")],
    "optimizer": [(f"optimizer.kind={name}",) for name in CHOICES["optimizer.kind"]],
    "schedule": [
        ("optimizer.schedule=constant", "optimizer.warmup=3"),
        ("optimizer.schedule=cosine",),
    ],
    "selection": [
        ("compression.selection=significance",),
        ("compression.select=0.1",),
        ("compression.select=0.1", "compression.threshold=0.5"),
        ("compression.select=1",),
    ],
    "indices": [(f"compression.indices={name}",) for name in sparse.CODINGS],
    "values": [(f"compression.values={name}",) for name in values.CODINGS],
    "downlink": [
        ("downlink.mode=exact",),
        ("downlink.mode=lossy",),
        ("downlink.mode=lossy", "downlink.values=f16"),
    ],
    "local": [
        ("local.optimizer=sgd",),
        ("local.optimizer=adafactor",),
        ("local.optimizer=adafactor", "local.steps=2"),
        ("local.optimizer=adam", "local.steps=2"),
        ("local.optimizer=sgd", "local.momentum=0.5", "local.steps=2"),
        ("local.proximal=0.1", "local.steps=2"),
    ],
    "average": [("coordination.average=0",)],
    "weights": [("coordination.base_batch=8",)],
    "defence": [(f"defence.mode={name}",) for name in CHOICES["defence.mode"]],
    "personal": [("model.personal=1.bias",)],
    "lora": [('model.lora={"rank": 2, "targets": ["1"]}',)],
    "injection": [("injection.alpha=0.5", "injection.beta=0.5")],
}  # fmt: skip


def are_refused(settings: Settings, source: Callable[[Settings], Config]) -> bool:
    """Whether the table refuses the settings; nothing else may."""
    try:
        source(settings)
    except ConfigError as error:
        refusal = str(error)
    else:
        return False
    assert any(f"it {row.reason}; {row.remedy}" in refusal for row in ROWS), settings
    return True


def fleet(settings: Settings) -> FleetFile:
    return parse("", "fleet", (*FLEET, *settings))


def sharded(settings: Settings) -> Config:
    return parse_config(overrides=("end.updates=12", "scale.shards=2", *settings), tables=CHOICES)


def accepted_pairs() -> set[frozenset[Choice]]:
    """Return the pairs of choices of two concepts that go together."""
    choices = [(concept, settings) for concept, values in CONCEPTS.items() for settings in values]
    return {
        frozenset((one, other))
        for one, other in combinations(choices, 2)
        if one[0] != other[0] and not are_refused((*one[1], *other[1]), fleet)
    }


def covering_runs() -> list[Settings]:
    """Return the settings of runs that have all accepted pairs."""
    accepted = accepted_pairs()
    left, runs = sorted(map(sorted, accepted)), []
    while left:
        chosen = left[0]
        candidates = sorted({choice for pair in left for choice in pair})
        for choice in candidates:
            fits = all(frozenset((choice, other)) in accepted for other in chosen)
            if fits and not are_refused(tuple(key for _, keys in (*chosen, choice) for key in keys), fleet):
                chosen = [*chosen, choice]
        have = {frozenset(pair) for pair in combinations(chosen, 2)}
        left = [pair for pair in left if frozenset(pair) not in have]
        runs.append(tuple(key for _, keys in chosen for key in keys))
    return runs


@pytest.mark.slow
def test_all_pairs_run_or_are_refused_by_the_table() -> None:
    for settings in covering_runs():
        try:
            result = run_fleet(prepare(fleet(settings)), 0)
        except Exception as error:
            raise AssertionError(settings) from error
        assert (result.ended in ("complete", "diverged"), result.updates >= 12) == (True, True), settings


def test_shards_go_with_a_choice_or_the_table_refuses() -> None:
    """tests/server/shards has the runs: fleets have no shards."""
    for choices in CONCEPTS.values():
        for settings in choices:
            whole = {"downlink.mode=lossy", "coordination.mode=private"}.intersection(settings)
            assert are_refused(settings, sharded) == (bool(whole) or are_refused(settings, fleet))


def test_every_choice_is_tried() -> None:
    tried = {setting for choices in CONCEPTS.values() for settings in choices for setting in settings}
    tables = {**CHOICES, "compression.indices": sparse.CODINGS, "compression.values": values.CODINGS}
    for key, table in tables.items():
        section, _, name = key.partition(".")
        default = type(getattr(Config(), section)).model_fields[name].default
        if section not in ("evaluation", "callbacks"):
            assert {f"{key}={choice}" for choice in table if choice != default} <= tried

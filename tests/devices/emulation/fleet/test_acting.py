"""Fleets of devices that act, in virtual time."""

from typing import Any

import pytest

from edgeflock.devices.emulation.config import FleetFile, parse
from edgeflock.devices.emulation.fleet import FleetResult, prepare, run_fleet
from edgeflock.server.monitoring.listeners import Callbacks
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.protocol.frames import Evaluation
from tests.shared.environments.worlds import HERE

CORRIDOR = f"{HERE}Corridor?length=8"


def file(**sections: dict[str, Any]) -> FleetFile:
    usual: dict[str, dict[str, Any]] = {
        "end": {"updates": 150},
        "local": {"batch": 32},
        "model": {
            "module": "edgeflock.client.zoo:ActorCritic(observations=2, actions=2, width=16)",
            "loss": "a2c",
            "data": CORRIDOR,
        },
        "fleet": {"devices": 4, "data": CORRIDOR, "evaluate_every": 50},
        "devices": {"one": {"step_ms": 10}},
    }
    merged = {name: {**usual.get(name, {}), **sections.get(name, {})} for name in usual | sections}
    return parse("", "test", settings=merged)


def played(fleet: FleetFile) -> tuple[FleetResult, list[Evaluation]]:
    reported: list[Evaluation] = []
    result = run_fleet(prepare(fleet), 0, Callbacks(on_evaluated=reported.append))
    return result, reported


@pytest.mark.slow
def test_it_learns_to_walk_and_the_same_seed_does_the_same() -> None:
    result, reported = played(file())
    assert result.ended == "complete"
    assert reported[-1].metrics == {"return": 8.0, "length": 8.0}
    assert reported[-1].loss == -8.0
    assert reported[-1].accuracy is None
    again, _ = played(file())
    assert again.digest == result.digest


@pytest.mark.parametrize(
    "coordination",
    [
        {"rule": "tau"},
        {"rule": "none"},
        {"mode": "rounds"},
        {"mode": "elastic"},
    ],
    ids=str,
)
def test_it_goes_with_each_way_to_coordinate(coordination: dict[str, Any]) -> None:
    result, reported = played(file(coordination=coordination, end={"updates": 20}))
    assert result.ended == "complete"
    assert reported[-1].metrics["return"] is not None


def test_classes_of_devices_may_have_environments_of_their_own() -> None:
    devices = {"short": {"step_ms": 10, "data": f"{HERE}Corridor?length=2"}, "long": {"step_ms": 10}}
    prepared = prepare(file(devices=devices))
    assert [prepared.environments[name].uri for name in ("short", "long")] == [
        f"{HERE}Corridor?length=2",
        CORRIDOR,
    ]
    assert played(file(devices=devices, end={"updates": 12}))[0].updates == 12


@pytest.mark.parametrize(
    ("sections", "says"),
    [
        ({"fleet": {"data": "digits:"}}, "some are environments, and some are not"),
        ({"devices": {"one": {"step_ms": 1, "data": "digits:"}}}, "some are environments"),
        ({"fleet": {"labels": 2}}, "fleet.labels: devices act in an environment"),
        ({"devices": {"one": {"step_ms": 1, "rate": "5"}}}, r"devices.one.rate: devices act"),
        ({"fleet": {"data": f"{HERE}Target"}}, "have other observations or actions"),
        ({"coordination": {"mode": "tasks", "tasks": 2}}, "coordination.mode = 'tasks' is of shards of data"),
        ({"defence": {"mode": "score"}}, "needs held-out samples"),
    ],
)
def test_what_does_not_go_together(sections: dict[str, dict[str, Any]], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        prepare(file(**sections))

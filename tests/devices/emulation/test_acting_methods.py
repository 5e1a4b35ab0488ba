"""A fleet that learns by acting does so under every way to coordinate."""

import pytest

from edgeflock.devices.emulation.config import FleetFile
from edgeflock.devices.emulation.fleet import prepare, run_fleet
from edgeflock.server.hosting.choices import CHOICES

pytest.importorskip("gymnasium", reason="needs gymnasium: pip install 'edgeflock[rl]'")

DENSE = {"compression.select": 1.0, "compression.values": "f32"}
METHODS: dict[str, dict[str, object]] = {
    "adacomp": {"coordination.rule": "adacomp"},
    "tau": {"coordination.rule": "tau"},
    "A3C": {**DENSE, "coordination.rule": "none", "downlink.mode": "exact"},
    "EASGD": {**DENSE, "coordination.mode": "elastic", "coordination.chunk": 0, "local.steps": 2},
    "staggered EASGD": {
        **DENSE,
        "coordination.mode": "elastic",
        "coordination.chunk": 1000,
        "local.steps": 2,
    },
    "ASP": {"coordination.gate": "asp", "coordination.bound": 2},
    "significance": {"compression.selection": "significance", "compression.significance": 0.01},
    "buffer": {"coordination.mode": "buffer", "coordination.buffer": 3},
    "cohort": {"coordination.mode": "cohort", "coordination.cohort": 2},
}


@pytest.mark.parametrize("method", METHODS)
def test_a_fleet_learns_by_acting(method: str) -> None:
    sections: dict[str, dict[str, object]] = {
        "end": {"updates": 12},
        "local": {"batch": 8},
        "journal": {"keep_updates": False},
        "evaluation": {"recover": False},
        "model": {
            "module": "edgeflock.client.zoo:ActorCritic",
            "loss": "a2c",
            "data": "gym:CartPole-v1?episodes=1",
        },
        "fleet": {"devices": 4, "data": "gym:CartPole-v1?envs=2", "evaluate_every": 12},
        "devices": {"one": {"step_ms": 10}},
    }
    for path, value in METHODS[method].items():
        section, _, key = path.partition(".")
        sections.setdefault(section, {})[key] = value
    fleet = prepare(FleetFile.model_validate(sections, context=CHOICES))
    result = run_fleet(fleet, 0)
    assert result.ended == "complete"
    (kind,) = result.classes.values()
    assert kind.samples >= 12 * 8 / (14 if method == "staggered EASGD" else 1)

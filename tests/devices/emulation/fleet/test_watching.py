"""What is found of a whole fleet in virtual time."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from torch import nn

from edgeflock.devices.emulation.config import parse
from edgeflock.devices.emulation.fleet import FleetObjects, PreparedFleet, prepare, run_fleet
from edgeflock.server.monitoring.listeners import Callbacks
from edgeflock.shared.data.datasets import Dataset, concatenate
from edgeflock.shared.protocol.frames import Evaluation, Finding

DEVICES, UPDATES = 6, 1500


def fleet(slower: float) -> PreparedFleet:
    """Five devices with the digits 0 to 7, and one that is so many times slower."""
    file = parse(
        "",
        "a test",
        settings={
            "end": {"updates": UPDATES},
            "fleet": {"devices": DEVICES, "evaluate_every": 25},
            "model": {"module": "of this test"},
            "devices": {
                "fast": {"step_ms": 500, "share": DEVICES - 1},
                "slow": {"step_ms": 500 * slower},
            },
        },
    )
    return prepare(file, FleetObjects(make=lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 10))))


def found_in(prepared: PreparedFleet, folder: Path) -> tuple[list[Finding], list[Evaluation]]:
    found: list[Finding] = []
    evaluations: list[Evaluation] = []
    run_fleet(prepared, 1, Callbacks(on_evaluated=evaluations.append, on_finding=found.append))
    return found, evaluations


@pytest.mark.slow
def test_classes_that_a_slow_device_alone_holds_are_lost_and_it_is_named(tmp_path: Path) -> None:
    prepared = fleet(30.0)
    everything = concatenate(prepared.shares)
    own = everything.y >= 8
    names = np.random.default_rng([1, 0]).permutation(["fast"] * (DEVICES - 1) + ["slow"])  # as members.py
    slow = int(np.flatnonzero(names == "slow")[0])
    rest = iter(np.array_split(np.flatnonzero(~own), DEVICES - 1))
    parts = [np.flatnonzero(own) if place == slow else next(rest) for place in range(DEVICES)]
    shares = [
        Dataset(everything.x[one], everything.y[one], description=everything.description) for one in parts
    ]
    found, evaluations = found_in(replace(prepared, shares=shares), tmp_path)
    (one,) = [one for one in found if one.kind == "lost-class"]
    assert "classes 8, 9" in one.text
    assert f"slow-{slow} seems to hold them" in one.text
    assert [right for right, _ in evaluations[-1].classes][8:] == pytest.approx([0, 0], abs=3)


@pytest.mark.slow
def test_of_honest_devices_no_class_is_lost(tmp_path: Path) -> None:
    found, evaluations = found_in(fleet(1.0), tmp_path)
    assert found == []
    assert (evaluations[-1].accuracy or 0.0) > 0.8
    right, of = (sum(one) for one in zip(*evaluations[-1].classes, strict=True))
    assert right / of == evaluations[-1].accuracy

"""Emulated private fleets: they learn and end at their budget. No two runs are equal, as noise is secret."""

import math
from pathlib import Path

import pytest

from edgeflock.devices.emulation.config import parse
from edgeflock.devices.emulation.fleet import prepare, run_fleet
from edgeflock.server.monitoring.listeners import Applied, Callbacks
from edgeflock.shared.protocol.frames import Evaluation
from edgeflock.shared.secure_sum.participant import RoundParticipant

FLEET = (
    "model.module=edgeflock.client.zoo:DigitsLinear", "model.data=digits:", "fleet.devices=20",
    "fleet.evaluate_every=40", "local.batch=16", "compression.select=1", "downlink.mode=exact",
    "devices.one.step_ms=10", "coordination.average=0",
)  # fmt: skip
ROUNDS = (
    "coordination.mode=rounds", "coordination.quorum=18", "coordination.learning_rate=0.5", "local.steps=3",
    "privacy.mode=server", "privacy.epsilon=50", "privacy.participations=8", "privacy.devices=20",
)  # fmt: skip
TREES = (
    *ROUNDS, "coordination.mode=buffer", "coordination.quorum=0", "coordination.buffer=5", "privacy.tree=4",
)  # fmt: skip
SUMS = (
    *ROUNDS, "coordination.mode=private", "coordination.quorum=3", "coordination.cohort=20",
    "coordination.bits=6", "fleet.evaluate_every=2",
)  # fmt: skip
LOCAL = (
    "privacy.mode=local", "privacy.epsilon=20", "privacy.participations=10", "privacy.delta=1e-2",
    "privacy.examples=60", "end.updates=200", "coordination.rule=none",
)  # fmt: skip


def run(settings: tuple[str, ...], directory: Path) -> tuple[str, list[Evaluation], list[Applied]]:
    evaluations, updates = list[Evaluation](), list[Applied]()
    file = parse("", "test", overrides=(*FLEET, *settings))
    result = run_fleet(prepare(file), 0, Callbacks(on_update=updates.append), stop=evaluations.append)
    assert result.ended == "complete"
    return result.digest, evaluations, updates


@pytest.mark.slow
@pytest.mark.parametrize("settings", [ROUNDS, TREES, SUMS, LOCAL], ids=["rounds", "trees", "sums", "local"])
def test_private_fleets_learn_and_end(settings: tuple[str, ...], tmp_path: Path) -> None:
    digest, evaluations, updates = run(settings, tmp_path / "one")
    assert max(one.accuracy or 0 for one in evaluations) > 0.3
    assert all(math.isnan(one.loss) for one in updates)  # devices keep their losses to themselves
    most = max(sum(one.device == name for one in updates) for name in {one.device for one in updates})
    assert most <= (10 if settings is LOCAL else 8)
    assert run(settings, tmp_path / "two")[0] != digest


@pytest.mark.slow
def test_devices_that_spoil_their_groups_end_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of fifteen send shares that nobody can open. Then an honest device is in a bad group often."""
    bad, share = list[bytes](), RoundParticipant.share

    def spoil(self: RoundParticipant, roster: bytes) -> bytes:
        identity, body = self._own.identity, share(self, roster)
        if len(bad) < 2 and identity not in bad:
            bad.append(identity)
        return bytes(len(body)) if identity in bad else body

    monkeypatch.setattr(RoundParticipant, "share", spoil)
    settings = (
        "model.module=edgeflock.client.zoo:DigitsLinear", "model.data=digits:", "fleet.devices=15",
        "fleet.evaluate_every=1000", "compression.select=1", "coordination.mode=private",
        "coordination.threshold=0.5", "coordination.deadline=5", "coordination.groups=5",
        "coordination.aggregate=median", "end.updates=30",
    )  # fmt: skip
    file = parse("", "test", overrides=settings)
    assert run_fleet(prepare(file), 0, Callbacks()).ended == "complete"
    assert len(bad) == 2

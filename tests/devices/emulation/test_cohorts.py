"""Fleets of which a few devices take part in each round: the real worker and engine, on a virtual clock."""

import pytest

from edgeflock.devices.emulation.config import FleetFile
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.protocol.messages import Welcome
from tests.devices.emulation.fleets import MIXED, fleet_of, run

COHORT, OF_TWO = "coordination.mode=cohort", "coordination.cohort=2"


def fleet(*settings: str) -> FleetFile:
    return fleet_of(
        MIXED, COHORT, "end.updates=60", "fleet.evaluate_every=2", "downlink.mode=lossy", *settings
    )


def test_a_round_has_an_update_of_each_member_and_all_have_their_turn() -> None:
    ran = run(fleet(OF_TWO, "coordination.cohort_rounds=3"))
    assert ran.result.ended == "complete"
    assert [row.version for row in ran.rows] == list(range(2, 61, 2))
    quick, slow = (ran.result.classes[name] for name in ("quick", "slow"))
    assert quick.updates + slow.updates == 60
    assert abs(slow.updates - 20) <= 3  # two of six devices; some are in the middle of their turn


def test_without_rounds_an_update_is_stale_by_those_of_the_others_with_a_seat() -> None:
    ran = run(fleet("coordination.mode=async", OF_TWO, "coordination.cohort_rounds=3"))
    assert ran.result.ended == "complete"
    quick, slow = (ran.result.classes[name] for name in ("quick", "slow"))
    assert quick.updates + slow.updates == 60
    assert min(quick.updates, slow.updates) >= 15  # of two devices in turn, of which one is slow
    assert (quick.staleness + slow.staleness) / 60 < 3  # six devices that never wait come to five


@pytest.mark.parametrize("mode", ["cohort", "async"])
def test_who_waits_is_sent_nothing(mode: str) -> None:
    settings = f"coordination.mode={mode}", "coordination.cohort=1", "coordination.cohort_rounds=50"
    ran = run(fleet(*settings, "end.updates=20"))
    quick, slow = (ran.result.classes[name] for name in ("quick", "slow"))
    assert (quick.updates, slow.updates) == (20, 0)
    welcomes = ran.server.traffic.sent[Welcome] / 3  # of two of six devices
    assert slow.egress < welcomes + 100  # and that the run is over


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        (
            ["coordination.mode=rounds"],
            "is the number of devices that take part at a time; set coordination.mode = 'async' or 'cohort'",
        ),
        (["coordination.tasks=3"], "a device computes in a round; set coordination.mode = 'tasks'"),
        (["coordination.cohort=0"], "it has so many devices in a round; set coordination.cohort"),
        (["coordination.quorum=3"], "quorum = 3 is more than cohort = 2"),
        (
            [
                "coordination.mode=private",
                "coordination.cohort=14",
                "coordination.groups=5",
                "coordination.aggregate=median",
            ],
            "groups = 5 of quorum = 3 devices or more are more than cohort = 14",
        ),
        (
            [
                "coordination.mode=private",
                "coordination.cohort=14",
                "coordination.groups=2",
                "coordination.aggregate=median",
            ],
            "groups = 2: every aggregate of two sums lets a bad one through",
        ),
        (["coordination.cohort_rounds=0"], "coordination.cohort_rounds = '0'"),
        (["coordination.cohort=-1"], "coordination.cohort = '-1'"),
    ],
)
def test_what_cannot_be_is_named(settings: list[str], named: str) -> None:
    with pytest.raises(ConfigError) as error:
        fleet(OF_TWO, *settings)
    assert named in str(error.value)

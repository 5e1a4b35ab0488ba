"""Fleets in rounds of tasks: the real worker and the real engine, on a virtual clock."""

import pytest

from edgeflock.devices.emulation.fleet import FleetResult
from edgeflock.shared.errors import ConfigError
from tests.devices.emulation.fleets import Ran, fleet_of, run

STRAGGLERS = """\
[end]
updates = 160

[model]
module = "tests.devices.emulation.fleets:Linear"

[coordination]
mode = "tasks"
tasks = 3
average = 0

[fleet]
devices = 8
samples = 320
evaluate_every = 160

[devices.fast]
share = 3
step_ms = 100
spread = 0

[devices.slow]
share = 1
step_ms = 1000
spread = 0
"""
"""Two of eight devices take ten times as long. Messages take no time, so that a round takes whole steps."""

ALL_FAST = STRAGGLERS.replace("step_ms = 1000", "step_ms = 100")


def seconds(ran: Ran) -> float:
    """A round, on average: 160 updates."""
    return ran.rows[-1].time / (160 / 8)


def ended(toml: str, *settings: str) -> Ran:
    ran = run(fleet_of(toml, *settings))
    assert ran.result.ended == "complete"
    return ran


@pytest.mark.slow
def test_stragglers_hold_nobody_up_where_others_have_their_data() -> None:
    """Six devices compute eight shards in two steps, which is the least; with r = 1 a round takes the ten
    steps of the slowest.
    """
    usual, slowed = seconds(ended(ALL_FAST)), seconds(ended(STRAGGLERS))
    alone = seconds(ended(STRAGGLERS, "coordination.tasks=1"))
    assert alone == pytest.approx(1.0, rel=0.01)
    assert usual < 0.12, "who is slow is known once seen, and nothing is begun in vain"
    assert slowed < 0.25


@pytest.mark.slow
def test_a_round_that_needs_three_of_four_takes_no_longer_than_without_stragglers() -> None:
    settings = ("coordination.distinct=6",)
    usual = ended(ALL_FAST, *settings).rows[-1].time
    slowed = ended(STRAGGLERS, *settings).rows[-1].time
    assert slowed <= 1.3 * usual


def test_the_same_seed_gives_the_same_run() -> None:
    first, second = (ended(STRAGGLERS) for _ in "ab")
    assert first.result == second.result
    assert first.rows == second.rows


@pytest.mark.parametrize(
    "coding",
    [
        ("compression.indices=golomb", "compression.values=sign"),
        ("compression.indices=golomb", "compression.values=codebook4", "compression.feedback=0"),
        ("compression.select=1", "compression.values=f32", "downlink.mode=exact"),
        ("compression.threshold=0.5",),
    ],
)
def test_with_every_coding_rounds_are_whole(coding: tuple[str, ...]) -> None:
    result = ended(STRAGGLERS, *coding, "end.updates=40").result
    assert result.updates == 40
    assert sum(kind.updates for kind in result.classes.values()) == 40


def test_who_crashes_leaves_its_shards_to_the_others() -> None:
    result: FleetResult = run(
        fleet_of(ALL_FAST.replace("[devices.slow]", "[devices.slow]\ncrash = 0.5"), "end.updates=80"),
    ).result
    assert result.ended == "complete"
    assert result.classes["slow"].crashed == 2


def test_who_comes_and_goes_is_not_waited_for() -> None:
    toml = STRAGGLERS.replace("[devices.slow]", "[devices.slow]\nsession_s = 2\naway_s = 2")
    assert run(fleet_of(toml)).result.ended == "complete"


def test_local_steps_stop_where_the_round_ends() -> None:
    """A slow device's step takes a second: of ten, it takes no more than the one under way."""
    ran = ended(STRAGGLERS, "local.steps=10", "end.updates=80")
    assert ran.result.classes["slow"].updates == 0
    assert ran.rows[-1].time < 25


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        (["coordination.tasks=9"], "coordination.tasks = 9: there are only 8 shards"),
        (["fleet.holds=9"], "fleet.holds = 9: there are only 8 shards"),
        (
            ["coordination.mode=async", "fleet.holds=2"],
            "device of an emulated fleet holds; set coordination.mode = 'tasks'",
        ),
        (["devices.fast.rate=5"], "a stream is one device's alone"),
        (
            ["coordination.mode=async"],
            "it is the number of shards that a device computes in a round; set coordination.mode",
        ),
        (
            ["coordination.quorum=2"],
            "it is the number of devices whose updates end a round; set coordination.mode = 'rounds' or",
        ),
        (
            ["coordination.mode=rounds", "coordination.distinct=2"],
            "it is the number of tasks that end a round; set coordination.mode = 'tasks'",
        ),
        (["coordination.tasks=0"], "compute so many shards in a round; set coordination.tasks"),
        (["coordination.tasks=-1"], "coordination.tasks = '-1'"),
    ],
)
def test_what_cannot_be_is_named(settings: list[str], named: str) -> None:
    with pytest.raises(ConfigError) as error:
        fleet_of(STRAGGLERS, *settings)
    assert named in str(error.value)


def test_more_than_all_shards_are_all_shards() -> None:
    """k beyond what anybody holds: a round has what there is."""
    assert ended(STRAGGLERS, "coordination.distinct=100", "end.updates=40").result.updates == 40

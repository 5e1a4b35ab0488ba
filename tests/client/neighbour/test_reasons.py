"""What is a reason to pause, and until when."""

from pathlib import Path

import pytest

from edgeflock.client.neighbour import rules_of
from edgeflock.client.neighbour.reasons import MachineState, RestRules, Rules
from edgeflock.shared.errors import ConfigError


def reported(judge: RestRules, seen: MachineState, now: float = 100.0) -> str | None:
    return judge(seen, now)


def test_heat_and_supply_count_unless_they_are_turned_off() -> None:
    assert rules_of([]) == Rules(hot=80.0, undervoltage=True)
    assert rules_of(["battery", "owner"]) == Rules(battery=101, owner=True)
    assert rules_of(["hot:off", "undervoltage:off"]) == Rules(hot=None, undervoltage=False)
    assert rules_of(["hot:70", "battery:40", "metered", "file:/run/stop"]) == Rules(
        hot=70.0, battery=40, metered=True, file=Path("/run/stop")
    )


@pytest.mark.parametrize(
    "entry",
    [
        "heat",
        "hot",
        "hot:",
        "hot:200",
        "hot:x",
        "battery:0",
        "battery:101",
        "metered:1",
        "file:",
        "",
        "hours:",
        "hours:22-06",
        "hours:22:00",
    ],
)
def test_what_is_no_reason_names_those_there_are(entry: str) -> None:
    with pytest.raises(ConfigError, match="client.pause_on: .* is none of these: hot:80, .* file:PATH"):
        rules_of(["battery", entry])


def test_hot_until_it_is_five_degrees_below() -> None:
    judge = RestRules(Rules())
    assert reported(judge, MachineState(temperature=79.9)) is None
    assert reported(judge, MachineState(temperature=83.2)) == "hot: 83 C, until it has 75"
    assert reported(judge, MachineState(temperature=75.0)) == "hot: 75 C, until it has 75"
    assert reported(judge, MachineState(temperature=74.9)) is None
    assert reported(judge, MachineState(temperature=79.0)) is None


def test_a_weak_supply_until_it_was_strong_for_a_minute() -> None:
    judge = RestRules(Rules())
    assert reported(judge, MachineState(undervoltage=True), 10.0) == "under-voltage: its supply is too weak"
    assert reported(judge, MachineState(undervoltage=False), 69.9) is not None
    assert reported(judge, MachineState(undervoltage=False), 70.0) is None


def test_on_its_battery_until_it_charges() -> None:
    judge = RestRules(Rules(battery=40))
    assert reported(judge, MachineState(discharging=True, charge=40)) is None
    assert reported(judge, MachineState(discharging=True, charge=39)) == "on its battery, which has 39%"
    assert reported(judge, MachineState(discharging=False, charge=12)) is None
    full = RestRules(rules_of(["battery"]))
    assert reported(full, MachineState(discharging=True, charge=100)) == "on its battery, which has 100%"
    assert reported(full, MachineState(discharging=True)) == "on its battery"


@pytest.mark.parametrize(
    ("hours", "within", "without"),
    [
        ("hours:22:00-06:00", [22 * 60, 23 * 60 + 59, 0, 5 * 60 + 59], [6 * 60, 12 * 60, 21 * 60 + 59]),
        ("hours:9:30-17:00", [9 * 60 + 30, 16 * 60 + 59], [0, 9 * 60 + 29, 17 * 60, 23 * 60 + 59]),
    ],
)
def test_outside_its_hours_it_waits(hours: str, within: list[int], without: list[int]) -> None:
    judge = RestRules(rules_of([hours]))
    assert [reported(judge, MachineState(minute=minute)) for minute in within] == [None] * len(within)
    for minute in without:
        assert (reported(judge, MachineState(minute=minute)) or "").startswith("it trains from ")
    assert reported(RestRules(rules_of(["hours:9:30-17:00"])), MachineState(minute=0)) == (
        "it trains from 09:30 to 17:00, its local time"
    )


@pytest.mark.parametrize("entry", ["hours:24:00-06:00", "hours:22:60-06:00", "hours:06:00-06:00"])
def test_hours_that_are_no_times_are_named(entry: str) -> None:
    with pytest.raises(ConfigError, match="must be two different times"):
        rules_of([entry])


def test_what_the_owner_did_not_ask_for_is_no_reason() -> None:
    everything = MachineState(discharging=True, charge=3, metered=True, owner=True)
    assert reported(RestRules(Rules()), everything) is None
    assert reported(RestRules(Rules(metered=True)), everything) == "its link is metered"
    assert reported(RestRules(Rules(owner=True)), everything) == "somebody uses the machine"
    assert reported(RestRules(Rules(metered=True, owner=True)), MachineState()) is None
    off = RestRules(Rules(hot=None, undervoltage=False))
    assert reported(off, MachineState(temperature=99.0, undervoltage=True)) is None


def test_a_file_says_why_in_a_fact_s_length() -> None:
    judge = RestRules(Rules(file=Path("/run/stop")))
    assert reported(judge, MachineState(note="the sun is down")) == "the sun is down"
    assert reported(judge, MachineState(note="")) == "/run/stop is there"
    assert reported(judge, MachineState(note=None)) is None
    assert len(reported(judge, MachineState(note="x" * 1000)) or "") <= 100

"""What is a reason to pause, and until when."""

from pathlib import Path

import pytest

from edgeflock.client.neighbour import rules_of
from edgeflock.client.neighbour.reasons import Judge, Rules, Seen
from edgeflock.shared.errors import ConfigError


def told(judge: Judge, seen: Seen, now: float = 100.0) -> str | None:
    reason = judge(seen, now)
    return None if reason is None else reason.told


def test_heat_and_supply_count_unless_they_are_turned_off() -> None:
    assert rules_of([]) == Rules(hot=80.0, undervoltage=True)
    assert rules_of(["battery", "owner"]) == Rules(battery=101, owner=True)
    assert rules_of(["hot:off", "undervoltage:off"]) == Rules(hot=None, undervoltage=False)
    assert rules_of(["hot:70", "battery:40", "metered", "file:/run/stop"]) == Rules(
        hot=70.0, battery=40, metered=True, file=Path("/run/stop")
    )


@pytest.mark.parametrize(
    "entry", ["heat", "hot", "hot:", "hot:200", "hot:x", "battery:0", "battery:101", "metered:1", "file:", ""]
)
def test_what_is_no_reason_names_those_there_are(entry: str) -> None:
    with pytest.raises(ConfigError, match="client.pause_on: .* is none of these: hot:80, .* file:PATH"):
        rules_of(["battery", entry])


def test_hot_until_it_is_five_degrees_below() -> None:
    judge = Judge(Rules())
    assert told(judge, Seen(temperature=79.9)) is None
    assert told(judge, Seen(temperature=83.2)) == "hot: 83 C, until it has 75"
    assert told(judge, Seen(temperature=75.0)) == "hot: 75 C, until it has 75"
    assert told(judge, Seen(temperature=74.9)) is None
    assert told(judge, Seen(temperature=79.0)) is None


def test_a_weak_supply_until_it_was_strong_for_a_minute() -> None:
    judge = Judge(Rules())
    assert told(judge, Seen(undervoltage=True), 10.0) == "under-voltage: its supply is too weak"
    assert told(judge, Seen(undervoltage=False), 69.9) is not None
    assert told(judge, Seen(undervoltage=False), 70.0) is None


def test_on_its_battery_until_it_charges() -> None:
    judge = Judge(Rules(battery=40))
    assert told(judge, Seen(discharging=True, charge=40)) is None
    assert told(judge, Seen(discharging=True, charge=39)) == "on its battery, which has 39%"
    assert told(judge, Seen(discharging=False, charge=12)) is None
    full = Judge(rules_of(["battery"]))
    assert told(full, Seen(discharging=True, charge=100)) == "on its battery, which has 100%"
    assert told(full, Seen(discharging=True)) == "on its battery"


def test_what_the_owner_did_not_ask_for_is_no_reason() -> None:
    everything = Seen(discharging=True, charge=3, metered=True, owner=True)
    assert told(Judge(Rules()), everything) is None
    assert told(Judge(Rules(metered=True)), everything) == "its link is metered"
    assert told(Judge(Rules(owner=True)), everything) == "somebody uses the machine"
    assert told(Judge(Rules(metered=True, owner=True)), Seen()) is None
    off = Judge(Rules(hot=None, undervoltage=False))
    assert told(off, Seen(temperature=99.0, undervoltage=True)) is None


def test_a_file_says_why_in_a_fact_s_length() -> None:
    judge = Judge(Rules(file=Path("/run/stop")))
    assert told(judge, Seen(note="the sun is down")) == "the sun is down"
    assert told(judge, Seen(note="")) == "/run/stop is there"
    assert told(judge, Seen(note=None)) is None
    assert len(told(judge, Seen(note="x" * 1000)) or "") <= 100

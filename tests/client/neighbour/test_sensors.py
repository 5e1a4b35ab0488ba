"""What files of /sys say, and what D-Bus answers."""

import time
from pathlib import Path

import pytest

from edgeflock.client.neighbour.reasons import MachineState, Rules, Sensors
from edgeflock.shared.errors import ConfigError
from tests.client.test_health import LAPTOP, PI_4, tree

NOW = 1_000_000.0
QUIET = Rules(hot=None, undervoltage=False)


def nobody(*address: str) -> str | None:
    """No such service."""
    return None


def see(rules: Rules, root: Path, answer: str | None = None) -> MachineState:
    return Sensors(rules, root, lambda *address: answer, lambda: None)(NOW)


def test_a_raspberry_pi_s_heat_and_supply(tmp_path: Path) -> None:
    assert see(Rules(), tree(tmp_path, PI_4)) == MachineState(temperature=61.8, undervoltage=True)
    (tmp_path / "sys/class/hwmon/hwmon1/in0_lcrit_alarm").write_text("0\n")
    assert see(Rules(), tmp_path) == MachineState(temperature=61.8, undervoltage=False)
    assert see(QUIET, tmp_path) == MachineState()


def test_a_laptop_on_its_battery(tmp_path: Path) -> None:
    rules = Rules(undervoltage=False, battery=50)
    status = {"sys/class/power_supply/BAT1/status": "Discharging\n"}
    mouse = {"sys/class/power_supply/hidpp_battery_0/status": "Discharging\n"}
    assert see(rules, tree(tmp_path, LAPTOP, mouse)) == MachineState(temperature=55.2, charge=31)
    assert see(rules, tree(tmp_path, status)) == MachineState(temperature=55.2, discharging=True, charge=31)
    (tmp_path / "sys/class/power_supply/BAT1/status").write_text("Not charging\n")
    assert not see(rules, tmp_path).discharging


@pytest.mark.parametrize(
    ("answer", "metered"),
    [("u 1", True), ("u 3", True), ("u 2", False), ("u 4", False), ("u 0", None), ("", None), (None, None)],
)
def test_whether_networkmanager_calls_the_link_metered(
    answer: str | None, metered: bool | None, tmp_path: Path
) -> None:
    asked: list[tuple[str, ...]] = []

    def ask(*address: str) -> str | None:
        asked.append(address)
        return answer

    sensors = Sensors(Rules(hot=None, undervoltage=False, metered=True), tmp_path, ask)
    assert sensors(NOW) == MachineState(metered=metered)
    assert [address[-1] for address in asked] == ["Metered"]


@pytest.mark.parametrize("rules", [Rules(metered=True), Rules(owner=True)])
def test_a_rule_without_anybody_to_ask_is_said_at_once(
    rules: Rules, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="busctl, which is not on this machine: .* file:PATH"):
        Sensors(rules, tmp_path)


@pytest.mark.parametrize(("answer", "there"), [("b false", True), ("b true", False)])
def test_logind_knows_whether_somebody_is_there(answer: str, there: bool, tmp_path: Path) -> None:
    assert see(Rules(hot=None, undervoltage=False, owner=True), tmp_path, answer) == MachineState(owner=there)


def test_the_minute_of_the_local_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC-2")  # POSIX: two hours ahead of UTC
    time.tzset()
    try:
        assert Sensors(Rules(hours=(0, 60)), tmp_path)(1_000_000_000.0).minute == 3 * 60 + 46
    finally:
        monkeypatch.delenv("TZ")
        time.tzset()
    assert Sensors(Rules(), tmp_path)(0.0).minute is None


def test_the_first_line_of_a_file(tmp_path: Path) -> None:
    rules = Rules(hot=None, undervoltage=False, file=tmp_path / "stop")
    assert see(rules, tmp_path) == MachineState()
    (tmp_path / "stop").write_text("night\ttariff\x1b[2J\nand more")
    assert see(rules, tmp_path) == MachineState(note="night?tariff?[2J")

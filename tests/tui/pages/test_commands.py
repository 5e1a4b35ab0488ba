"""What is typed after a colon."""

import pytest

from edgeflock.shared.errors import ConfigError
from edgeflock.tui.pages.commands import USAGE, Command, find_devices, parse
from tests.tui.runs import state


@pytest.mark.parametrize(
    ("line", "command"),
    [
        ("pause", Command("pause")),
        (":pause pi-3", Command("pause", "pi-3")),
        ("pause pi-3  too hot ", Command("pause", "pi-3", "too hot")),
        ("RESUME Pi-3", Command("resume", "Pi-3")),
        ("drop pi-3", Command("drop", "pi-3")),
        ("pardon pi-3", Command("pardon", "pi-3")),
        ("open pi-3", Command("open", "pi-3")),
        ("rate", Command("rate")),
        ("rate 0.02", Command("rate", text="0.02")),
        ("checkpoint", Command("checkpoint")),
        ("rollback 640", Command("rollback", text="640")),
        ("filter state:paused | loss>2", Command("filter", text="state:paused | loss>2")),
        ("filter", Command("filter")),
        ("columns", Command("columns")),
        ("sort temp", Command("sort", text="temp")),
    ],
)
def test_what_a_line_means(line: str, command: Command) -> None:
    assert parse(line) == command


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("pasue pi-3", "no command 'pasue'; did you mean pause?"),
        ("xyz", "no command 'xyz'; known are pause, "),
        ("", "no command ''; known are"),
        ("drop pi-3 pi-4", "drop takes one device, not 'pi-3 pi-4': drop DEVICE"),
        ("checkpoint now", "checkpoint takes nothing, not 'now'"),
        ("rate fast", "rate 'fast' is not a number above 0: rate 0.02"),
        ("rate nan", "is not a number above 0"),
        ("rate -1", "is not a number above 0"),
        ("rollback -3", "rollback '-3' is not a version number: rollback VERSION"),
        ("sort", "sort by which column?"),
    ],
)
def test_what_is_no_command_is_told_in_a_line(line: str, complaint: str) -> None:
    with pytest.raises(ConfigError) as reported:
        parse(line)
    assert complaint in str(reported.value)
    assert "\n" not in str(reported.value)


def test_which_device_it_is_for() -> None:
    made = state(14, 5)
    chosen = next(row for row in made.devices.values() if row.name == "pi4-5")
    assert find_devices(Command("pause"), made, [chosen]) == [chosen]
    (named,) = find_devices(Command("pause", "pi4-10"), made, [chosen])
    assert named.name == "pi4-10"
    with pytest.raises(ConfigError, match="pause which device"):
        find_devices(Command("pause"), made, [])
    with pytest.raises(ConfigError, match="there is no device 'pi4-50'; did you mean pi4-5"):
        find_devices(Command("pause", "pi4-50"), made, [chosen])


def test_every_command_says_how_it_is_written() -> None:
    assert all(usage.split()[0] == verb for verb, usage in USAGE.items())

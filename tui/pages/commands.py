"""The commands after a `:`, such as `pause pi-3 too hot`: parsing of a line."""

import difflib
import math
from collections.abc import Sequence
from dataclasses import dataclass

from edgeflock.shared.errors import ConfigError
from edgeflock.shared.protocol.frames import DeviceRow
from edgeflock.tui.pages.fleet import hint
from edgeflock.tui.sources.state import MonitorState

ADMIN_VERBS = frozenset(("pause", "resume", "drop", "pardon", "rate", "checkpoint", "rollback"))
DEVICE_VERBS = frozenset(("pause", "resume", "drop", "pardon", "open"))
USAGE = {
    "pause": "pause DEVICE WHY",
    "resume": "resume DEVICE",
    "drop": "drop DEVICE",
    "pardon": "pardon DEVICE",
    "open": "open DEVICE",
    "rate": "rate 0.02",
    "checkpoint": "checkpoint",
    "rollback": "rollback VERSION",
    "filter": "filter state:paused",
    "columns": "columns state loss temp",
    "sort": "sort temp",
    "quit": "quit",
}
"""The usage of each command. Without a device, it is for the marked devices, or the chosen one. The screen
asks for a missing number.
"""


@dataclass(frozen=True, slots=True)
class Command:
    verb: str
    """A key of USAGE."""
    device: str | None = None
    """None means the chosen devices."""
    text: str = ""
    """The reason of a pause, a filter, columns, or the text of a number."""


def parse(line: str) -> Command:
    """Return the command of a line. Raises ConfigError with a one-line message if there is none."""
    word, _, rest = line.strip().removeprefix(":").strip().partition(" ")
    rest = rest.strip()
    verb = word.lower()
    if verb not in USAGE:
        raise ConfigError(f"there is no command {word!r}; {hint(verb, [*USAGE])}")
    if verb in DEVICE_VERBS:
        device, _, text = rest.partition(" ")
        if text and verb != "pause":
            raise ConfigError(f"{verb} takes one device, not {rest!r}: {USAGE[verb]}")
        return Command(verb, device or None, text.strip())
    if verb in ("checkpoint", "quit") and rest:
        raise ConfigError(f"{verb} takes nothing, not {rest!r}")
    if verb == "rate" and rest and not _is_rate(rest):
        raise ConfigError(f"rate {rest!r} is not a number above 0: {USAGE[verb]}")
    if verb == "rollback" and rest and not (rest.isascii() and rest.isdecimal()):
        raise ConfigError(f"rollback {rest!r} is not a version number: {USAGE[verb]}")
    if verb == "sort" and not rest:
        raise ConfigError(f"sort by which column? {USAGE[verb]}")
    return Command(verb, text=rest)


def find_devices(command: Command, state: MonitorState, chosen: Sequence[DeviceRow]) -> Sequence[DeviceRow]:
    """Return the devices that a command is for, at least one. Raises ConfigError if there is none."""
    if command.device is None:
        if not chosen:
            raise ConfigError(f"{command.verb} which device? {USAGE[command.verb]}")
        return chosen
    rows = {row.name: row for row in state.devices.values()}
    if command.device in rows:
        return [rows[command.device]]
    matches = difflib.get_close_matches(command.device, rows, n=1)
    guess = f"; did you mean {matches[0]}?" if matches else ""
    raise ConfigError(f"there is no device {command.device!r}{guess}")


def _is_rate(text: str) -> bool:
    try:
        return 0 < float(text) < math.inf
    except ValueError:
        return False

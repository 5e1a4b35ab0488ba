"""Rules for pausing: the reasons, and when each ends.

    hot:80             the processor has 80 C or more, until it has 75
    undervoltage       the supply is too weak, until it was strong enough for a minute
    battery:40         the machine runs on its battery, which has less than 40%; `battery`: at any charge
    metered            the network's traffic is charged
    owner              a person uses the machine
    file:PATH          the file exists; its first line is the reason
    hours:22:00-06:00  the local time is not within these hours, which may go over midnight

Sensors reads what they need, from small files and the system bus.
"""

import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from edgeflock.client.machine import (
    ROOT,
    Throttled,
    batteries,
    charge,
    highest_temperature,
    supply_of,
    text_of,
    thermal_zones,
)
from edgeflock.shared.errors import ConfigError

_HOT = 80.0
"""Degrees Celsius at which a Raspberry Pi slows down and a laptop's fan is audible."""

_COOLER = 5.0
"""Degrees below, at which training resumes,"""

_STEADY = 60.0
"""and seconds for which a supply has to be strong enough."""

_LONGEST = 90
"""Longest reason, in characters."""

_HOURS = re.compile(r"(\d{1,2}):(\d{2})-(\d{1,2}):(\d{2})", re.ASCII)

_ALL = "hot:80, hot:off, undervoltage:off, battery, battery:40, metered, owner, hours:22:00-06:00, file:PATH"


@dataclass(frozen=True, slots=True)
class Rules:
    """The conditions that pause a device.

    The first two protect the machine and apply by default. Its owner chooses the others.
    """

    hot: float | None = _HOT
    undervoltage: bool = True
    battery: int | None = None
    """Percent; 101: on its battery in any case."""
    metered: bool = False
    owner: bool = False
    file: Path | None = None
    hours: tuple[int, int] | None = None
    """The first minute of the local day in which it may train, and the first one in which it may not."""


@dataclass(frozen=True, slots=True)
class MachineState:
    """The machine's sensor values; None where unknown."""

    temperature: float | None = None
    undervoltage: bool | None = None
    discharging: bool = False
    charge: int | None = None
    metered: bool | None = None
    owner: bool | None = None
    note: str | None = None
    """The first line of the file."""
    minute: int | None = None
    """The minute of the local day, 0 to 1439."""


def rules_of(entries: Sequence[str]) -> Rules:
    """Parse client.pause_on. Raises ConfigError."""
    rules = Rules()
    for entry in entries:
        name, colon, value = entry.partition(":")
        match name, value:
            case "hot", "off":
                rules = replace(rules, hot=None)
            case "hot", number if _is_within(number, 30, 120):
                rules = replace(rules, hot=float(number))
            case "undervoltage", "" | "off":
                rules = replace(rules, undervoltage=not value)
            case "battery", "":
                rules = replace(rules, battery=101)
            case "battery", number if _is_within(number, 1, 100):
                rules = replace(rules, battery=int(number))
            case "metered", "":
                rules = replace(rules, metered=True)
            case "owner", "":
                rules = replace(rules, owner=True)
            case "file", path if path:
                rules = replace(rules, file=Path(path))
            case "hours", text if hours := _HOURS.fullmatch(text):
                rules = replace(rules, hours=_minutes(entry, *map(int, hours.groups())))
            case _:
                raise ConfigError(f"client.pause_on: {entry!r} is none of these: {_ALL}")
    return rules


class RestRules:
    """Decides from each state of the machine whether there is a reason to pause."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._hot = False
        self._weak_until = 0.0

    def __call__(self, seen: MachineState, now: float) -> str | None:
        """Return the first reason at `now`, for people, or None. `now` is in seconds, greater than 0."""
        rules = self._rules
        if seen.undervoltage:
            self._weak_until = now + _STEADY
        if rules.undervoltage and now < self._weak_until:
            return "under-voltage: its supply is too weak"
        if rules.hot is not None and seen.temperature is not None:
            self._hot = seen.temperature >= rules.hot - _COOLER * self._hot
            if self._hot:
                return f"hot: {seen.temperature:.0f} C, until it has {rules.hot - _COOLER:.0f}"
        if rules.battery is not None and seen.discharging and (seen.charge or 0) < rules.battery:
            has = "" if seen.charge is None else f", which has {seen.charge}%"
            return f"on its battery{has}"
        if rules.hours is not None and seen.minute is not None and not _is_in(rules.hours, seen.minute):
            start, stop = (f"{minute // 60:02}:{minute % 60:02}" for minute in rules.hours)
            return f"it trains from {start} to {stop}, its local time"
        if rules.metered and seen.metered:
            return "its link is metered"
        if rules.owner and seen.owner:
            return "somebody uses the machine"
        if seen.note is not None:
            return (seen.note or f"{rules.file} is there")[:_LONGEST]
        return None


def _minutes(entry: str, *times: int) -> tuple[int, int]:
    """Return the minutes of the day of (hour, minute, hour, minute). Raises ConfigError."""
    first, first_minute, last, last_minute = times
    start, stop = 60 * first + first_minute, 60 * last + last_minute
    if max(first, last) > 23 or max(first_minute, last_minute) > 59 or start == stop:
        raise ConfigError(
            f"client.pause_on: {entry!r} must be two different times of a day, e.g. hours:22:00-06:00"
        )
    return start, stop


def _is_in(hours: tuple[int, int], minute: int) -> bool:
    """Whether a minute of the day is within `hours`, which go over midnight if they end before they begin."""
    start, stop = hours
    return start <= minute < stop if start < stop else minute >= start or minute < stop


def _is_within(number: str, minimum: int, maximum: int) -> bool:
    return number.isascii() and number.isdecimal() and minimum <= int(number) <= maximum


_NETWORK = (
    "org.freedesktop.NetworkManager", "/org/freedesktop/NetworkManager", "org.freedesktop.NetworkManager",
    "Metered",
)  # fmt: skip
_LOGIN = ("org.freedesktop.login1", "/org/freedesktop/login1", "org.freedesktop.login1.Manager", "IdleHint")

_METERED = {"u 1": True, "u 3": True, "u 2": False, "u 4": False}
"""NMMetered: yes, guessed yes, no, guessed no; unknown is 0."""

_IN_USE = {"b true": False, "b false": True}
"""An IdleHint -> whether a person uses the machine."""

Ask = Callable[..., str | None]
"""(D-Bus service, object, interface, property) -> busctl's output, or None."""


class Sensors:
    """Reads the sensors that the rules need on each call. The constructor finds them."""

    def __init__(
        self, rules: Rules, root: Path = ROOT, ask: Ask | None = None, throttled: Throttled | None = None
    ) -> None:
        """`root` contains proc and sys. Raises ConfigError if the rules need a missing sensor."""
        self._rules = rules
        self._ask = ask or _busctl()
        if (rules.metered or rules.owner) and self._ask is None:
            raise ConfigError(
                "client.pause_on: metered and owner ask NetworkManager and logind by busctl, which is not on "
                "this machine: leave them out, or have a file say so: file:PATH"
            )
        self._zones = thermal_zones(root) if rules.hot is not None else []
        self._supply = supply_of(root, throttled) if rules.undervoltage else lambda: None
        self._batteries = batteries(root) if rules.battery is not None else []

    def __call__(self, now: float) -> MachineState:
        """Read the state of the machine. `now` is Unix time."""
        rules = self._rules
        weak = self._supply()
        return MachineState(
            temperature=highest_temperature(map(text_of, self._zones)),
            undervoltage=None if weak is None else bool(weak),
            discharging=discharging(text_of(battery.with_name("status")) for battery in self._batteries),
            charge=charge(map(text_of, self._batteries)),
            metered=_METERED.get(self._property(_NETWORK)) if rules.metered else None,
            owner=_IN_USE.get(self._property(_LOGIN)) if rules.owner else None,
            note=None if rules.file is None else first_line(rules.file),
            minute=None if rules.hours is None else minute_of(now),
        )

    def _property(self, address: Iterable[str]) -> str:
        return (self._ask(*address) if self._ask is not None else None) or ""


def minute_of(now: float) -> int:
    """Return the minute of the local day, 0 to 1439, at a Unix time."""
    local = time.localtime(now)
    return 60 * local.tm_hour + local.tm_min


def discharging(statuses: Iterable[str | None]) -> bool:
    """Whether the machine runs on its batteries."""
    return any(status == "Discharging" for status in statuses)


def first_line(file: Path) -> str | None:
    """None if there is no such file."""
    try:
        with file.open(errors="replace") as opened:
            line = opened.readline(1000).strip()
    except OSError:
        return None
    return "".join(character if character.isprintable() else "?" for character in line)


def _busctl() -> Ask | None:
    path = shutil.which("busctl")
    if path is None:
        return None

    def run(*address: str) -> str | None:
        with suppress(OSError, subprocess.SubprocessError):
            done = subprocess.run(
                [path, "--system", "--timeout=2", "get-property", *address],
                capture_output=True, text=True, timeout=5,
            )  # fmt: skip
            return done.stdout.strip()
        return None

    return run

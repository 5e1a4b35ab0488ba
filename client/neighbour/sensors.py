"""Reads heat, supply, battery, link and owner, from small files and two D-Bus properties."""

import shutil
import subprocess
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
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
from edgeflock.client.neighbour.reasons import MachineState, Rules
from edgeflock.shared.errors import ConfigError

_IDLE = 300.0
"""Seconds without a key after which a terminal counts as idle, on systems without logind."""

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
        """`root` contains proc, sys and dev. Raises ConfigError if the rules need a missing sensor."""
        self._rules, self._root = rules, root
        self._ask = ask or _busctl()
        if rules.metered and self._ask is None:
            raise ConfigError(
                "client.pause_on: metered asks NetworkManager by busctl, which is not on this machine: leave "
                "it out, or have a file say so: file:PATH"
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
            owner=self._is_in_use(now) if rules.owner else None,
            note=None if rules.file is None else first_line(rules.file),
            minute=None if rules.hours is None else minute_of(now),
        )

    def _is_in_use(self, now: float) -> bool:
        in_use = _IN_USE.get(self._property(_LOGIN))
        return now - last_key(self._root) < _IDLE if in_use is None else in_use

    def _property(self, address: Iterable[str]) -> str:
        return (self._ask(*address) if self._ask is not None else None) or ""


def minute_of(now: float) -> int:
    """Return the minute of the local day, 0 to 1439, at a Unix time."""
    local = time.localtime(now)
    return 60 * local.tm_hour + local.tm_min


def discharging(statuses: Iterable[str | None]) -> bool:
    """Whether the machine runs on its batteries."""
    return any(status == "Discharging" for status in statuses)


def last_key(root: Path) -> float:
    """Return the Unix time of the last key press at a terminal, from its atime, within 8 seconds."""
    newest = 0.0
    for terminal in (*(root / "dev/pts").glob("[0-9]*"), *(root / "dev").glob("tty[0-9]*")):
        with suppress(OSError):
            newest = max(newest, terminal.stat().st_atime)
    return newest


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

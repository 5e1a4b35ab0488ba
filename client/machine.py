"""This machine: its health (load, memory, temperature, battery, supply), its kind and its default name.

On Linux it reads a few small files in /proc and /sys, in less than a millisecond and with little memory.
Elsewhere it uses psutil. The default name of a device is its host name and an id that differs between cloned
machines.
"""

import hashlib
import shutil
import socket
import subprocess
import time
import uuid
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from edgeflock.shared.protocol.messages import Facts

ROOT = Path("/")

_PLAUSIBLE = (-40.0, 150.0)
"""Degrees Celsius: sensors that are off say 0 K, or nothing at all."""

_PROCESSORS = ("cpu", "gpu", "soc", "pkg")
"""Parts of the names of relevant thermal zones. Others, of chargers or radios, count only without these."""

_UNDER_VOLTAGE, _SLOWED = 0x1, 0xE
"""Bits of the Raspberry Pi firmware's get_throttled: the supply is too weak right now; its processor is
slowed down right now (a capped frequency, throttled, at its soft limit of temperature)."""

_CLASSES = (
    ("raspberry pi zero 2", "raspberry-pi-zero-2w"),
    ("raspberry pi zero", "raspberry-pi-zero"),
    *(
        (f"raspberry pi {kind}{n}", f"raspberry-pi-{n}")
        for n in (5, 4, 3, 2)
        for kind in ("", "compute module ")
    ),
    # The first ones have no number.
    ("raspberry pi model", "raspberry-pi-1"),
    ("raspberry pi compute module rev", "raspberry-pi-1"),
    ("thor", "jetson-thor"),
    ("orin", "jetson-orin"),
    ("xavier", "jetson-xavier"),
    ("jetson nano", "jetson-nano"),
    *((f"jetson {kind}", f"jetson-{kind}") for kind in ("tx2", "tx1")),
    ("quill", "jetson-tx2"),  # as L4T before release 32 calls it
    ("orange pi", "orange-pi"),
    ("orangepi", "orange-pi"),
    ("rock 5", "rock-5"),
)
"""A part of the device tree's model -> class."""

_LAPTOPS = {"8", "9", "10", "14", "31", "32"}
"""Chassis types of the System Management BIOS: portable, laptop, notebook, sub notebook, convertible, ..."""

Throttled = Callable[[], str | None]
"""What `vcgencmd get_throttled` prints, if there is one."""


class DeviceHealth:
    """Measures the device's health on each call. The constructor finds the sensors."""

    def __init__(
        self, root: Path = ROOT, throttled: Throttled | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        """`root` contains proc and sys. The server compares `clock` with its own clock."""
        self._clock = clock
        self._stat, self._memory = root / "proc/stat", root / "proc/meminfo"
        self._zones = thermal_zones(root)
        self._batteries = batteries(root)
        self._supply = supply_of(root, throttled)
        self._slowed = slowdown_of(throttled)
        self._busy, self._total = cpu_times(text_of(self._stat))

    def __call__(self) -> Facts:
        if not self._stat.exists():
            return from_psutil()
        facts: dict[str, float | int | None] = {
            "cpu": self._load(),
            "ram": memory_used(self._memory),
            "temperature": highest_temperature(map(text_of, self._zones)),
            "battery": charge(map(text_of, self._batteries)),
            "undervoltage": self._supply(),
            "throttled": self._slowed(),
            "clock": int(self._clock()),
        }
        return {name: value for name, value in facts.items() if value is not None}

    def _load(self) -> float | None:
        """Return the load in percent of all cores since the previous call."""
        busy, total = cpu_times(text_of(self._stat))
        passed, worked = total - self._total, busy - self._busy
        self._busy, self._total = busy, total
        return round(100 * worked / passed, 1) if passed > 0 else None


def device_class(root: Path = ROOT) -> str | None:
    """Return the class, e.g. raspberry-pi-4, jetson-nano or laptop; None if it is unknown."""
    model = (text_of(root / "proc/device-tree/model") or "").lower()
    for part, name in _CLASSES:
        if part in model:
            return name
    return "laptop" if text_of(root / "sys/class/dmi/id/chassis_type") in _LAPTOPS else None


def cpu_times(stat: str | None) -> tuple[int, int]:
    """(busy, all) ticks of all cores, from /proc/stat; (0, 0) if there is none."""
    words = (stat or "").split("\n", 1)[0].split()
    if len(words) < 6 or words[0] != "cpu":
        return 0, 0
    # user nice system idle iowait irq softirq steal; what follows, of guests, is in user and nice already.
    ticks = [int(word) for word in words[1:9]]
    return sum(ticks) - ticks[3] - ticks[4], sum(ticks)


def memory_used(meminfo: Path) -> int | None:
    """Return the MiB of memory that are not available to programs, from /proc/meminfo."""
    octets = _memory(meminfo)
    return (octets["MemTotal"] - octets["MemAvailable"]) >> 20 if len(octets) == 2 else None


def memory_of(root: Path = ROOT) -> int:
    """Bytes of memory that this machine has."""
    if (total := _memory(root / "proc/meminfo").get("MemTotal")) is not None:
        return total
    import psutil

    total = psutil.virtual_memory().total
    return int(total)


def _memory(meminfo: Path) -> dict[str, int]:
    """Return the bytes of MemTotal and of MemAvailable, as far as the file has them."""
    lines = (line.partition(":") for line in (text_of(meminfo) or "").splitlines())
    return {
        name: 1024 * int(rest.split()[0]) for name, _, rest in lines if name in ("MemTotal", "MemAvailable")
    }


def thermal_zones(root: Path) -> list[Path]:
    """The files of the temperatures that count."""
    zones = sorted((root / "sys/class/thermal").glob("thermal_zone*"))
    # A Jetson's PMIC always says 100.
    zones = [zone for zone in zones if "pmic" not in (text_of(zone / "type") or "").lower()]
    processors = [
        zone for zone in zones if any(part in (text_of(zone / "type") or "").lower() for part in _PROCESSORS)
    ]
    found = [zone / "temp" for zone in processors or zones]
    if not found:  # some laptops' processors are no thermal zone
        for name in ("k10temp", "coretemp"):
            found += [hwmon / "temp1_input" for hwmon in _find_named(root, "class/hwmon/hwmon*", name)]
    return found


def highest_temperature(millidegrees: Iterable[str | None]) -> float | None:
    """Degrees Celsius."""
    low, high = _PLAUSIBLE
    degrees = (number / 1000 for text in millidegrees if (number := _whole(text)) is not None)
    return max((round(d, 1) for d in degrees if low < d < high), default=None)


def batteries(root: Path) -> list[Path]:
    """Return the charge files of the device's own batteries, without those of e.g. mice."""
    return [
        supply / "capacity"
        for supply in sorted((root / "sys/class/power_supply").glob("*"))
        if text_of(supply / "type") == "Battery" and text_of(supply / "scope") != "Device"
    ]


def charge(percent: Iterable[str | None]) -> int | None:
    """Return the lowest charge, in percent."""
    return min((number for text in percent if (number := _whole(text)) is not None), default=None)


def supply_of(root: Path, throttled: Throttled | None = None) -> Callable[[], int | None]:
    """Return a function that reads whether the supply is too weak now: 1 or 0, or None if unknown."""
    for hwmon in _find_named(root, "class/hwmon/hwmon*", "rpi_volt"):
        return lambda: _whole(text_of(hwmon / "in0_lcrit_alarm"))
    ask = throttled or _vcgencmd()
    return lambda: _flagged(ask, _UNDER_VOLTAGE)


def slowdown_of(throttled: Throttled | None = None) -> Callable[[], int | None]:
    """Return a function that reads whether the processor is slowed down, as `supply_of`."""
    ask = throttled or _vcgencmd()
    return lambda: _flagged(ask, _SLOWED)


def _flagged(ask: Throttled | None, bits: int) -> int | None:
    """Return 1 if any of `bits` is set in the firmware's answer, e.g. throttled=0x50005, else 0."""
    try:
        return int(int(((ask() if ask else None) or "").strip().removeprefix("throttled="), 16) & bits > 0)
    except ValueError:
        return None


def from_psutil() -> Facts:
    """Measure with psutil, on systems without /proc."""
    import psutil

    facts: Facts = {
        "cpu": psutil.cpu_percent(),
        "ram": (psutil.virtual_memory().total - psutil.virtual_memory().available) >> 20,
        "clock": int(time.time()),
    }
    with suppress(AttributeError, NotImplementedError, OSError):  # as the platform has it
        battery = psutil.sensors_battery()
        if battery is not None:
            facts["battery"] = round(battery.percent)
    return facts


def _vcgencmd() -> Throttled | None:
    path = shutil.which("vcgencmd")
    if path is None:
        return None

    def run() -> str | None:
        try:
            return subprocess.run([path, "get_throttled"], capture_output=True, text=True, timeout=1).stdout
        except (OSError, subprocess.SubprocessError):
            return None

    return run


def _find_named(root: Path, pattern: str, name: str) -> list[Path]:
    return [path for path in sorted((root / "sys").glob(pattern)) if text_of(path / "name") == name]


def text_of(path: Path) -> str | None:
    """Return the file's text, or None if it cannot be read."""
    try:
        return path.read_text(errors="replace").strip(" \t\n\0")
    except OSError:
        return None


def _whole(text: str | None) -> int | None:
    try:
        return int(text or "")
    except ValueError:
        return None


_SERIAL = "sys/firmware/devicetree/base/serial-number"
"""Serial number of a Raspberry Pi and other boards."""

_CHARACTERS = 6


def default_name(root: Path = Path("/")) -> str:
    """Return the host name and a short machine id. `root` contains the system's files."""
    return f"{socket.gethostname()[:150]}-{machine_id(root)}"


def machine_id(root: Path) -> str:
    """Return six hexadecimal digits from the board's serial number and its network addresses.

    /etc/machine-id is equal on cloned cards, so it is used only if the others are missing.
    """
    cards = sorted((root / "sys/class/net").glob("*/device/../address"))
    found = [octets for path in (root / _SERIAL, *cards) if (octets := _read(path))]
    octets = b"\n".join(found) or _read(root / "etc/machine-id") or uuid.getnode().to_bytes(6, "big")
    return hashlib.sha256(octets).hexdigest()[:_CHARACTERS]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes().strip(b"\0\n ")
    except OSError:
        return b""

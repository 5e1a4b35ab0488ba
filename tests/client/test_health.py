"""A device's health from /proc and /sys as real machines have them, and its way to the operators."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from edgeflock.client.machine import DeviceHealth, device_class, from_psutil

STAT = "cpu  {user} 0 {system} {idle} {iowait} 0 0 0 0 0\ncpu0 1 2 3 4 5 6 7 8 9 10\nintr 5\n"
MEMORY = (
    "MemTotal:        3884332 kB\nMemFree:          118208 kB\nMemAvailable:    3211260 kB\nBuffers: 1 kB\n"
)
NOW = 1_766_000_000.7
IDLE = {"proc/stat": STAT.format(user=100, system=50, idle=850, iowait=0), "proc/meminfo": MEMORY}

PI_4 = {
    "proc/device-tree/model": "Raspberry Pi 4 Model B Rev 1.4\0",
    "sys/class/thermal/thermal_zone0/type": "cpu-thermal\n",
    "sys/class/thermal/thermal_zone0/temp": "61835\n",
    "sys/class/hwmon/hwmon0/name": "cpu_thermal\n",
    "sys/class/hwmon/hwmon0/temp1_input": "61835\n",
    "sys/class/hwmon/hwmon1/name": "rpi_volt\n",
    "sys/class/hwmon/hwmon1/in0_lcrit_alarm": "1\n",
}
JETSON_NANO = {
    "proc/device-tree/model": "NVIDIA Jetson Nano Developer Kit\0",
    "sys/class/thermal/thermal_zone0/type": "AO-therm\n",
    "sys/class/thermal/thermal_zone0/temp": "68000\n",
    "sys/class/thermal/thermal_zone1/type": "CPU-therm\n",
    "sys/class/thermal/thermal_zone1/temp": "41500\n",
    "sys/class/thermal/thermal_zone2/type": "GPU-therm\n",
    "sys/class/thermal/thermal_zone2/temp": "43000\n",
    "sys/class/thermal/thermal_zone4/type": "PMIC-Die\n",
    "sys/class/thermal/thermal_zone4/temp": "100000\n",
    "sys/class/hwmon/hwmon0/name": "ina3221x\n",
}
LAPTOP = {
    "sys/class/dmi/id/chassis_type": "10\n",
    "sys/class/power_supply/AC/type": "Mains\n",
    "sys/class/power_supply/BAT0/type": "Battery\n",
    "sys/class/power_supply/BAT0/capacity": "87\n",
    "sys/class/power_supply/BAT1/type": "Battery\n",
    "sys/class/power_supply/BAT1/capacity": "31\n",
    "sys/class/power_supply/hidpp_battery_0/type": "Battery\n",
    "sys/class/power_supply/hidpp_battery_0/scope": "Device\n",
    "sys/class/power_supply/hidpp_battery_0/capacity": "5\n",
    "sys/class/hwmon/hwmon3/name": "k10temp\n",
    "sys/class/hwmon/hwmon3/temp1_input": "55250\n",
}


def tree(root: Path, *parts: Mapping[str, str]) -> Path:
    for part in parts:
        for name, text in part.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
    return root


def health(root: Path, throttled: str | None = None) -> dict[str, object]:
    """After a quarter of the time went into work since the start."""
    asked = DeviceHealth(root, (lambda: throttled) if throttled is not None else None, lambda: NOW)
    (root / "proc/stat").write_text(STAT.format(user=140, system=60, idle=950, iowait=50))
    return dict(asked())


def test_a_raspberry_pi(tmp_path: Path) -> None:
    root = tree(tmp_path, IDLE, PI_4)
    assert device_class(root) == "raspberry-pi-4"
    assert health(root) == {
        "cpu": 25.0,
        "ram": 657,
        "temperature": 61.8,
        "undervoltage": 1,
        "clock": int(NOW),
    }
    (root / "sys/class/hwmon/hwmon1/in0_lcrit_alarm").write_text("0\n")
    assert DeviceHealth(root)()["undervoltage"] == 0


@pytest.mark.parametrize(
    ("reported", "expected"),
    [("throttled=0x50005\n", 1), ("throttled=0x50000\n", 0), ("throttled=0x0\n", 0), ("error=1\n", None)],
)
def test_a_raspberry_pi_of_an_older_kernel(tmp_path: Path, reported: str, expected: int | None) -> None:
    root = tree(tmp_path, IDLE, {name: text for name, text in PI_4.items() if "hwmon1" not in name})
    assert health(root, reported).get("undervoltage") == expected


def test_a_jetson(tmp_path: Path) -> None:
    root = tree(tmp_path, IDLE, JETSON_NANO)
    assert device_class(root) == "jetson-nano"
    assert health(root) == {"cpu": 25.0, "ram": 657, "temperature": 43.0, "clock": int(NOW)}


def test_a_laptop(tmp_path: Path) -> None:
    root = tree(tmp_path, IDLE, LAPTOP)
    assert device_class(root) == "laptop"
    assert health(root) == {"cpu": 25.0, "ram": 657, "temperature": 55.2, "battery": 31, "clock": int(NOW)}


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("Raspberry Pi 5 Model B Rev 1.0", "raspberry-pi-5"),
        ("Raspberry Pi Compute Module 4 Rev 1.1", "raspberry-pi-4"),
        ("Raspberry Pi Zero 2 W Rev 1.0", "raspberry-pi-zero-2w"),
        ("NVIDIA Jetson Orin Nano Developer Kit", "jetson-orin"),
        ("NVIDIA Jetson Xavier NX Developer Kit", "jetson-xavier"),
        ("Raspberry Pi Model B Plus Rev 1.2", "raspberry-pi-1"),
        ("Raspberry Pi Compute Module Rev 1.0", "raspberry-pi-1"),
        ("Raspberry Pi 3 Model B Plus Rev 1.3", "raspberry-pi-3"),
        ("Raspberry Pi Zero W Rev 1.1", "raspberry-pi-zero"),
        ("NVIDIA Jetson TX2 Developer Kit", "jetson-tx2"),
        ("quill", "jetson-tx2"),
        ("NVIDIA Jetson AGX Thor Developer Kit", "jetson-thor"),
        ("Xunlong Orange Pi PC", "orange-pi"),
        ("OrangePi 5 Plus", "orange-pi"),
        ("Radxa ROCK 5 Model B", "rock-5"),
        ("Pine64 RockPro64 v2.1", None),
    ],
)
def test_what_kind_of_machine(tmp_path: Path, model: str, expected: str | None) -> None:
    assert device_class(tree(tmp_path, {"proc/device-tree/model": model + "\0"})) == expected


def test_sensors_that_say_nothing(tmp_path: Path) -> None:
    root = tree(tmp_path, IDLE, JETSON_NANO, LAPTOP)
    for zone, text in ((1, "-256000\n"), (2, "\n")):
        (root / f"sys/class/thermal/thermal_zone{zone}/temp").write_text(text)
    (root / "sys/class/power_supply/BAT0/capacity").unlink()
    (root / "sys/class/power_supply/BAT1/capacity").write_text("unknown\n")
    (root / "proc/meminfo").write_text("MemTotal: 5 kB\n")
    assert health(root) == {"cpu": 25.0, "clock": int(NOW)}


def test_a_machine_without_proc(tmp_path: Path) -> None:
    pytest.importorskip("psutil")
    assert DeviceHealth(tmp_path)().keys() >= {"cpu", "ram"}
    assert isinstance(from_psutil()["ram"], int)

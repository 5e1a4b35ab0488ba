"""A Raspberry Pi 4 that is not there: its processor is qemu's, its sensors are files."""

import os
import subprocess
from pathlib import Path
from typing import IO

_CPU = """\
processor\t: {n}
BogoMIPS\t: 108.00
Features\t: fp asimd evtstrm crc32 cpuid
CPU implementer\t: 0x41
CPU architecture: 8
CPU variant\t: 0x0
CPU part\t: 0xd08
CPU revision\t: 3

"""
"""qemu 7 shows programs the processor of the machine it runs on, over which onnxruntime stumbles."""

FACTS = {
    "proc/cpuinfo": "".join(_CPU.format(n=n) for n in range(4))
    + "Model\t\t: Raspberry Pi 4 Model B Rev 1.4\n",
    "proc/device-tree/model": "Raspberry Pi 4 Model B Rev 1.4\0",
    "sys/devices/system/cpu/possible": "0-3\n",
    "sys/devices/system/cpu/present": "0-3\n",
    "sys/firmware/devicetree/base/serial-number": "10000000a1b2c3d4\0",
    "sys/class/thermal/thermal_zone0/type": "cpu-thermal\n",
    "sys/class/thermal/thermal_zone0/temp": "51608\n",
    "sys/class/hwmon/hwmon1/name": "rpi_volt\n",
    "sys/class/hwmon/hwmon1/in0_lcrit_alarm": "0\n",
}

ALARM = "sys/class/hwmon/hwmon1/in0_lcrit_alarm"
"""1 while its supply is too weak."""

_ENTER = 'mount -t proc proc "$1/.proc" && cd "$1" && exec chroot "$@"'

_PASSED = (
    "PIP_INDEX_URL",
    "PIP_EXTRA_INDEX_URL",
    "PIP_DEFAULT_TIMEOUT",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "NO_PROXY",
)

_CERTIFICATES = "etc/ssl/certs/ca-certificates.crt"

STATE = "/var/lib/edgeflock-client"


class Pi:
    """A machine in a folder. What runs on it shares this machine's network, and sees its processes."""

    def __init__(self, base: Path, root: Path) -> None:
        """`root` becomes a copy of `base`."""
        self.root = root
        subprocess.run(["cp", "-a", "--reflink=auto", str(base), str(root)], check=True)
        (root / ".proc").mkdir()
        for name in ("proc", "sys"):
            for left in (root / name).iterdir():
                left.rmdir()
        for path in Path("/proc").iterdir():
            if not path.name.isdecimal() and f"proc/{path.name}" not in FACTS and path.name != "device-tree":
                (root / "proc" / path.name).symlink_to(f"/.proc/{path.name}")
        for name, text in FACTS.items():
            self.tell(name, text)
        for name in ("etc/resolv.conf", "etc/hosts", _CERTIFICATES):
            (root / name).write_bytes(Path("/", name).read_bytes())

    def tell(self, name: str, text: str) -> None:
        """From now on the file says so."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def run(self, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
        """As root, to its end."""
        return subprocess.run(self._command(words, "root", more), capture_output=True, text=True)

    def start(self, *words: str, log: IO[bytes]) -> "subprocess.Popen[bytes]":
        """As the service does it, and as its user; what it says goes to `log`."""
        command = self._command(words, "edgeflock", {"HOME": STATE})
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def _command(self, words: tuple[str, ...], user: str, more: dict[str, str]) -> list[str]:
        """Of one process, which gets the signals: every part gives way to the next."""
        given = {name: os.environ[name] for name in _PASSED if name in os.environ}
        environ = {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": "/root",
            "LANG": "C.UTF-8",
            **given,
            **more,
        }
        alike = ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups", "--"]
        inside = ["env", "-i", *(f"{name}={value}" for name, value in environ.items()), *alike, *words]
        enter = ["unshare", "--mount", "--propagation", "private", "sh", "-c", _ENTER, "sh", str(self.root)]
        return ["nice", "-n", "10", *enter, *inside]

"""A bad line: two network namespaces, and a process between them that delays, loses or withholds packets.

Each namespace has one TUN device, whose other end is a file descriptor here. What is written to one is read
from the other, so that TCP itself meets what happens: packets that are lost are really sent again. It needs
root, `ip` and /dev/net/tun.
"""

import asyncio
import fcntl
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

SERVER_ADDRESS, DEVICE_ADDRESS = "10.213.7.1", "10.213.7.2"

_TUN = Path("/dev/net/tun")
_TUNSETIFF = 0x400454CA
_IFF_TUN, _IFF_NO_PI = 0x0001, 0x1000
_LONGEST_PACKET = 65_535


def missing() -> str:
    """What is not there that a bad line needs; empty if nothing."""
    if os.geteuid():
        return "root, to make network namespaces"
    if shutil.which("ip") is None:
        return "the command ip"
    return "" if _TUN.exists() else str(_TUN)


@dataclass(slots=True)
class Weather:
    """What the line does to packets, both ways. May be changed at any time."""

    delay: float = 0.0
    """Seconds, one way."""
    loss: float = 0.0
    """The probability that a packet is lost."""
    cut: bool = False
    """Whether nothing passes at all, without a word to either end."""


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line between a namespace for the server and one for devices."""

    weather: Weather
    server: tuple[str, ...]
    """What to put before a command that is to run at the server's end."""
    device: tuple[str, ...]
    """The same for devices."""


@contextmanager
def bad_line(seed: int = 0) -> Iterator[BadLine]:
    """A line in fair weather. Use within a running event loop: packets pass when that runs."""
    weather, random = Weather(), Random(seed)
    loop = asyncio.get_running_loop()
    ends = []
    with ExitStack() as opened:
        for side, (own, other) in {
            "s": (SERVER_ADDRESS, DEVICE_ADDRESS),
            "d": (DEVICE_ADDRESS, SERVER_ADDRESS),
        }.items():
            name = f"bad-{os.getpid()}-{side}"
            _ip("netns", "add", name)
            opened.callback(_ip, "netns", "del", name)
            descriptor = _tun(name)
            opened.callback(os.close, descriptor)
            _ip("link", "set", name, "netns", name)
            _ip("-n", name, "addr", "add", own, "peer", other, "dev", name)
            for device in ("lo", name):
                _ip("-n", name, "link", "set", device, "up")
            ends.append((name, descriptor))
        for (_, source), (_, target) in (ends, ends[::-1]):
            loop.add_reader(source, _forward, loop, source, target, weather, random)
            opened.callback(loop.remove_reader, source)
        prefixes = [("ip", "netns", "exec", name) for name, _ in ends]
        yield BadLine(weather, prefixes[0], prefixes[1])


def _forward(
    loop: asyncio.AbstractEventLoop, source: int, target: int, weather: Weather, random: Random
) -> None:
    packet = os.read(source, _LONGEST_PACKET)
    if weather.cut or random.random() < weather.loss:
        return
    loop.call_later(weather.delay, _deliver, target, packet)


def _deliver(target: int, packet: bytes) -> None:
    try:
        os.write(target, packet)
    except OSError:
        pass  # the line has ended, or is down: a packet more that is lost


def _tun(name: str) -> int:
    descriptor = os.open(_TUN, os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(descriptor, _TUNSETIFF, struct.pack("16sH14x", name.encode(), _IFF_TUN | _IFF_NO_PI))
    return descriptor


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)

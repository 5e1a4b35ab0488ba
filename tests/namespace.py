"""Runs a program in a network of its own, where a name server knows no name, and prints each name asked for.

unshare -rnmpf --kill-child python -m tests.namespace PROGRAM ...
"""

import fcntl
import socket
import struct
import subprocess
import sys
import tempfile
from threading import Thread

_GET_FLAGS, _SET_FLAGS, _UP = 0x8913, 0x8914, 1
"""SIOCGIFFLAGS, SIOCSIFFLAGS and IFF_UP of netdevice(7)."""

_NO_SUCH_NAME = b"\x81\x83"


def _loopback_up() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        name, flags, rest = struct.unpack(
            "16sH14s", fcntl.ioctl(any_socket, _GET_FLAGS, struct.pack("16sH14s", b"lo", 0, b""))
        )
        fcntl.ioctl(any_socket, _SET_FLAGS, struct.pack("16sH14s", name, flags | _UP, rest))


def _name_in(packet: bytes) -> str:
    """The name of a DNS question (RFC 1035, section 4.1.2)."""
    labels, at = [], 12
    while length := packet[at]:
        labels.append(packet[at + 1 : at + 1 + length].decode())
        at += 1 + length
    return ".".join(labels)


def _answer(server: socket.socket) -> None:
    while True:
        packet, source = server.recvfrom(512)
        print("asked for", _name_in(packet), flush=True)
        server.sendto(packet[:2] + _NO_SUCH_NAME + packet[4:], source)


def main() -> int:
    _loopback_up()
    with (
        tempfile.NamedTemporaryFile("w") as resolver,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server,
    ):
        print("nameserver 127.0.0.1", file=resolver, flush=True)
        subprocess.run(["mount", "--bind", resolver.name, "/etc/resolv.conf"], check=True)
        server.bind(("127.0.0.1", 53))
        Thread(target=_answer, args=(server,), daemon=True).start()
        return subprocess.run(sys.argv[1:]).returncode


if __name__ == "__main__":
    sys.exit(main())

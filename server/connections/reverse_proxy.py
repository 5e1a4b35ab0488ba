"""The server of several runs that forwards connections to the server of this one, in a process of its own."""

import ctypes
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import MutableMapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

VARIABLE = "EDGEFLOCK_REVERSE_PROXY"
"""The environment variable with a `ReverseProxy` as JSON."""

_PR_SET_PDEATHSIG = 1
"""Asks Linux for a signal once the parent process ends: prctl(2)."""

_END_SECONDS = 20.0
"""Seconds for a clean end, once the server of several runs is gone."""


@dataclass(frozen=True, slots=True)
class ReverseProxy:
    """What the server of one run knows of the server in front of it, which started it."""

    socket_path: str
    """The Unix socket to listen on."""
    url: str
    """The run's URL, as devices and operators see it."""
    pin: str
    """The pin of the public key that devices see, in hex; empty: they compare none."""
    secure: bool
    """Whether TLS ends there."""
    log_is_private: bool = True
    """Whether only the operator reads what the process prints."""

    @classmethod
    def take_from(cls, environ: MutableMapping[str, str]) -> Self | None:
        """Return the server in front, if one started this process. The process's own children have none."""
        text = environ.pop(VARIABLE, None)
        return None if text is None else cls(**json.loads(text))

    def environment(self) -> dict[str, str]:
        """Return the environment variable to start the server of the run with."""
        return {VARIABLE: json.dumps(asdict(self))}

    @property
    def path(self) -> str:
        """The path of the run's page at the server in front."""
        return "/" + self.url.split("/", 3)[3] + "/"

    def listen(self) -> list[socket.socket]:
        """Return the listening socket, in a list, as `Standby.sockets` holds it."""
        Path(self.socket_path).unlink(missing_ok=True)
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listening.setblocking(False)
        listening.bind(self.socket_path)
        return [listening]

    def end_with_it(self) -> None:
        """End this process as SIGTERM does once standard input ends, because the server in front has.

        A thread reads it, so that a busy or hanging event loop ends, too. On Linux this also continues a
        process that SIGSTOP has stopped.
        """
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGCONT)

        def watch() -> None:
            while os.read(sys.stdin.fileno(), 1):
                pass
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(_END_SECONDS)
            os._exit(1)

        threading.Thread(target=watch, daemon=True, name="end with the server in front").start()

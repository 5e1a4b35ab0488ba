"""Server and device processes of a scenario, and what their journal and their receipts say in the end."""

import asyncio
import random
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from benchmarks.audit import REGIME, Audit
from benchmarks.faults.device import Noted, Notes
from benchmarks.updates import LAYOUT
from edgeflock.server.descent import Parameters
from edgeflock.server.journal import Journal
from edgeflock.server.ledger.recovery import recover, replay

READY_SECONDS = 60


@dataclass(slots=True)
class Crew:
    """All processes of one scenario. `folder` gets the run, the receipts and a log a process."""

    folder: Path
    host: str = "127.0.0.1"
    port: int = 0
    settings: tuple[str, ...] = ()
    """Of the server."""
    server_prefix: Sequence[str] = ()
    device_prefix: Sequence[str] = ()
    _server: subprocess.Popen[str] | None = None
    _gateways: dict[int, subprocess.Popen[str]] = field(default_factory=dict)
    """By their ports."""
    _devices: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _notes: Notes = field(init=False)

    def __post_init__(self) -> None:
        self._notes = Notes(self.folder / "receipts")

    @property
    def receipts(self) -> list[Noted]:
        """All so far, by time."""
        return self._notes.all()

    @property
    def server(self) -> psutil.Process:
        """The server's process, which may run below a prefix command."""
        assert self._server is not None, "start_server comes first"
        outer = psutil.Process(self._server.pid)
        return next(iter(outer.children()), outer)

    async def start_server(self) -> None:
        """Start it, on the port that it had before; return when it listens."""
        self._server = self._spawn_server()
        assert self._server.stdout is not None
        async with asyncio.timeout(READY_SECONDS):
            line = await asyncio.to_thread(self._server.stdout.readline)
        if line != "listening\n":
            raise RuntimeError(f"the server did not come up: {(self.folder / 'server.log').read_text()}")

    def _spawn_server(self) -> subprocess.Popen[str]:
        command = [
            *self.server_prefix,
            *(sys.executable, "-m", "benchmarks.faults.server"),
            *(str(self.folder / "run"), self.host, str(self.port), *self.settings),
        ]
        with (self.folder / "server.log").open("a") as log:
            return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)

    def kill_server(self) -> None:
        """Kill with SIGKILL."""
        if self._server is not None:
            self.server.kill()
            self._server.wait()
            assert self._server.stdout is not None
            self._server.stdout.close()
            self._server = None

    async def start_gateway(self, port: int) -> None:
        """A gateway of the server on this port; return when it listens."""
        process = self._gateways[port] = self._spawn_gateway(port)
        assert process.stdout is not None
        async with asyncio.timeout(READY_SECONDS):
            line = await asyncio.to_thread(process.stdout.readline)
        if not line:
            raise RuntimeError(f"the gateway did not come up: {(self.folder / 'gateways.log').read_text()}")

    def _spawn_gateway(self, port: int) -> subprocess.Popen[str]:
        command = [
            *(sys.executable, "-m", "edgeflock", "gateway", "--json", "--insecure"),
            *("--host", self.host, "--port", str(port)),
            *("--upstream", f"http://{self.host}:{self.port}"),
        ]
        with (self.folder / "gateways.log").open("a") as log:
            return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)

    def kill_gateway(self, port: int) -> None:
        """Kill with SIGKILL."""
        process = self._gateways.pop(port)
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()

    def start_devices(
        self, names: Sequence[str], pause: float = 0.02, seed: int = 0, through: Sequence[int] = ()
    ) -> None:
        """Start a process of these devices, which the name of the first one identifies.

        `through` are the ports of gateways, if they do not connect to the server itself.
        """
        urls = ",".join(f"http://{self.host}:{port}" for port in through or (self.port,))
        command = [
            *self.device_prefix,
            *(sys.executable, "-m", "benchmarks.faults.device", urls),
            *(str(self.folder / "receipts"), str(seed), str(pause), *names),
        ]
        with (self.folder / "devices.log").open("a") as log:
            self._devices[names[0]] = subprocess.Popen(command, stderr=log)

    def kill_devices(self, name: str) -> None:
        """Kill with SIGKILL the process whose first device is `name`."""
        process = self._devices.pop(name)
        for one in (*psutil.Process(process.pid).children(), process):
            one.kill()
        process.wait()

    def everything_ends(self) -> None:
        for name in list(self._devices):
            self.kill_devices(name)
        for port in list(self._gateways):
            self.kill_gateway(port)
        self.kill_server()

    def verdict(self) -> dict[str, int | bool]:
        """End everything, and check the journal against the receipts and against a replay from version 0.

        All but `acknowledged` and `unacknowledged` should be 0 or true: a killed device may not have noted
        its last receipt.
        """
        self.everything_ends()
        receipts = {(one.name, one.sequence): one.version for one in self.receipts}
        audit, journal = Audit(), self.folder / "run" / "journal.sqlite"
        audit.journal(journal, receipts)
        with closing(Journal(journal)) as opened:
            both = [make(opened).theta.tobytes() for make in (_recovered, _replayed)]
        return {
            "acknowledged": len(receipts),
            "lost": len(audit.lost),
            "doubled": len(audit.doubled),
            "gaps": audit.gaps,
            "unacknowledged": audit.unacknowledged,
            "bit_identical": both[0] == both[1],
        }


def _recovered(journal: Journal) -> Parameters:
    return recover(journal, LAYOUT, REGIME)


def _replayed(journal: Journal) -> Parameters:
    return replay(journal, LAYOUT)


@contextmanager
def crew(
    folder: Path,
    *settings: str,
    host: str = "127.0.0.1",
    server_prefix: Sequence[str] = (),
    device_prefix: Sequence[str] = (),
) -> Iterator[Crew]:
    """A crew without processes yet; ends what there is in the end."""
    (folder / "receipts").mkdir(parents=True)
    found = Crew(folder, host, free_port(), settings, server_prefix, device_prefix)
    try:
        yield found
    finally:
        found.everything_ends()


def free_port(*taken: int) -> int:
    """Return a random free port that is not `taken`: another crew may search at the same time.

    It is below the ports of outgoing connections, which might connect to themselves.
    """
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port := random.randrange(lowest - 8192, lowest)))
            except OSError:
                continue
            if port not in taken:
                return port

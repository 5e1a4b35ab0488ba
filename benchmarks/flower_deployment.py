"""Flower's real processes on this machine: a SuperLink, SuperNodes, and `flwr run`, without the internet."""

import asyncio
import os
import re
import signal
import socket
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

BIN = Path(sys.executable).parent
EXAMPLES = Path(__file__).parents[1] / "examples"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _before(path: str) -> str:
    known = os.environ.get("PYTHONPATH", "")
    return f"{path}{os.pathsep}{known}" if known else path


@dataclass
class Deployment:
    """A SuperLink and its SuperNodes, each in a process group of its own."""

    home: Path
    port: int = field(default_factory=free_port)
    groups: list[asyncio.subprocess.Process] = field(default_factory=list)

    @property
    def environment(self) -> dict[str, str]:
        return os.environ | {
            "FLWR_HOME": str(self.home),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2",
            "OMP_NUM_THREADS": "1",
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
            "COLUMNS": "200",
        }

    async def spawn(self, program: str, *arguments: str, path: str = "") -> asyncio.subprocess.Process:
        """`path` is where Python looks for modules, too."""
        log = (self.home / f"{program}-{len(self.groups)}.log").open("wb")
        process = await asyncio.create_subprocess_exec(
            str(BIN / program),
            *arguments,
            env=self.environment | ({"PYTHONPATH": _before(path)} if path else {}),
            stdout=log,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
        log.close()
        self.groups.append(process)
        return process

    async def superlink(self, *, installs: bool = False) -> asyncio.subprocess.Process:
        """Start it; it keeps its state in memory. Returns when it listens. It `installs` what apps name."""
        config = f'[superlink]\ndefault = "here"\n[superlink.here]\naddress = "127.0.0.1:{self.port}"\n'
        (self.home / "config.toml").write_text(config + "insecure = true\n")
        process = await self.spawn(
            "flower-superlink",
            "--insecure",
            "--host=127.0.0.1",
            f"--port={self.port}",
            *(() if installs else ("--disable-runtime-dependency-installation",)),
        )
        while True:
            with suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", self.port)
                writer.close()
                return process
            assert process.returncode is None, "the SuperLink ended"
            await asyncio.sleep(0.1)

    async def supernode(
        self, partition: int, partitions: int, *, port: int = 0, **config: object
    ) -> asyncio.subprocess.Process:
        """One that has a part of the data, and reaches the SuperLink at another port if one is given."""
        given = "".join(f" {name.replace('_', '-')}={value}" for name, value in config.items())
        return await self.spawn(
            "flower-supernode",
            "--insecure",
            f"--superlink=127.0.0.1:{port or self.port}",
            f"--port={free_port()}",
            f"--node-config=partition-id={partition} num-partitions={partitions}{given}",
        )

    async def run(self, app: Path, config: str) -> "Run":
        """`flwr run`, with its log as a stream."""
        process = await asyncio.create_subprocess_exec(
            str(BIN / "flwr"), "run", str(app), "here", "--stream", "--run-config", config,
            env=self.environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip
        self.groups.append(process)
        return Run(process)

    async def kill(self, process: asyncio.subprocess.Process) -> None:
        """Kill with SIGKILL the process and all its children."""
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()

    async def close(self) -> None:
        for process in self.groups:
            await self.kill(process)


class Run:
    """A run's log as it comes."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.log = ""

    async def until(self, pattern: str) -> str:
        """The log line that matches. Raises AssertionError if the log ends without."""
        assert self.process.stdout is not None
        while line := (await self.process.stdout.readline()).decode():
            self.log += line
            if re.search(pattern, line):
                return line
        raise AssertionError(f"{pattern!r} is not in the log:\n{self.log}")


def servers_of(home: Path) -> list[int]:
    """The processes that run a ServerApp of this deployment."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            command = (entry / "cmdline").read_bytes()
            environment = (entry / "environ").read_bytes()
            if b"flwr-serverapp" in command and str(home).encode() in environment:
                found.append(int(entry.name))
    return found

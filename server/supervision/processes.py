"""The server of one run in a process of its own: it is started, ended, restarted and asked for its health."""

import asyncio
import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Literal

from edgeflock.server.connections.reverse_proxy import ReverseProxy
from edgeflock.server.supervision.requests import ask, ask_for_object
from edgeflock.server.supervision.run_files import RunFile
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.files import write_atomically
from edgeflock.shared.protocol.backoff import back_off
from edgeflock.shared.protocol.shown import detail_of, printable
from edgeflock.shared.settings.config import Config

log = logging.getLogger(__name__)

ProcessState = Literal["starting", "running", "unavailable", "hangs", "restarting", "failed", "paused"]

HANG_SECONDS = 5.0
"""Seconds without an answer after which a process hangs."""

ANSWER_SECONDS = 2.0
"""Seconds for an answer to a question about a run. The row of one that gives none has what it said last."""

_PROBE_SECONDS = 0.5
"""Seconds from an answer to the next probe."""

_END_SECONDS = 30.0
"""Seconds for a clean end, before the process is killed."""

_CHECK_SECONDS = 60.0
"""Seconds to read a changed file's settings."""

_LONGEST_RESTART, _STEADY_SECONDS = 60.0, 60.0
"""The longest pause before a restart, and how long a process must live for pauses to begin anew."""

_WRONG_SETTINGS = 2
"""The exit code for settings that a restart does not mend."""

_NOT_INHERITED = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")
"""Variables of systemd that are for the server of several runs alone."""

_PAUSED_REASON = "an operator has paused it"

PAUSED = "paused.json"
"""The file in a run's folder that says that an operator has paused it, and how far it was."""


@dataclass(slots=True)
class RunProcess:
    """One run of the folder and its process, if it has one."""

    file: RunFile
    proxy: ReverseProxy
    host: str
    """The address that the server of several runs listens on."""
    arguments: tuple[str, ...]
    """Options of the process's command."""
    show: Callable[[str, str], None]
    """Prints a line of its output, with the run's name."""
    state: ProcessState = "starting"
    reason: str = ""
    """Why it is not running."""
    file_error: str = ""
    """Why the process does not have the settings that the file has now; empty: it has them."""
    config: Config | None = None
    """The settings with which it was last started or paused."""
    status: dict[str, Any] = field(default_factory=dict)
    """The last status that its server has answered with."""
    on_running: Callable[["RunProcess"], None] = lambda run: None
    """Called each time that its server begins to answer."""
    _keeping: asyncio.Task[None] | None = None
    _last_line: str = ""
    _is_paused: bool = False

    @property
    def unavailable_reason(self) -> str:
        """Why connections cannot be forwarded now; empty: they can."""
        if self._is_paused:
            return f"run {self.file.name} is paused by an operator"
        if self.state in ("running", "unavailable"):
            return ""
        return f"run {self.file.name} is not available now ({self.state})"

    def start(self) -> None:
        """Start the process and keep it running, unless an operator has paused the run."""
        with suppress(ConfigError):  # which the process will say, too
            self.config = self.file.settings()
        marker = self.file.directory / PAUSED
        if marker.exists():
            with suppress(OSError, ValueError, AttributeError, TypeError):
                self.status = dict(json.loads(marker.read_text("utf-8")).get("status", {}))
            self._is_paused = True
            self._set("paused", _PAUSED_REASON)
        else:
            self._is_paused = False
            self._set("starting")
            self._keeping = asyncio.create_task(self._keep())

    async def stop(self) -> None:
        """End the process cleanly, and do not restart it."""
        if self._keeping is not None:
            keeping, self._keeping = self._keeping, None
            keeping.cancel()
            await asyncio.wait([keeping])

    async def pause(self) -> None:
        """End the process until `resume`, also over a restart of the server. Raises OSError."""
        await self.refresh()
        self.file.directory.mkdir(mode=0o700, exist_ok=True)
        write_atomically(self.file.directory / PAUSED, json.dumps({"status": self.status}).encode())
        self._is_paused = True
        await self.stop()
        self._set("paused", _PAUSED_REASON)

    async def resume(self) -> None:
        """Start a paused or failed run again. Raises OSError."""
        await self.stop()
        (self.file.directory / PAUSED).unlink(missing_ok=True)
        self.start()

    async def refresh(self) -> None:
        """Ask for the run's status, and keep the last one if there is no answer."""
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(ANSWER_SECONDS):
                code, status = await ask_for_object(self.proxy.socket_path, "/v1/status")
            if code == 200:
                self.status = status

    async def check(self, file: RunFile) -> str:
        """Return what is wrong with the settings of a changed file; empty: nothing. Raises OSError.

        A process checks names of modules and of tables, which this one need not load.
        """
        try:
            await asyncio.to_thread(file.settings)
        except ConfigError as error:
            return str(error)
        process = await asyncio.create_subprocess_exec(
            *self._command(file),
            "--check",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(_CHECK_SECONDS):
                _, said = await process.communicate()
        except TimeoutError:
            return (
                f"{file.path}: its settings were not read within {_CHECK_SECONDS:g} s; if the machine was "
                "busy, save the file again"
            )
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        return (
            printable(said.decode("utf-8", "replace").rpartition("edgeflock: ")[2].strip())
            if process.returncode
            else ""
        )

    def _command(self, file: RunFile) -> tuple[str, ...]:
        """Return the command of a server of the run."""
        decided = (f"server.directory={file.directory}", f"server.host={self.host}")
        options = [part for setting in decided for part in ("--set", setting)]
        return sys.executable, "-m", "edgeflock", "server", str(file.path), *self.arguments, *options

    def _set(self, state: ProcessState, reason: str = "") -> None:
        if (state, reason) != (self.state, self.reason):
            level = logging.INFO if state in ("starting", "running", "paused") else logging.WARNING
            log.log(level, "run %s: %s%s", self.file.name, state, f": {reason}" if reason else "")
        self.state, self.reason = state, reason

    async def _keep(self) -> None:
        delays = back_off(Random(), first=1.0, longest=_LONGEST_RESTART)
        while True:
            started = time.monotonic()
            try:
                self.config = await asyncio.to_thread(self.file.settings)
                code = await self._live()
            except ConfigError as error:
                code, self._last_line = _WRONG_SETTINGS, str(error)
            except OSError as error:  # the system has no room for another process
                code, self._last_line = 1, f"its process cannot be started: {error.strerror}"
            reason = self._last_line or _describe(code)
            if code == _WRONG_SETTINGS:
                self._set("failed", reason)
                return
            if time.monotonic() - started > _STEADY_SECONDS:
                delays = back_off(Random(), first=1.0, longest=_LONGEST_RESTART)
            self._set("restarting", reason)
            await asyncio.sleep(next(delays))
            self._set("starting", reason)

    async def _live(self) -> int:
        """Run the process until it ends, and return its exit code. Cancelled, end it cleanly."""
        self._last_line = ""
        environment = {name: value for name, value in os.environ.items() if name not in _NOT_INHERITED}
        process = await asyncio.create_subprocess_exec(
            *self._command(self.file),
            stdin=asyncio.subprocess.PIPE,  # its end tells the process that this one is gone
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is for this server, which ends the process then
            env={**environment, **self.proxy.environment(), "PYTHONUNBUFFERED": "1"},
        )
        assert process.stdout is not None, "a pipe"
        tasks = [asyncio.create_task(self._read(process.stdout)), asyncio.create_task(self._probe())]
        try:
            code = await process.wait()
            await asyncio.wait(tasks[:1], timeout=1)  # the last lines say why it has ended
            return code
        finally:
            tasks[1].cancel()
            if process.returncode is None:
                await self._end(process)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _end(self, process: asyncio.subprocess.Process) -> None:
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGCONT)  # a stopped one could not end
            process.terminate()
        try:
            async with asyncio.timeout(_END_SECONDS):
                await process.wait()
        except TimeoutError:
            log.warning("run %s does not end within %g s: it is killed", self.file.name, _END_SECONDS)
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async def _read(self, stream: asyncio.StreamReader) -> None:
        """Show each line of the output. A part of a very long line is shown as a line."""
        rest = b""
        while octets := await stream.read(1 << 16):
            *lines, rest = (rest + octets).split(b"\n")
            if len(rest) > 1 << 16:
                lines, rest = [*lines, rest], b""
            for line in lines:
                text = line.decode("utf-8", "replace").rstrip()
                if text.startswith("edgeflock: "):
                    self._last_line = printable(text.removeprefix("edgeflock: "))
                with suppress(OSError, ValueError):  # nobody reads it any more
                    self.show(self.file.name, text)

    async def _probe(self) -> None:
        """Ask the process for its readiness again and again, and keep `state` up to date."""
        while True:
            try:
                async with asyncio.timeout(HANG_SECONDS):
                    code, body = await ask(self.proxy.socket_path, "/readyz")
            except TimeoutError:
                if self.state != "starting":
                    self._set("hangs", f"it has not answered for {HANG_SECONDS:g} s")
            except OSError:
                pass  # it does not listen yet, or no longer
            else:
                if code == 200 and self.state != "running":
                    self._set("running")
                    self.on_running(self)
                elif code != 200:
                    self._set("unavailable", _reason_of(body))
            await asyncio.sleep(_PROBE_SECONDS)


def _reason_of(body: bytes) -> str:
    """Return the reason of a server that is not ready, which is plain text, or JSON of one that stands by."""
    return detail_of(body[:1000], body[:1000].decode("utf-8", "replace").strip())


def _describe(code: int) -> str:
    if code < 0:
        with suppress(ValueError):
            return f"its process was ended by {signal.Signals(-code).name}"
    return f"its process ended with code {code}"


def socket_of(folder: Path, number: int) -> str:
    """Return the path of a run's Unix socket. It is short, as the system demands."""
    return str(folder / f"{number}.sock")

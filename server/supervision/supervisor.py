"""A server of several runs: the runs of a folder, their processes, and one address for all of them."""

import asyncio
import logging
import os
import shutil
import socket
import sqlite3
import ssl
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, closing, contextmanager, suppress
from functools import partial
from pathlib import Path

from edgeflock.server.connections import ConnectionLimits, Traffic
from edgeflock.server.connections.listening import Factory, listen_on
from edgeflock.server.connections.reverse_proxy import ReverseProxy
from edgeflock.server.identity import Audit, Register, demand, key_files, tls_of, write_admin_token
from edgeflock.server.supervision.accounts import Accounts
from edgeflock.server.supervision.app import OwnRoutes
from edgeflock.server.supervision.processes import RunProcess, socket_of
from edgeflock.server.supervision.requests import save
from edgeflock.server.supervision.run_files import ARCHIVE, OWN, RunFile, misnamed_files, run_files
from edgeflock.server.supervision.switch import PREFIX, Destination, Switch
from edgeflock.server.web import Origins, assets
from edgeflock.shared.errors import ConfigError, EdgeflockError
from edgeflock.shared.logs import OncePerMinute
from edgeflock.shared.settings.config import Config

log = logging.getLogger(__name__)
log.addFilter(OncePerMinute("the folder of runs cannot be followed"))

_POLL_SECONDS = 1.0
"""Seconds between two looks at the folder and at the tokens."""

_MODEL_SECONDS = 120.0
"""Seconds for a run's server to give its model to the archive."""

_LONGEST_PATH = 103
"""Bytes of a Unix socket's path on every system."""

MODEL = "model.safetensors"
"""The last model of an archived run, in its folder."""


class Supervisor:
    """The runs of a folder. Use `serving`."""

    def __init__(
        self,
        folder: Path,
        config: Config,
        *,
        arguments: tuple[str, ...] = (),
        log_is_private: bool = True,
        show: Callable[[str, str], None] = lambda name, line: None,
    ) -> None:
        """`config` has the settings of this server: [server] host, port, certificate and key, and [limits].

        `arguments` are options of each run's command, and `show` prints a line of a run's output.
        """
        self.folder, self.config, self.url = folder.resolve(), config, ""
        self._arguments, self._log_is_private, self._show = arguments, log_is_private, show
        self._processes: dict[str, RunProcess] = {}
        self._misnamed: set[Path] = set()
        """Files that were warned of."""
        self._limits = ConnectionLimits(config.limits)
        self._forwarded: set[Switch] = set()
        self._tls: ssl.SSLContext | None = None
        self._pin = b""
        self._sockets, self._number = Path(), 0
        self._changing = asyncio.Lock()

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[int]:
        """Serve the runs while the context lasts. Yields the port. Raises ConfigError or EdgeflockError."""
        settings = self.config.server
        self._tls, self._pin = tls_of(settings, self.folder)
        with ExitStack() as opened:
            self._sockets = Path(tempfile.mkdtemp(prefix="edgeflock-"))  # which only this user may enter
            opened.callback(shutil.rmtree, self._sockets, ignore_errors=True)
            if len(os.fsencode(socket_of(self._sockets, 1_000_000))) > _LONGEST_PATH:
                raise ConfigError(f"TMPDIR: {self._sockets} is too long for Unix sockets; name a shorter one")
            with _writing(self.folder):
                register = opened.enter_context(closing(Register(self.folder)))
                audit = Audit(self.folder)
            accounts = Accounts(register, audit)
            origins = Origins.from_names(settings.origins, settings.host)
            own = OwnRoutes(self, accounts, self._limits, origins, assets(), audit, self.config)

            def switch(make_own: Factory) -> Factory:
                return partial(Switch, make_own, self._limits, self._route, accounts.account, self._forwarded)

            address = settings.host, settings.port, self._tls
            listener = listen_on(own.app(), self._limits, Traffic, *address, wrap=switch)
            async with listener as port:
                scheme = "http" if self._tls is None else "https"
                name = socket.gethostname() if settings.host in ("0.0.0.0", "::", "") else settings.host
                self.url = f"{scheme}://{name}:{port}"
                with _writing(self.folder):
                    register.store_address(self.url, self._pin)
                    write_admin_token(register, self.folder)
                watching = [
                    asyncio.create_task(_watch(self._follow_folder)),
                    asyncio.create_task(_watch(lambda: self._follow_connections(register))),
                ]
                try:
                    await self._follow_folder()
                    yield port
                finally:
                    for task in watching:
                        task.cancel()
                    await asyncio.wait(watching)
                    await asyncio.gather(*(one.stop() for one in self._processes.values()))
                    for caller in list(self._forwarded):
                        caller.transport.abort()

    # The runs, as the routes see them

    def all_runs(self) -> list[RunProcess]:
        return [self._processes[name] for name in sorted(self._processes)]

    def find(self, name: str) -> RunProcess | None:
        return self._processes.get(name)

    async def act(self, action: str, run: RunProcess) -> str:
        """Pause, resume or archive a run, and return what was done. Raises EdgeflockError."""
        name = run.file.name
        async with self._changing:
            if self._processes.get(name) is not run:
                raise EdgeflockError(f"run {name} has just changed; try again")
            try:
                if action == "pause":
                    await run.pause()
                    return f"run {name} is paused; its devices come back once it is resumed"
                if action == "resume":
                    await run.resume()
                    return f"run {name} is started"
                return await self._archive(run)
            except OSError as error:
                raise EdgeflockError(f"run {name}: {action} failed: {error}") from error

    async def _archive(self, run: RunProcess) -> str:
        """Save the run's model, end its process, and move its files to the folder of archived runs."""
        name, directory = run.file.name, run.file.directory
        target = self.folder / ARCHIVE / name
        if target.exists():
            raise EdgeflockError(f"{target} exists already: move it away, or rename it")
        if run.unavailable_reason:
            first = "resume it (edgeflock run resume)" if run.state in ("paused", "failed") else "wait"
            raise EdgeflockError(f"run {name} is {run.state}: {first}, and archive it once it runs")
        async with asyncio.timeout(_MODEL_SECONDS):
            path = "/v1/model.safetensors?version=last"
            status = await save(run.proxy.socket_path, path, directory / MODEL)
        if status != 200:
            raise EdgeflockError(f"run {name}: its server answers {status} to GET {path}: try again")
        await run.stop()
        del self._processes[name]
        target.parent.mkdir(mode=0o700, exist_ok=True)
        directory.rename(target)
        if run.file.path.parent == self.folder:
            run.file.path.rename(target / "server.toml")
        log.info("run %s: archived in %s", name, target)
        return f"run {name} is in {target}, its last model in {target / MODEL}"

    def _route(self, name: str) -> Destination | None:
        run = self._processes.get(name)
        return None if run is None else Destination(run.proxy.socket_path, run.unavailable_reason)

    # The folder

    async def _follow_connections(self, register: Register) -> None:
        """End forwarded connections whose token was revoked or has expired, or of which a side has ended."""
        try:
            register.refresh()
        finally:
            for one in list(self._forwarded):
                if one.account.is_valid():
                    one.look_for_end()
                else:
                    one.transport.abort()

    async def _follow_folder(self) -> None:
        """Start new runs, restart those whose file has changed, and end those whose file is gone."""
        async with self._changing:
            found = run_files(self.folder)
            for path in misnamed_files(self.folder) - self._misnamed:
                self._misnamed.add(path)
                log.warning(
                    "%s is not served: a run's name has at most 64 letters, digits, ., _ and -, begins with "
                    "a letter or digit, and is not %s or %s; its file ends in .toml",
                    *(path, ARCHIVE, OWN),
                )
            for name, run in list(self._processes.items()):
                file = found.get(name)
                if file is None:
                    log.warning("run %s: %s is gone, so its process ends", name, run.file.path)
                    del self._processes[name]
                    await run.stop()
                elif file != run.file:
                    await self._change(run, file)
            for name in found.keys() - self._processes.keys():
                self._processes[name] = self._new(found[name])
                self._processes[name].start()

    async def _change(self, run: RunProcess, file: RunFile) -> None:
        """Restart a run whose file has changed, unless its new settings are wrong."""
        problem = "" if run.state == "failed" else await run.check(file)
        run.file, run.file_error = file, ""
        if problem:
            run.file_error = f"goes on as before, since its changed file is wrong: {problem}"
            log.warning("run %s %s", file.name, run.file_error)
            return
        if run.state != "paused":
            log.info("run %s: %s has changed, so it is started again", file.name, file.path)
            await run.stop()
        run.start()  # a paused one stays so

    def _new(self, file: RunFile) -> RunProcess:
        self._number += 1
        proxy = ReverseProxy(
            socket_of(self._sockets, self._number),
            f"{self.url}{PREFIX}{file.name}",
            self._pin.hex(),
            self._tls is not None,
            self._log_is_private,
        )
        host = self.config.server.host
        return RunProcess(
            file, proxy, host, self._arguments, self._show, on_running=self._request_certificates
        )

    def _request_certificates(self, run: RunProcess) -> None:
        """Ask for certificates of this run's devices in TLS. The run's server decides who must show one."""
        if self._tls is not None and run.config is not None and run.config.server.client_certificates:
            authority = key_files(run.file.directory)[1].certificate
            with suppress(OSError):
                demand(self._tls, authority.read_text("ascii"), required=False)


async def _watch(look: Callable[[], Awaitable[None]]) -> None:
    """Call `look` again and again. What it cannot read now may be there later."""
    while True:
        await asyncio.sleep(_POLL_SECONDS)
        try:
            await look()
        except Exception as error:  # any: without this task, changes and revoked tokens would pass unseen
            log.warning("the folder of runs cannot be followed: %s: %s", type(error).__name__, error)


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, sqlite3.Error) as error:
        raise EdgeflockError(
            f"{folder} cannot keep the tokens of this server: {error}; free space, or name another folder"
        ) from error

"""Shared parts of commands: options, their settings, and what to install if a package is missing."""

import json
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO
from urllib.parse import urlsplit

import typer

from edgeflock.shared.errors import ConfigError
from edgeflock.shared.extras import install_command

if TYPE_CHECKING:  # pydantic and SQLite, which `edgeflock client --help` on a device need not load
    from edgeflock.server.identity import Register
    from edgeflock.shared.settings.choices import Tables
    from edgeflock.shared.settings.config import Config

log = logging.getLogger(__name__)

ConfigFile = Annotated[
    Path | None, typer.Argument(metavar="[CONFIG.toml]", help="Settings; see `edgeflock config`.")
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override one setting, e.g. server.port=9000."),
]
TOKEN_WARNING = "Others see it in `ps`; use --token-file or EDGEFLOCK_TOKEN instead."
Token = Annotated[
    str | None, typer.Option(help=f"A viewer's or an admin's token [client.token]. {TOKEN_WARNING}")
]
TokenFile = Annotated[
    Path | None, typer.Option(metavar="PATH", help="A file with the token; -: standard input.")
]
Url = Annotated[str | None, typer.Argument(help="The server's URL [client.server].")]
Directory = Annotated[Path, typer.Argument(help="The run's [server.directory].")]
RUN = Path("edgeflock-run")
"""The default of server.directory."""
Labels = Annotated[
    list[str] | None, typer.Option("--label", metavar="NAME=VALUE", help="Label of its devices.")
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Log more to stderr.")]


class Level(StrEnum):
    """Levels of log messages."""

    debug = "debug"
    info = "info"
    warning = "warning"
    error = "error"


class Format(StrEnum):
    """Formats of a line of the log."""

    text = "text"
    json = "json"


LogLevel = Annotated[Level, typer.Option("--log-level", help="What to log, on stderr.")]
LogFormat = Annotated[Format, typer.Option("--log-format", help="json: an object a line.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


PROJECT = Path("edgeflock.toml")
"""The name of the settings file that `edgeflock init` writes."""


def load_settings(
    path: Path | None, overrides: list[str] | None, verbose: bool = False, tables: "Tables | None" = None
) -> "Config":
    """Return the settings of a file, the environment and --set.

    Set up logging if it is not. Raises ConfigError.

    `tables` are the server's names of choices, for callers that need their settings checked.
    """
    from edgeflock.shared.settings import config

    if not logging.getLogger().handlers:
        log_to_stderr(Level.info if verbose else Level.warning)
    text = "" if path is None else read_text(path)
    if path is not None:
        add_to_path(path.resolve().parent)
    return config.parse(text, str(path), os.environ, overrides or (), tables)


def add_to_path(folder: Path) -> None:
    """Add a folder to the module path. Settings name modules in their own folder."""
    if str(folder) not in sys.path:
        sys.path.append(str(folder))


def log_to_stderr(level: Level, format: Format = Format.text) -> None:
    """Log messages of this level or above, and of other packages warnings or above."""
    handler = logging.StreamHandler()
    handler.setFormatter(_Lines() if format is Format.text else _Objects())
    number = logging.getLevelNamesMapping()[level.upper()]
    logging.basicConfig(handlers=[handler], level=max(logging.WARNING, number))
    logging.getLogger("edgeflock").setLevel(number)


def _timestamp(record: logging.LogRecord) -> str:
    """Return the time in ISO 8601, with the local offset."""
    return datetime.fromtimestamp(record.created).astimezone().isoformat(timespec="milliseconds")


class _Lines(logging.Formatter):
    """Formats a record as a readable line."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        return _timestamp(record)


class _Objects(logging.Formatter):
    """Formats a record as a JSON object: time, level, logger, message, and a traceback if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": _timestamp(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry)


def read_text(path: Path) -> str:
    """Return the text of a file of settings or of a token. Raises ConfigError."""
    try:
        return path.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} cannot be read: {error}; save it as UTF-8") from error
    except OSError as error:
        remedy = "a server's address goes after --server" if ":/" in str(path) else "correct the path"
        raise ConfigError(f"{path} cannot be read: {error.strerror}; {remedy}") from error


def connection_of(
    url: str | None, token: str | None, token_file: Path | None, overrides: list[str] | None
) -> tuple[str, str]:
    """Return (URL, token) of a server. Raises ConfigError."""
    flags = client_flags(server=url, token=token_of(token, token_file))
    client = load_settings(None, [*(overrides or []), *flags]).client
    from edgeflock.shared.identity import pin_from_token, tls_for

    parts = urlsplit(client.server if "://" in client.server else f"http://{client.server}")
    if client.token:  # a secret is not to be read on the way
        tls_for(parts.scheme, parts.hostname or "", pin_from_token(client.token), insecure=client.insecure)
    return client.server, client.token


def token_of(token: str | None, file: Path | None) -> str | None:
    """Return the token of --token or --token-file, or None without both. Raises ConfigError."""
    if file is None:
        return token
    if token is not None:
        raise ConfigError("--token and --token-file: give one of them")
    return token_in(file)


def token_in(file: Path) -> str:
    """Return the secret in a file, or in standard input for "-". Raises ConfigError.

    Warn about a file that others may read, because its readers can use the secret.
    """
    token = (sys.stdin.readline() if str(file) == "-" else read_text(file)).strip()
    if str(file) != "-" and file.stat().st_mode & 0o044:
        log.warning("--token-file %s: others on this machine can read it: chmod 600 %s", file, file)
    if not token or not token.isprintable():
        raise ConfigError(f"--token-file {file}: has no token; write one into it")
    return token


def client_flags(**options: str | Path | None) -> list[str]:
    """Return overrides of [client] for the given options."""
    return [f"client.{key}={value}" for key, value in options.items() if value is not None]


def on_end_signals(stop: Callable[[], None]) -> None:
    """Call `stop` when a signal asks this process, which runs an event loop, to end."""
    import asyncio

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop)


@contextmanager
def require(extra: str, purpose: str) -> Iterator[None]:
    """Import packages of an extra. A ConfigError begins with `purpose` and names the package to install."""
    try:
        yield
    except ImportError as error:
        raise ConfigError(f"{purpose} {error.name}: {install_command(extra)}") from error


@contextmanager
def open_register(directory: Path) -> Iterator[tuple["Register", Callable[[str], None]]]:
    """Yield (the identities of a run, a function that writes to its audit log). Raises ConfigError.

    It needs write access to the run's folder. The server need not run; a running one notices changes at once.
    """
    import sqlite3

    from edgeflock.server.database import URL_FILE
    from edgeflock.server.identity import IDENTITIES, Audit, Register

    if not ((directory / IDENTITIES).is_file() or (directory / URL_FILE).is_file()):
        raise ConfigError(
            f"{directory}: has no run; name the folder of one, as in edgeflock token list DIRECTORY"
        )
    try:
        with closing(Register(directory)) as register:
            actor = f"command line, user {os.getuid()}" if hasattr(os, "getuid") else "command line"
            yield register, lambda action: Audit(directory).note(actor, action)
    except (OSError, sqlite3.Error) as error:
        raise ConfigError(f"{directory}: its identities cannot be read or written: {error}") from error


def run_folders(directory: Path) -> list[Path]:
    """Return the runs' folders in the folder of a server of several runs, and of another run `directory`."""
    from edgeflock.server.supervision.run_files import run_files

    runs = run_files(directory).values() if directory.is_dir() else ()
    return sorted(run.directory for run in runs if run.directory.is_dir()) or [directory]


def print_json(document: object, file: TextIO | None = None) -> None:
    print(json.dumps(document), file=file, flush=True)


def date_of(seconds: float) -> str:
    """Return a Unix time in local time, to the minute."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


def labels_of(options: list[str] | None) -> dict[str, str]:
    """Parse NAME=VALUE texts into a table. Raises ConfigError."""
    from edgeflock.shared.settings.client import parse_labels

    try:
        return parse_labels(options or [])
    except ValueError as error:
        raise ConfigError(f"label {error}") from error


def seconds_of(text: str) -> float | None:
    """Parse 90s, 90m, 24h or 7d. Return None for never. Raises ConfigError."""
    units = {"s": 1, "m": 60, "h": 3600, "d": 86400}
    if text == "never":
        return None
    number, unit = text[:-1], text[-1:]
    if unit not in units or not (number.isascii() and number.isdecimal()) or not 0 < int(number) < 10**6:
        raise ConfigError(f"--expires {text!r} must be a time such as 90m, 24h or 7d, or never")
    return float(int(number) * units[unit])

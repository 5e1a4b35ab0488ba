"""What commands share: options, the settings that they come to, and what to install for what is missing."""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgeflock.shared.errors import ConfigError

if TYPE_CHECKING:  # it brings pydantic, which `edgeflock client --help` on a device need not load
    from edgeflock.shared.settings.choices import Tables
    from edgeflock.shared.settings.config import Config

log = logging.getLogger(__name__)

ConfigFile = Annotated[
    Path | None, typer.Argument(metavar="[CONFIG.toml]", help="Settings; see `edgeflock config`.")
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override one setting, e.g. run.port=9000."),
]
TOKEN_SHOWS = "Others on this machine see it in `ps`: rather --token-file or EDGEFLOCK_TOKEN."
Token = Annotated[str | None, typer.Option(help=f"The run's secret [client.token]. {TOKEN_SHOWS}")]
TokenFile = Annotated[
    Path | None, typer.Option(metavar="PATH", help="A file that holds the run's secret; -: standard input.")
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Say more on stderr.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def settings_of(
    path: Path | None,
    overrides: list[str] | None,
    verbose: bool = False,
    tables: "Tables | None" = None,
) -> "Config":
    """The settings of a file, the environment and --set; sets up logging. Raises ConfigError.

    `tables` are what the server knows by name, for whoever needs its settings checked.
    """
    import os

    from edgeflock.shared.settings import config

    logging.basicConfig(
        level=logging.INFO if verbose else logging.WARNING,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        datefmt="%H:%M:%S",
    )
    text = "" if path is None else text_of(path)
    return config.parse(text, str(path), os.environ, overrides or (), tables)


def text_of(path: Path) -> str:
    """What stands in a file of settings. Raises ConfigError."""
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error


def connection_of(
    url: str | None, token: str | None, token_file: Path | None, overrides: list[str] | None
) -> tuple[str, str]:
    """(URL, token) of a server. Raises ConfigError."""
    flags = client_flags(server=url, token=token_of(token, token_file))
    client = settings_of(None, [*(overrides or []), *flags]).client
    return client.server, client.token


def token_of(token: str | None, file: Path | None) -> str | None:
    """The secret that --token or --token-file gave; None if neither did. Raises ConfigError."""
    if file is None:
        return token
    if token is not None:
        raise ConfigError("--token and --token-file: give one of them")
    return token_in(file)


def token_in(file: Path) -> str:
    """The secret that a file holds; of "-" that of standard input. Raises ConfigError.

    A file that others may read is told of: whoever reads it is let in.
    """
    if str(file) == "-":
        kept = sys.stdin.readline().strip()
    else:
        kept = text_of(file).strip()
        if file.stat().st_mode & 0o044:
            log.warning("--token-file %s: others on this machine can read it: chmod 600 %s", file, file)
    if not kept or not kept.isprintable():
        raise ConfigError(f"--token-file {file}: holds no token; write the run's into it")
    return kept


def client_flags(**given: str | None) -> list[str]:
    """Overrides of [client] for the options that were given."""
    return [f"client.{key}={value}" for key, value in given.items() if value is not None]


@contextmanager
def needing(extra: str, what: str) -> Iterator[None]:
    """For imports of what an extra brings: `what` begins the ConfigError that says what to install."""
    try:
        yield
    except ImportError as error:
        raise ConfigError(f"{what} {error.name}: pip install 'edgeflock[{extra}]'") from error

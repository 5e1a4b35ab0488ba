"""What commands share: options, the settings that they come to, and what to install for what is missing."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgeflock.shared.errors import ConfigError

if TYPE_CHECKING:  # it brings pydantic, which `edgeflock client --help` on a device need not load
    from edgeflock.shared.settings.choices import Tables
    from edgeflock.shared.settings.config import Config

ConfigFile = Annotated[
    Path | None, typer.Argument(metavar="[CONFIG.toml]", help="Settings; see `edgeflock config`.")
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override one setting, e.g. run.port=9000."),
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


def connection_of(url: str | None, token: str | None, overrides: list[str] | None) -> tuple[str, str]:
    """(URL, token) of a server. Raises ConfigError."""
    client = settings_of(None, [*(overrides or []), *client_flags(server=url, token=token)]).client
    return client.server, client.token


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

"""The commands put together, and what an error becomes: a line on stderr and an exit code."""

import sys
from typing import Annotated, NoReturn

import typer

from edgeflock.devices.commands.backup import backup, restore
from edgeflock.devices.commands.capacity import capacity
from edgeflock.devices.commands.check import check
from edgeflock.devices.commands.client import client
from edgeflock.devices.commands.config import config
from edgeflock.devices.commands.device import device
from edgeflock.devices.commands.doctor import doctor, report
from edgeflock.devices.commands.export import export
from edgeflock.devices.commands.fleet import fleet
from edgeflock.devices.commands.gateway import gateway
from edgeflock.devices.commands.groups import Group
from edgeflock.devices.commands.init import init
from edgeflock.devices.commands.journal import journal
from edgeflock.devices.commands.plot import plot
from edgeflock.devices.commands.quickstart import quickstart
from edgeflock.devices.commands.reproduce import reproduce
from edgeflock.devices.commands.rollback import rollback
from edgeflock.devices.commands.server import server
from edgeflock.devices.commands.status import status
from edgeflock.devices.commands.token import token
from edgeflock.devices.commands.top import top
from edgeflock.shared.errors import ConfigError, EdgeflockError, Refused

FAILED, USAGE, REFUSED, INTERRUPTED = 1, 2, 3, 130
"""Exit codes: it failed; the settings cannot work; the server refused this device; somebody stopped it."""

app = typer.Typer(
    cls=Group,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},  # subcommands take after it
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Train one model on many small machines.",
    epilog="Exit codes: 0 done, 1 failed, 2 a setting is wrong, 3 the server refused this device, "
    "130 interrupted.",
)


def main() -> None:
    """Run the command that sys.argv names. Ends the process: an error is a line on stderr and a code."""
    try:
        app()
    except ConfigError as error:
        _fail(str(error), USAGE)
    except Refused as error:
        _fail(f"{error.code}: {error}", REFUSED)
    except EdgeflockError as error:
        _fail(str(error), FAILED)
    except KeyboardInterrupt:
        _fail("interrupted", INTERRUPTED)


def _fail(message: str, code: int) -> NoReturn:
    print(f"edgeflock: {message}", file=sys.stderr)
    sys.exit(code)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(version("edgeflock"))
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None: ...


app.command()(server)
app.command()(gateway)
app.add_typer(client, name="client")
for command in (
    *(init, check, status, doctor, report, rollback, backup, restore, top, plot),
    *(quickstart, fleet, reproduce, capacity, export, config),
):
    app.command()(command)  # in the order in which --help lists them
for name, commands in {"token": token, "device": device, "journal": journal}.items():
    app.add_typer(commands, name=name)

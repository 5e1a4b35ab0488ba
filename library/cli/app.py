"""The commands together, and the conversion of an error to a line on stderr and an exit code."""

import sys
from typing import Annotated, NoReturn

import typer

from edgeflock.cli.browsers import browsers
from edgeflock.cli.client import client
from edgeflock.cli.doctor import doctor, report
from edgeflock.cli.fleet import capacity, fleet, quickstart, reproduce
from edgeflock.cli.gateway import gateway
from edgeflock.cli.groups import Group
from edgeflock.cli.journal import backup, journal, restore
from edgeflock.cli.model import export, model, predict
from edgeflock.cli.monitor import plot, rollback, status, top
from edgeflock.cli.project import check, config, init
from edgeflock.cli.register import device, token
from edgeflock.cli.run import run
from edgeflock.cli.server import server
from edgeflock.shared.errors import ConfigError, EdgeflockError, InUse, Refused

FAILED, USAGE, REFUSED = 1, 2, 3
"""Exit codes: failure; invalid settings; the server refused this device."""

app = typer.Typer(
    cls=Group,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},  # subcommands take after it
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    suggest_commands=False,  # click does
    help="Train one model on many small machines.",
    epilog="Exit codes: 0 done, 1 failed, 2 a setting is wrong, 3 the server refused this device, "
    "130 interrupted.",
)


def run_command() -> None:
    """Run the command of sys.argv. Ends the process, if it is not interrupted."""
    try:
        app()
    except InUse as error:
        _fail(str(error), FAILED)
    except ConfigError as error:
        _fail(str(error), USAGE)
    except Refused as error:
        _fail(f"{error.code}: {error}", REFUSED)
    except EdgeflockError as error:
        _fail(str(error), FAILED)


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
    *(quickstart, fleet, reproduce, capacity, export, predict, config),
):
    app.command()(command)  # in the order in which --help lists them
app.add_typer(token, name="token")
app.add_typer(device, name="device")
app.add_typer(browsers, name="browsers")
app.add_typer(journal, name="journal")
app.add_typer(model, name="model")
app.add_typer(run, name="run")

"""`edgeflock journal`, `backup` and `restore`: verify, repair or move a run's journal; a run in one file."""

import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from edgeflock.cli.groups import Group
from edgeflock.cli.options import Json, print_json, require
from edgeflock.shared.errors import ConfigError

journal = typer.Typer(
    cls=Group, no_args_is_help=True, help="Check a run's journal, copy it, or repair a damaged one."
)

Journal = Annotated[
    str,
    typer.Argument(
        metavar="PATH", help="A journal.sqlite, its folder, or the URL of a database, postgresql:"
    ),
]


@journal.command()
def verify(path: Journal, json: Json = False) -> None:
    """Read all of a journal, decode its updates, and say whether it is as it was written. Exit code 1 if not.

    It changes nothing, and the run's server may go on meanwhile.
    """
    with require("server", "journals need"):
        from edgeflock.server.ledger import verify as read_all

    place = _place(path)
    found = read_all(place)
    if json:
        print_json({"path": str(place), **asdict(found)})
    elif not found.damage:
        print(f"{place}: run {found.run} is whole, version 0 to {found.version}")
        for version, given_up, run in found.repairs:
            print(f"  it was run {run} until a repair gave up what followed version {version}, to {given_up}")
    else:
        known = found.acknowledged if found.acknowledged >= 0 else "unknown"
        print(f"{place}: run {found.run} is damaged; acknowledged: version {known}, whole: to {found.whole}")
        for text in found.damage:
            print(f"  {text}")
        print(
            "Restore a backup of the database"
            if isinstance(place, str)
            else "Restore a copy of its folder, or give up what is not whole: "
            f"edgeflock journal repair {place} --to {found.whole}"
        )
    if found.damage:
        raise typer.Exit(1)


@journal.command()
def repair(
    path: Journal,
    to: Annotated[int, typer.Option(metavar="VERSION", help="The last version to keep.")],
    json: Json = False,
) -> None:
    """Keep a journal up to a version, and give up the rest; the old files stay, under another name.

    Its server must not run. What is kept is another run: devices begin anew with the model of that version.
    """
    with require("server", "journals need"):
        from edgeflock.server.ledger import repair as keep

    place = _place(path)
    if isinstance(place, str):
        raise ConfigError(
            f"PATH = {path}: repair works on files of SQLite; restore a backup of a database, or copy it "
            "to a file (edgeflock journal copy) and repair that"
        )
    done = keep(place, to, time.time())
    if json:
        print_json({"path": str(place), **asdict(done), "backup": str(done.backup)})
        return
    print(f"{place}: kept to version {done.version}, as run {done.run}; before it was {done.before}")
    if done.given_up > done.version:
        print(
            f"Given up: versions {done.version + 1} to {done.given_up}. Devices had receipts for these "
            f"updates and will not send them again; the old file still has {done.updates}, of {done.devices} "
            f"device{'s' * (done.devices != 1)}"
        )
    print(f"The old files are {done.backup}*; devices that come back begin with version {done.version}")


@journal.command()
def copy(
    source: Annotated[str, typer.Argument(metavar="FROM", help="As PATH of verify.")],
    target: Annotated[str, typer.Argument(metavar="TO", help="A place without a run.")],
    json: Json = False,
) -> None:
    """Copy a run's journal from SQLite to PostgreSQL or back, and compare all of both, bit for bit.

    Its server must not run. Afterwards journal.url says which of the two it hosts; remove the other one.
    """
    with require("server", "journals need"):
        from edgeflock.server.ledger import copy as copied

    from_, to = _place(source), _place(target)
    done = copied(
        from_ if isinstance(from_, str) else f"sqlite:{from_}", to if isinstance(to, str) else f"sqlite:{to}"
    )
    if json:
        print_json({"from": str(from_), "to": str(to), **asdict(done)})
        return
    print(f"{to}: run {done.run}, version {done.version}, {done.rows} rows, as they are in {from_}")
    print(f"Both replay to the model {done.theta} (SHA-256)")


def _place(text: str) -> Path | str:
    """Return the path of a file, or the URL of a database."""
    if text.startswith(("postgresql://", "postgres://")):
        return text
    path = Path(text.removeprefix("sqlite:"))
    return path / "journal.sqlite" if path.is_dir() else path


File = Annotated[Path, typer.Argument(metavar="FILE", help="The backup.")]


def backup(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The run's directory [server.directory].")],
    file: File,
    json: Json = False,
) -> None:
    """Write a run to a new file, also while its server goes on.

    The file holds the run's keys and tokens, but no folders of its directory, such as TensorBoard's.
    """
    with require("server", "journals need"):
        from edgeflock.server.ledger import back_up

    done = back_up(run, file)
    if json:
        print_json({"file": str(file), **asdict(done)})
        return
    print(
        f"{file}: run {done.run}, version 0 to {done.version}, {file.stat().st_size:,} bytes; keep it secret"
    )
    if done.left:
        print(f"Not in it: {', '.join(done.left)}")


def restore(
    file: File,
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A directory that is empty or does not exist.")],
    same_run: Annotated[
        bool,
        typer.Option(
            "--same-run",
            help="The server has accepted no update since the backup, so devices go on as before.",
        ),
    ] = False,
    json: Json = False,
) -> None:
    """Create a run's directory from a backup.

    The run gets another name, so that devices with later models begin again with the backup's model. Their
    names and credentials stay valid.
    """
    with require("server", "journals need"):
        from edgeflock.server.ledger import restore as unpack

    done = unpack(file, run, same_run=same_run)
    if json:
        print_json({"directory": str(run), **asdict(done)})
        return
    print(f"{run}: version {done.version}, as run {done.run}; start its server: --set server.directory={run}")

"""`edgeflock journal`: is a run's journal as it was written, and what to do if it is not."""

import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from edgeflock.devices.commands.options import Json, needing

journal = typer.Typer(no_args_is_help=True, help="Check a run's journal, or mend a damaged one.")

Journal = Annotated[Path, typer.Argument(metavar="PATH", help="A journal.sqlite, or its folder.")]


@journal.command()
def verify(path: Journal, json: Json = False) -> None:
    """Read all of a journal and say whether it is as it was written. Exit code 1 if it is not.

    It changes nothing, and the run's server may go on meanwhile.
    """
    with needing("server", "journals need"):
        from edgeflock.server.ledger import verify as read_all

    place = _file(path)
    found = read_all(place)
    if json:
        import json as encoder

        print(encoder.dumps({"path": str(place), **asdict(found)}))
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
            "Restore a copy of its folder, or give up what is not whole: "
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
    with needing("server", "journals need"):
        from edgeflock.server.ledger import repair as keep

    place = _file(path)
    done = keep(place, to, time.time())
    if json:
        import json as encoder

        print(encoder.dumps({"path": str(place), **asdict(done), "backup": str(done.backup)}))
        return
    print(f"{place}: kept to version {done.version}, as run {done.run}; before it was {done.before}")
    if done.given_up > done.version:
        print(
            f"Given up: versions {done.version + 1} to {done.given_up}. Devices had receipts for these "
            f"updates and will not send them again; the old file still has {done.updates}, of {done.devices} "
            "devices"
        )
    print(f"The old files are {done.backup}*; devices that come back begin with version {done.version}")


def _file(path: Path) -> Path:
    return path / "journal.sqlite" if path.is_dir() else path

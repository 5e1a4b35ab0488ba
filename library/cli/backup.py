"""`edgeflock backup` and `edgeflock restore`: a run in one file, and back."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from edgeflock.cli.options import Json, print_json, require

File = Annotated[Path, typer.Argument(metavar="FILE", help="The backup.")]


def backup(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The run's directory [run.directory].")],
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
    print(f"{run}: version {done.version}, as run {done.run}; start its server: --set run.directory={run}")

"""`edgeflock init`: start a project."""

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer


def init(
    directory: Annotated[Path, typer.Argument(help="Folder of the project.")] = Path("."),
    data: Annotated[
        str,
        typer.Option(
            help="Data to evaluate on, e.g. 'csv:held_out.csv?label=COLUMN'; with '&held=0.2' a fifth of "
            "them, and the rest to train on. None: made-up data."
        ),
    ] = "",
) -> None:
    """Create a project: settings, a model that fits the data, and the next steps.

    Without held= the file is the server's alone, and each device names data of its own.
    """
    from edgeflock.projects.beginning import create_project
    from edgeflock.shared.data.datasets import has_splits

    project = create_project(directory, data)
    project.write()
    print(f"wrote {', '.join(str(directory / name) for name in project.files)}", file=sys.stderr)
    if data and not has_splits(data):
        print(
            f"{data} is held out, for the server to evaluate on. Devices train on other rows: "
            "edgeflock client --data URI",
            file=sys.stderr,
        )
    change_folder = "" if directory.resolve() == Path.cwd() else f"cd {shlex.quote(str(directory))} && "
    print(f"Go on with: {change_folder}edgeflock check edgeflock.toml", file=sys.stderr)

"""`edgeflock init`: begin a project."""

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer


def init(
    directory: Annotated[Path, typer.Argument(help="A folder for it.")] = Path("."),
    data: Annotated[
        str,
        typer.Option(help="What to train on, e.g. 'csv:my.csv?label=COLUMN&held=0.2'; none: made-up data."),
    ] = "",
) -> None:
    """Begin a project: settings, a model that fits the data, and how to go on.

    With held=0.2 the server evaluates on a fifth of the data, and devices train on the rest.
    """
    from edgeflock.devices.projects.beginning import begun

    project = begun(directory, data)
    project.write()
    print(f"wrote {', '.join(str(directory / name) for name in project.files)}", file=sys.stderr)
    there = "" if directory.resolve() == Path.cwd() else f"cd {shlex.quote(str(directory))} && "
    print(f"Go on with: {there}edgeflock check edgeflock.toml", file=sys.stderr)

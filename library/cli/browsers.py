"""`edgeflock browsers`: what a server needs before browsers can take part."""

from pathlib import Path
from typing import Annotated

import typer

from edgeflock.cli.groups import Group

browsers = typer.Typer(cls=Group, no_args_is_help=True, help="Prepare a server for devices in browsers.")


@browsers.callback()
def options() -> None:
    """Prepare a server for devices in browsers."""


@browsers.command()
def install(
    archive: Annotated[
        list[Path] | None,
        typer.Option("--from", metavar="FILE", help="An archive that npm pack has made; give both."),
    ] = None,
) -> None:
    """Download the two libraries that the training page loads from the server (33 MB, of which 4 MB stay).

    They are onnxruntime-web and @msgpack/msgpack, of npm, checked against their pinned SHA-512.
    """
    from edgeflock.server.web.libraries import install as install_libraries

    for folder in install_libraries(archive or ()):
        print(folder)

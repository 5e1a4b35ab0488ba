"""`edgeflock check`: put a project to the test before anything joins."""

import sys
from contextlib import redirect_stdout
from typing import Annotated

import typer

from edgeflock.devices.commands.options import (
    PROJECT,
    ConfigFile,
    Json,
    Set,
    Verbose,
    client_flags,
    needing,
    settings_of,
)


def check(
    config: ConfigFile = None,
    data: Annotated[str | None, typer.Option(help="What a device would train on [client.data].")] = None,
    set_: Set = None,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Check data against model, take a step, export it, and say what an update and a step cost.

    Nothing is written, and no server runs. Without CONFIG.toml the settings are those of edgeflock.toml, if
    that is in this folder.
    """
    with needing("server", "a check needs"):
        from edgeflock.devices.projects.checking import checked
        from edgeflock.server.choices import CHOICES

        if config is None and PROJECT.is_file():
            config = PROJECT
        settings = settings_of(config, [*(set_ or []), *client_flags(data=data)], verbose, CHOICES)
        with redirect_stdout(sys.stderr):  # the user's module may print
            found = checked(settings)
    if json:
        import json as encoder
        from dataclasses import asdict

        print(encoder.dumps({**asdict(found), "advice": list(found.advice())}))
        return
    for line in found.lines():
        print(line)

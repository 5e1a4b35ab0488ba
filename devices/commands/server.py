"""`edgeflock server`: host a model."""

import socket
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgeflock.devices.commands.options import ConfigFile, Json, Set, Verbose, needing, settings_of
from edgeflock.shared.errors import EdgeflockError

if TYPE_CHECKING:
    from edgeflock.server.hosting import HostedRun
    from edgeflock.shared.settings.config import Config


def server(
    config: ConfigFile = None,
    set_: Set = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Speak plain HTTP also beyond this machine [run.insecure].")
    ] = False,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Host a model and take updates for it, until interrupted."""
    import asyncio

    from edgeflock.server.identity import ADMIN_TOKEN

    results, sys.stdout = sys.stdout, sys.stderr  # a user's module may print; stdout is for results

    def ready(settings: "Config", hosted: "HostedRun", port: int) -> None:
        wildcard = settings.run.host in ("0.0.0.0", "::", "")
        scheme = "http" if hosted.tls is None else "https"
        url = f"{scheme}://{socket.gethostname() if wildcard else settings.run.host}:{port}"
        version = hosted.engine.published.version
        assert hosted.register is not None, "every run that is opened has one"
        hosted.register.listens(url, hosted.pin)
        if json:
            import json as encoder

            line = encoder.dumps({"url": url, "run": hosted.run, "version": version})
            print(line, file=results, flush=True)
            return
        print(f"Run {hosted.run} at version {version} on {url}", file=sys.stderr)
        if settings.run.open:
            print(f"On each device: edgeflock client --server {url} --data URI", file=sys.stderr)
        else:
            # Each start makes one: nobody can be told a token again.
            token = hosted.register.create("device", reusable=True, seconds=86400.0, labels={}).text
            print(f"On each device, within a day: edgeflock client join {url} {token}", file=sys.stderr)
        kept = Path(settings.run.directory) / ADMIN_TOKEN
        print(f"To watch and act: edgeflock top {url} --token-file {kept}", file=sys.stderr)

    with needing("server", "the server needs"):
        from edgeflock.server.app import serve
        from edgeflock.server.choices import CHOICES
        from edgeflock.server.hosting import open_run

        asked = [*(set_ or []), *(["run.insecure=true"] if insecure else [])]
        settings = settings_of(config, asked, verbose, CHOICES)
        with open_run(settings) as hosted:
            try:
                asyncio.run(serve(settings, hosted, partial(ready, settings, hosted)))
            except OSError as error:
                where = f"{settings.run.host}:{settings.run.port}"
                raise EdgeflockError(f"cannot listen on {where}: {error.strerror}") from error

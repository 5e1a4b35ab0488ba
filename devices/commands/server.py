"""`edgeflock server`: host a model."""

import socket
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from edgeflock.devices.commands.options import ConfigFile, Json, Set, Verbose, needing, settings_of
from edgeflock.shared.errors import EdgeflockError

if TYPE_CHECKING:
    from edgeflock.server.hosting import HostedRun
    from edgeflock.shared.settings.config import Config


def server(config: ConfigFile = None, set_: Set = None, json: Json = False, verbose: Verbose = False) -> None:
    """Host a model and take updates for it, until interrupted."""
    import asyncio

    results, sys.stdout = sys.stdout, sys.stderr  # a user's module may print; stdout is for results

    def ready(settings: "Config", hosted: "HostedRun", port: int) -> None:
        wildcard = settings.run.host in ("0.0.0.0", "::", "")
        url = f"http://{socket.gethostname() if wildcard else settings.run.host}:{port}"
        version = hosted.engine.published.version
        if json:
            import json as encoder

            line = encoder.dumps({"url": url, "run": hosted.run, "version": version})
            print(line, file=results, flush=True)
        else:
            secret = f"EDGEFLOCK_TOKEN={hosted.token} " if hosted.token else ""
            print(f"Run {hosted.run} at version {version} on {url}", file=sys.stderr)
            print(f"On each device: {secret}edgeflock client --server {url} --data URI", file=sys.stderr)
            kept = Path(settings.run.directory) / "admin-token"
            admin = "FILE, which holds run.admin_token" if settings.run.admin_token else kept
            print(f"To watch and act: edgeflock top {url} --token-file {admin}", file=sys.stderr)

    with needing("server", "the server needs"):
        from edgeflock.server.app import serve
        from edgeflock.server.choices import CHOICES
        from edgeflock.server.hosting import open_run

        settings = settings_of(config, set_, verbose, CHOICES)
        with open_run(settings) as hosted:
            try:
                asyncio.run(serve(settings, hosted, partial(ready, settings, hosted)))
            except OSError as error:
                where = f"{settings.run.host}:{settings.run.port}"
                raise EdgeflockError(f"cannot listen on {where}: {error.strerror}") from error

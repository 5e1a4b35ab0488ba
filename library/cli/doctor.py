"""`edgeflock doctor` and `edgeflock report`: problems of this machine, as text and as a file for helpers."""

import os
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgeflock.cli.options import ConfigFile, Json, Set, load_settings, print_json, require
from edgeflock.shared.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edgeflock.doctor import CheckResult
    from edgeflock.shared.settings.config import Config

OfServer = Annotated[bool, typer.Option("--server", help="Check a server, not a device.")]


def doctor(config: ConfigFile = None, server: OfServer = False, set_: Set = None, json: Json = False) -> None:
    """Check what keeps this machine from training, or a server from serving, and say what to do.

    Exit code 1 if something will not work. Nothing is changed, and nothing is sent but a request to the
    server that this device has joined.
    """
    settings = _settings(config, set_, server)
    results = []
    for finding in _check(settings, server):
        results.append(finding)
        if not json:
            print("\n".join(finding.lines()), flush=True)
    is_ok = all(finding.state != "bad" for finding in results)
    if json:
        print_json({"ok": is_ok, "findings": [asdict(finding) for finding in results]})
    if not is_ok:
        raise typer.Exit(1)


def report(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A new file, e.g. report.tar.gz.")],
    config: ConfigFile = None,
    server: OfServer = False,
    log: Annotated[
        Path | None, typer.Option(metavar="PATH", help="A log; default: the service's log in systemd.")
    ] = None,
    set_: Set = None,
) -> None:
    """Put what doctor says, settings, versions, and the log's last lines into one file, without secrets."""
    from edgeflock.client.identity import default_path
    from edgeflock.doctor import build_report
    from edgeflock.doctor.report import service_log

    settings = _settings(config, set_, server)
    try:
        lines = (
            service_log("server" if server else "client")
            if log is None
            else log.read_text("utf-8", "replace").splitlines()
        )
        directory = Path(settings.server.directory)
        octets = build_report(
            list(_check(settings, server)),
            settings,
            os.environ,
            identity=Path(settings.client.identity) if settings.client.identity else default_path(),
            directory=directory if directory.is_dir() else None,
            log=lines,
            now=time.time(),
        )
        with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as opened:
            opened.write(octets)
    except FileExistsError as error:
        raise ConfigError(f"{file}: there is such a file already; name another") from error
    except OSError as error:
        raise ConfigError(f"{error.filename}: {error.strerror}") from error
    print(f"{file}: {len(octets):,} bytes; look at it before you send it", file=sys.stderr)


def _settings(config: Path | None, set_: list[str] | None, server: bool) -> "Config":
    if not server:
        return load_settings(config, set_)
    with require("server", "the server needs"):
        from edgeflock.server.hosting.choices import CHOICES
    return load_settings(config, set_, tables=CHOICES)


def _check(settings: "Config", server: bool) -> "Iterator[CheckResult]":
    from edgeflock.doctor import check_device, check_server

    return check_server(settings) if server else check_device(settings.client)

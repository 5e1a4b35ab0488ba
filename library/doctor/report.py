"""One file for whoever is to help: what doctor found, settings, versions, the last lines of log and audit.

What goes in is made here, a file at a time; nothing is copied. Of a log only lines of ours go in, of an audit
only its three known fields; keys, tokens, data, models, journals and what a user's code printed stay out.
"""

import io
import json
import platform
import re
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

from edgeflock.doctor.finding import CheckResult
from edgeflock.doctor.secrets import scrubbed, scrubbed_all, secrets_of, told
from edgeflock.shared.settings.config import Config

LAST = 2000
"""Lines of a log, and of an audit, that go in."""

_LINE = re.compile(r"\d{4}-\d\d-\d\dT\S+ (DEBUG|INFO|WARNING|ERROR|CRITICAL) edgeflock[\w.]*: ")
"""What a line of the log begins with (cli/options.py)."""

_FIELDS = ("time", "level", "logger", "message")
"""Of a line of the log as JSON."""


def bundled(
    findings: Sequence[CheckResult],
    config: Config,
    environ: Mapping[str, str],
    *,
    identity: Path,
    directory: Path | None,
    log: Iterable[str],
    now: float,
) -> bytes:
    """A tar.gz. `directory` is a run's, if there is one here; `identity` what a device joined with."""
    secrets = secrets_of(config, environ, identity, directory)
    parts: dict[str, Any] = {
        "doctor.json": [asdict(found) for found in findings],
        "settings.json": told(config),
        "versions.json": versions(),
        "environment.json": sorted(name for name in environ if name.startswith("EDGEFLOCK_")),
    }
    if directory is not None:
        from edgeflock.server.identity.audit import AUDIT  # a device has not what that needs

        if (directory / AUDIT).is_file():
            parts["audit.json"] = audited((directory / AUDIT).read_text("utf-8", "replace").splitlines())
    texts = {name: json.dumps(scrubbed_all(part, secrets), indent=1) + "\n" for name, part in parts.items()}
    ours, others = lines_of(log)
    texts["log.txt"] = "".join(f"{scrubbed(line, secrets)}\n" for line in ours) + (
        f"({others} other lines were left out)\n" if others else ""
    )
    return _packed(texts, now)


def versions() -> dict[str, object]:
    """Of all that runs here."""
    return {
        "python": sys.version,
        "platform": platform.platform(),
        "libc": " ".join(platform.libc_ver()),
        "machine": platform.machine(),
        "packages": {
            one.metadata["Name"]: one.version
            for one in sorted(metadata.distributions(), key=lambda one: str(one.metadata["Name"]).lower())
        },
    }


def audited(lines: Sequence[str]) -> list[dict[str, object]]:
    """When, who and what of the last lines of an audit."""
    found = []
    for line in lines[-LAST:]:
        try:
            said = json.loads(line)
            found.append({key: said[key] for key in ("time", "who", "did")})
        except (ValueError, KeyError, TypeError):
            continue  # half a line
    return found


def lines_of(log: Iterable[str]) -> tuple[list[str], int]:
    """(the last lines that are of our log, text or JSON; how many others there were)."""
    ours, others = [], 0
    for line in log:
        if _LINE.match(line):
            ours.append(line)
        elif (said := _object(line)) is not None:
            ours.append(" ".join(said))
        else:
            others += 1
    return ours[-LAST:], others


def _object(line: str) -> list[str] | None:
    """The fields of a line of JSON, without its traceback."""
    try:
        said = json.loads(line)
        found = [str(said[field]) for field in _FIELDS]
    except (ValueError, KeyError, TypeError):
        return None
    return found if found[2].startswith("edgeflock") else None


def of_the_service(role: str, run: Callable[..., Any] = subprocess.run) -> list[str]:
    """What systemd kept of the service's log; nothing where there is none."""
    command = [
        "journalctl",
        "--unit",
        f"edgeflock-{role}",
        "--output",
        "cat",
        "--no-pager",
        "--lines",
        str(LAST),
    ]
    try:
        done = run(command, capture_output=True, text=True, errors="replace", timeout=60)
    except (OSError, subprocess.SubprocessError):
        return []
    return str(done.stdout).splitlines() if done.returncode == 0 else []


def _packed(texts: Mapping[str, str], now: float) -> bytes:
    octets = io.BytesIO()
    folder = time.strftime("edgeflock-report-%Y%m%dT%H%M%S", time.gmtime(now))
    with tarfile.open(fileobj=octets, mode="w:gz") as archive:
        for name, text in texts.items():
            info = tarfile.TarInfo(f"{folder}/{name}")
            info.size, info.mtime, info.mode = len(text.encode()), int(now), 0o600
            archive.addfile(info, io.BytesIO(text.encode()))
    return octets.getvalue()

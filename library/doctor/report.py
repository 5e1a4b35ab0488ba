"""A report for helpers in one file: doctor's results, settings, versions, the end of log and audit.

Each part is made here, and no file is copied. A log contributes only Edgeflock's lines, and an audit only its
three known fields. Keys, tokens, data, models, journals and the output of a user's code are left out.
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
from edgeflock.doctor.secrets import harmless_settings, scrub, scrub_all, secrets_of
from edgeflock.shared.settings.config import Config

LAST = 2000
"""The number of last lines of a log, and of an audit."""

_LINE = re.compile(r"\d{4}-\d\d-\d\dT\S+ (DEBUG|INFO|WARNING|ERROR|CRITICAL) edgeflock[\w.]*: ")
"""The beginning of a line of the log (cli/options.py)."""

_FIELDS = ("time", "level", "logger", "message")
"""Fields of a line of the log as JSON."""


def build_report(
    findings: Sequence[CheckResult],
    config: Config,
    environ: Mapping[str, str],
    *,
    identity: Path,
    directory: Path | None,
    log: Iterable[str],
    now: float,
) -> bytes:
    """Return a tar.gz. `directory` is a run's, if it is here. `identity` is that of a device that joined."""
    secrets = secrets_of(config, environ, identity, directory)
    parts: dict[str, Any] = {
        "doctor.json": [asdict(entries) for entries in findings],
        "settings.json": harmless_settings(config),
        "versions.json": versions(),
        "environment.json": sorted(name for name in environ if name.startswith("EDGEFLOCK_")),
    }
    if directory is not None:
        from edgeflock.server.identity.audit import AUDIT  # a device has not what that needs

        if (directory / AUDIT).is_file():
            parts["audit.json"] = read_audit((directory / AUDIT).read_text("utf-8", "replace").splitlines())
    texts = {name: json.dumps(scrub_all(part, secrets), indent=1) + "\n" for name, part in parts.items()}
    ours, others = split_log(log)
    texts["log.txt"] = "".join(f"{scrub(line, secrets)}\n" for line in ours) + (
        f"({others} other lines were left out)\n" if others else ""
    )
    return _pack(texts, now)


def versions() -> dict[str, object]:
    """Return the versions of the software here."""
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


def read_audit(lines: Sequence[str]) -> list[dict[str, object]]:
    """Return time, actor and action of the last lines of an audit."""
    entries = []
    for line in lines[-LAST:]:
        try:
            entry = json.loads(line)
            entries.append({key: entry[key] for key in ("time", "who", "did")})
        except (ValueError, KeyError, TypeError):
            continue  # an incomplete line
    return entries


def split_log(log: Iterable[str]) -> tuple[list[str], int]:
    """Return (the last lines of our log, text or JSON; the number of other lines)."""
    ours, others = [], 0
    for line in log:
        if _LINE.match(line):
            ours.append(line)
        elif (entry := _object(line)) is not None:
            ours.append(" ".join(entry))
        else:
            others += 1
    return ours[-LAST:], others


def _object(line: str) -> list[str] | None:
    """Return the fields of a JSON line, without its traceback."""
    try:
        entry = json.loads(line)
        entries = [str(entry[field]) for field in _FIELDS]
    except (ValueError, KeyError, TypeError):
        return None
    return entries if entries[2].startswith("edgeflock") else None


def service_log(role: str, run: Callable[..., Any] = subprocess.run) -> list[str]:
    """Return systemd's log of the service, or nothing if there is none."""
    command = f"journalctl --unit edgeflock-{role} --output cat --no-pager --lines {LAST}".split()
    try:
        done = run(command, capture_output=True, text=True, errors="replace", timeout=60)
    except (OSError, subprocess.SubprocessError):
        return []
    return str(done.stdout).splitlines() if done.returncode == 0 else []


def _pack(texts: Mapping[str, str], now: float) -> bytes:
    octets = io.BytesIO()
    folder = time.strftime("edgeflock-report-%Y%m%dT%H%M%S", time.gmtime(now))
    with tarfile.open(fileobj=octets, mode="w:gz") as archive:
        for name, text in texts.items():
            info = tarfile.TarInfo(f"{folder}/{name}")
            info.size, info.mtime, info.mode = len(text.encode()), int(now), 0o600
            archive.addfile(info, io.BytesIO(text.encode()))
    return octets.getvalue()

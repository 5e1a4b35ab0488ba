"""A report for helpers in one file: doctor's results, settings, versions, the end of log and audit.

Each part is made here, and no file is copied. A log contributes only Edgeflock's lines, and an audit only its
three known fields. Keys, tokens, data, models, journals and the output of a user's code are left out.

The known secrets of this machine are removed from texts. A value is shown only if it is known to be harmless:
numbers, and texts that are names of choices. Known secrets are then removed from every other text. So are
words that are tokens, and the parts of URLs beyond their destination, whatever their origin.
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
from urllib.parse import urlsplit

from edgeflock.client.data.sources.opening import SOURCES
from edgeflock.doctor.finding import CheckResult
from edgeflock.shared.data.datasets import READERS
from edgeflock.shared.identity.tokens import PREFIX
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


HIDDEN = "(hidden)"

OPEN_SECTIONS = ("coordination", "optimizer", "compression", "downlink", "local")
"""Sections whose texts are names of rules, modes and codings."""

OPEN_TEXTS = (
    "server.directory",
    "server.host",
    "server.client_certificates",
    "local.optimizer",
    "client.backend",
)

NAMES_OF_CODE = ("model.module", "model.loss", "model.evaluate", "client.model")
"""Import strings, shown without their arguments."""

_VARIABLES = ("TOKEN", "PASSWORD", "PASSWD", "SECRET", "KEY", "CREDENTIAL")
"""Parts of the names of environment variables with secrets."""

_SHORTEST = 6
"""The shortest secret that is searched for, in characters. Shorter ones are parts of harmless words."""


def harmless_settings(config: Config) -> dict[str, dict[str, object]]:
    """Return the settings that everybody may see."""
    return {
        name: {key: _harmless_value(f"{name}.{key}", value) for key, value in section.model_dump().items()}
        for name, section in config
    }


def _harmless_value(key: str, value: object) -> object:
    if isinstance(value, bool | int | float) and not key.startswith("client_config."):
        return value
    if value in ("", [], {}) or key in OPEN_TEXTS or key.partition(".")[0] in OPEN_SECTIONS:
        return value
    if isinstance(value, str) and key in NAMES_OF_CODE:
        name, call, _ = value.partition("(")
        return f"{name}({HIDDEN})" if call else name
    if isinstance(value, str) and key == "client.server":
        return _scrubbed_word(value)
    if isinstance(value, str) and (scheme := value.partition(":")[0]) in {*READERS, *SOURCES}:
        return f"{scheme}:{HIDDEN}"
    return HIDDEN


def secrets_of(
    config: Config, environ: Mapping[str, str], identity: Path, directory: Path | None = None
) -> set[str]:
    """Return all known secrets here: of settings, environment, identity, and a run directory's tokens."""
    found = {value for name, value in environ.items() if any(part in name.upper() for part in _VARIABLES)}
    for section, values in config:
        for key, value in values.model_dump(exclude_defaults=True).items():
            if _harmless_value(f"{section}.{key}", value) != value:
                found |= _texts(value)
    files = [identity]
    if directory is not None:
        from edgeflock.server.identity import ADMIN_TOKEN  # a device has not what that needs

        files.append(directory / ADMIN_TOKEN)
    for path in files:
        try:
            kept = path.read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError):
            continue
        try:
            found |= _texts({key: v for key, v in json.loads(kept).items() if key not in ("server", "name")})
        except (ValueError, AttributeError):
            found.add(kept)
    for text in list(found):
        found |= _passwords(text)
    return {text for text in found if len(text) >= _SHORTEST}


def _texts(value: object) -> set[str]:
    if isinstance(value, str):
        return {value}
    if isinstance(value, Mapping):
        return set().union(*map(_texts, value.values())) if value else set()
    return set().union(*map(_texts, value)) if isinstance(value, list | tuple) and value else set()


def _passwords(text: str) -> set[str]:
    """Return the password of a URL, and the text after its question mark."""
    try:
        url = urlsplit(text)
        return {part for part in (url.password, url.query) if part}
    except ValueError:
        return set()


def scrub(text: str, secrets: Iterable[str]) -> str:
    """Return `text` without the `secrets`, tokens, and the parts of URLs beyond their destination."""
    for secret in sorted(secrets, key=len, reverse=True):  # one secret may contain another
        text = text.replace(secret, HIDDEN)
    return " ".join(_scrubbed_word(word) for word in text.split(" "))


def _scrubbed_word(word: str) -> str:
    bare = word.strip("'\"`.,;:()[]{}<>")
    if (start := bare.find(f"{PREFIX}.")) >= 0:
        return word.replace(bare[start:], HIDDEN)  # also a part of a token is none to tell
    if "://" in bare:
        try:
            url = urlsplit(bare)
        except ValueError:
            return HIDDEN
        if url.query or "@" in url.netloc:
            place = url.netloc.rpartition("@")[2]
            return word.replace(bare, f"{url.scheme}://{place}{url.path}")
    return word


def scrub_all(value: Any, secrets: Iterable[str]) -> Any:
    """Apply `scrub` to all texts in JSON."""
    if isinstance(value, str):
        return scrub(value, secrets)
    if isinstance(value, dict):
        return {key: scrub_all(one, secrets) for key, one in value.items()}
    return [scrub_all(one, secrets) for one in value] if isinstance(value, list) else value

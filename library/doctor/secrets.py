"""The known secrets of this machine, and their removal from texts.

A value is shown only if it is known to be harmless: numbers, and texts that are names of choices. Known
secrets are then removed from every other text. So are words that are tokens, and the parts of URLs beyond
their destination, whatever their origin.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from edgeflock.client.data.sources.opening import SOURCES
from edgeflock.shared.data.datasets import READERS
from edgeflock.shared.identity.tokens import PREFIX
from edgeflock.shared.settings.config import Config

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

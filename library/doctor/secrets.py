"""What is known to be secret on this machine, and texts without it.

A value is told only if it is known to be harmless: settings that are numbers, or whose texts are names of
choices. What is known as a secret is then taken out of every other text, and so are words that are tokens, or
URLs with more in them than where they lead, whoever wrote them there.
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

OPEN_SECTIONS = ("coordination", "optimizer", "compression", "downlink")
"""Their texts are names of rules, modes and codings."""

OPEN_TEXTS = ("run.directory", "run.host", "run.client_certificates", "run.local_optimizer", "client.backend")

NAMES_OF_CODE = ("model.module", "model.loss", "model.evaluate", "client.model")
"""Import strings, told without their arguments."""

_VARIABLES = ("TOKEN", "PASSWORD", "PASSWD", "SECRET", "KEY", "CREDENTIAL")
"""In names of the environment's variables."""

_SHORTEST = 6
"""Characters of a secret that is looked for in texts; shorter ones are in words that mean something else."""


def told(config: Config) -> dict[str, dict[str, object]]:
    """The settings, as far as anybody may see them."""
    return {
        name: {key: _told(f"{name}.{key}", value) for key, value in section.model_dump().items()}
        for name, section in config
    }


def _told(key: str, value: object) -> object:
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
    """Every text here that opens something, as far as it is known: of settings, environment, the identity of
    a device, and the tokens in a run's directory.
    """
    found = {value for name, value in environ.items() if any(part in name.upper() for part in _VARIABLES)}
    for section, values in config:
        for key, value in values.model_dump(exclude_defaults=True).items():
            if _told(f"{section}.{key}", value) != value:
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
    """All texts in it."""
    if isinstance(value, str):
        return {value}
    if isinstance(value, Mapping):
        return set().union(*map(_texts, value.values())) if value else set()
    return set().union(*map(_texts, value)) if isinstance(value, list | tuple) and value else set()


def _passwords(text: str) -> set[str]:
    """That of a URL, and what stands behind its question mark."""
    try:
        url = urlsplit(text)
        return {part for part in (url.password, url.query) if part}
    except ValueError:
        return set()


def scrubbed(text: str, secrets: Iterable[str]) -> str:
    """`text` with none of the `secrets` in it, no token, and no URL that says more than where it leads."""
    for secret in sorted(secrets, key=len, reverse=True):  # the longest first: one may be in another
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


def scrubbed_all(value: Any, secrets: Iterable[str]) -> Any:
    """The same of all texts in JSON."""
    if isinstance(value, str):
        return scrubbed(value, secrets)
    if isinstance(value, dict):
        return {key: scrubbed_all(one, secrets) for key, one in value.items()}
    return [scrubbed_all(one, secrets) for one in value] if isinstance(value, list) else value

"""What to install for what is missing, in words that work from a clone as well."""

import json
from importlib import metadata
from urllib.parse import unquote, urlsplit


def install(extra: str) -> str:
    """The command that brings the packages of `extra`."""
    return f"pip install '{_source()}[{extra}]'"


def _source() -> str:
    """Where this package was installed from: the path of a clone, or else its name."""
    try:
        told = metadata.distribution("edgeflock").read_text("direct_url.json")
        parts = urlsplit(json.loads(told or "{}").get("url", ""))
    except (metadata.PackageNotFoundError, ValueError, AttributeError):
        return "edgeflock"
    return unquote(parts.path) if parts.scheme == "file" and not parts.path.endswith(".whl") else "edgeflock"

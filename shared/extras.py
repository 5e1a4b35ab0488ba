"""What to install for what is missing, in words that work from a clone as well."""

import json
from importlib import metadata
from urllib.parse import unquote, urlsplit


def install(extra: str) -> str:
    """The command that brings the packages of `extra`."""
    source = _source()
    where = "" if source != "." else " in a clone of Edgeflock"
    return f"pip install '{source}[{extra}]'{where}"


def _source() -> str:
    """Where this package was installed from, a clone or a wheel; "." of what nobody knows. The package index
    has none of ours.
    """
    try:
        told = metadata.distribution("edgeflock").read_text("direct_url.json")
        parts = urlsplit(json.loads(told or "{}").get("url", ""))
    except (metadata.PackageNotFoundError, ValueError, AttributeError):
        return "."
    return unquote(parts.path) if parts.scheme == "file" else "."

"""The pip command that installs a missing optional package. It also works from a clone."""

import json
from importlib import metadata
from urllib.parse import unquote, urlsplit


def install(extra: str) -> str:
    """Return the command that installs the packages of `extra`."""
    source = _source()
    where = "" if source != "." else " in a clone of Edgeflock"
    return f"pip install '{source}[{extra}]'{where}"


def _source() -> str:
    """Return the path of the clone or wheel that this package was installed from, or "." if it is unknown.
    The package index does not have this package."""
    try:
        told = metadata.distribution("edgeflock").read_text("direct_url.json")
        parts = urlsplit(json.loads(told or "{}").get("url", ""))
    except (metadata.PackageNotFoundError, ValueError, AttributeError):
        return "."
    return unquote(parts.path) if parts.scheme == "file" else "."

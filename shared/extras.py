"""The pip command that installs a missing optional package. It also works from a clone."""

import json
from importlib import metadata
from urllib.parse import unquote, urlsplit


def install_command(extra: str) -> str:
    """Return the command that installs the packages of `extra`."""
    source = _source()
    hint = "" if source != "." else " in a clone of Edgeflock"
    return f"pip install '{source}[{extra}]'{hint}"


def _source() -> str:
    """Return the path of the clone or wheel that this package was installed from; "." if it is unknown.

    The package index does not have this package.
    """
    try:
        text = metadata.distribution("edgeflock").read_text("direct_url.json")
        parts = urlsplit(json.loads(text or "{}").get("url", ""))
    except (metadata.PackageNotFoundError, ValueError, AttributeError):
        return "."
    return unquote(parts.path) if parts.scheme == "file" else "."

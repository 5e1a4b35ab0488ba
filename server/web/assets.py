"""The page's files, which are read once, and the headers of all of them."""

import hashlib
from dataclasses import dataclass
from importlib.resources import files

HEADERS = {
    # Scripts, styles and connections of this origin only, and nothing inline.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # Revalidated each time, and sent again only if it has changed.
    "Cache-Control": "no-cache",
}

_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


@dataclass(frozen=True, slots=True)
class Asset:
    """A file of the page."""

    octets: bytes
    content_type: str
    digest: str
    """SHA-256, in hex."""


def edition(page: dict[str, Asset]) -> str:
    """A text that differs for each version of the page. An open page notices it and reloads."""
    return hashlib.sha256("".join(page[name].digest for name in sorted(page)).encode()).hexdigest()


def assets() -> dict[str, Asset]:
    """All files by name. index.html is the page."""
    found: dict[str, Asset] = {}
    for file in files("edgeflock.server.web").joinpath("assets").iterdir():
        kind = _TYPES.get(file.name[file.name.rfind(".") :])
        if kind is not None:
            octets = file.read_bytes()
            found[file.name] = Asset(octets, kind, hashlib.sha256(octets).hexdigest())
    return found

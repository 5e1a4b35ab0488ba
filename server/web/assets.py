"""The files of the monitor and of the training page, read once, and the headers of their answers."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

_POLICY = (
    "default-src 'none'; script-src 'self'{scripts}; worker-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Scripts, styles and connections of this origin only, and nothing inline."""

HEADERS = {
    "Content-Security-Policy": _POLICY.format(scripts=""),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # Revalidated each time, and sent again only if it has changed.
    "Cache-Control": "no-cache",
}

TRAINING_HEADERS = HEADERS | {
    "Content-Security-Policy": _POLICY.format(scripts=" 'wasm-unsafe-eval'"),
    # No page within this one, and no camera or the like: it reads the accelerometer and the battery.
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
"""Of the training page and its workers, which compile WebAssembly."""

_TYPES = {
    ".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".mjs": "text/javascript",
    ".svg": "image/svg+xml", ".wasm": "application/wasm",
}  # fmt: skip

_NOT_SERVED = ("example", "node_modules", "types", "vendor")
"""Folders of a clone that are no part of the device."""


@dataclass(frozen=True, slots=True)
class Asset:
    """A file of a page."""

    octets: bytes
    content_type: str
    digest: str
    """SHA-256, in hex."""
    encoding: str = ""
    """Of the octets, as Content-Encoding names it; empty: none."""


def edition(page: dict[str, Asset]) -> str:
    """A text that differs for each version of the page. An open page notices it and reloads."""
    return hashlib.sha256("".join(page[name].digest for name in sorted(page)).encode()).hexdigest()


def assets() -> dict[str, Asset]:
    """All files of the monitor by name. index.html is the page."""
    return _read(files("edgeflock.server.web").joinpath("assets"))


def training_assets() -> dict[str, Asset]:
    """All files of the training page by their paths below /train/: page/index.html is the page.

    device/ has the device in JavaScript, without the libraries that it imports (libraries.py).
    """
    device = files("edgeflock.client").joinpath("browser")
    page = _read(files("edgeflock.server.web").joinpath("train"), "page/")
    return page | (_read(device, "device/") if device.is_dir() else {})


def asset(file: Traversable | Path) -> Asset | None:
    """Read a file; None if its kind is not served. NAME.gz is served as NAME, in its encoding."""
    name, encoding = (file.name[:-3], "gzip") if file.name.endswith(".gz") else (file.name, "")
    kind = _TYPES.get(name[name.rfind(".") :])
    if kind is None:
        return None
    octets = file.read_bytes()
    return Asset(octets, kind, hashlib.sha256(octets).hexdigest(), encoding)


def _read(folder: Traversable, prefix: str = "") -> dict[str, Asset]:
    return {path: found for path, file in _walk(folder, prefix) if (found := asset(file)) is not None}


def _walk(folder: Traversable, prefix: str) -> Iterator[tuple[str, Traversable]]:
    for entry in folder.iterdir():
        if entry.is_file():
            yield prefix + entry.name, entry
        elif entry.name not in _NOT_SERVED:
            yield from _walk(entry, f"{prefix}{entry.name}/")

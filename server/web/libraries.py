"""The two npm packages with which browsers train, in the user's cache.

    onnxruntime-web     computes the graphs in WebAssembly
    msgpack             codes the records

Pages load them from this server alone. `install` downloads them once, and checks them against pinned SHA-512.
"""

import base64
import gzip
import hashlib
import io
import os
import shutil
import tarfile
import urllib.request
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from edgeflock.shared.errors import ConfigError
from edgeflock.shared.files import cache_folder

INSTALL = "edgeflock browsers install"

_REGISTRY = "https://registry.npmjs.org"
_SECONDS = 120.0
_LONGEST = 1 << 26
"""The most bytes of an archive."""


class Library(NamedTuple):
    """A version of an npm package, and which of its files browsers load."""

    archive: str
    """The path of its archive in the registry."""
    sha512: str
    """Of the archive, in base64, as npm writes it."""
    folder: str
    """The folder of the archive that has the files."""
    names: tuple[str, ...]
    """The ends of the files' names."""

    @property
    def path(self) -> Path:
        """Where it is once it is installed. Each version has its own folder."""
        return cache_folder() / "browser" / self.archive.rpartition("/")[2].removesuffix(".tgz")


LIBRARIES = {
    "onnxruntime-web": Library(
        "onnxruntime-web/-/onnxruntime-web-1.30.0.tgz",
        "q0y+JrrtukXSzsBWEMccVfqX25LRmosXHF+CaRJmg8pZClzcV7svNc4rKY3jL02Vb7QmRMDs1SigqR4CXAfKYQ==",
        "package/dist/",
        ("ort.wasm.bundle.min.mjs", "ort-wasm-simd-threaded.wasm"),
    ),
    "msgpack": Library(
        "@msgpack/msgpack/-/msgpack-3.1.3.tgz",
        "47XIizs9XZXvuJgoaJUIE2lFoID8ugvc0jzSHP+Ptfk8nTbnR8g788wv48N03Kx0UkAv559HWRQ3yzOgzlRNUA==",
        "package/dist.esm/",
        (".mjs",),
    ),
}
"""By the names of their folders below /train/device/vendor/."""


def missing_libraries() -> str:
    """What the operator has to do before browsers can train; empty: nothing."""
    if all(library.path.is_dir() for library in LIBRARIES.values()):
        return ""
    return f"this server lacks the libraries with which browsers train; its operator runs: {INSTALL}"


def library_file(path: str) -> Path | None:
    """The installed file at NAME/PATH below /train/device/vendor/, or None. It may be compressed."""
    name, _, rest = path.partition("/")
    if name not in LIBRARIES:
        return None
    folder = LIBRARIES[name].path
    found = (file for file in folder.rglob("*") if file.is_file())
    return next((file for file in found if file.relative_to(folder).as_posix() in (rest, f"{rest}.gz")), None)


def install(archives: Iterable[Path] = ()) -> list[Path]:
    """Install all libraries, from npm or from `archives` of it. Return their folders.

    Raises ConfigError, and installs nothing of an archive that is not the pinned one.
    """
    given = {_digest(octets): octets for octets in map(_read, archives)}
    for library in LIBRARIES.values():
        octets = given.get(library.sha512)
        if octets is None and given:
            raise ConfigError(f"--from: none of the files is {library.archive}; get it: npm pack")
        _unpack(library, _download(library) if octets is None else octets)
    return [library.path for library in LIBRARIES.values()]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"--from {path}: {error.strerror}") from error


def _digest(octets: bytes) -> str:
    return base64.b64encode(hashlib.sha512(octets).digest()).decode()


def _download(library: Library) -> bytes:
    url = f"{_REGISTRY}/{library.archive}"
    try:
        with urllib.request.urlopen(url, timeout=_SECONDS) as answer:
            octets: bytes = answer.read(_LONGEST)
    except OSError as error:
        raise ConfigError(
            f"{url} cannot be downloaded: {error}; download it elsewhere and give it: --from FILE"
        ) from error
    if _digest(octets) != library.sha512:
        raise ConfigError(f"{url} is not the file that this Edgeflock knows (SHA-512); nothing is installed")
    return octets


def _unpack(library: Library, octets: bytes) -> None:
    """Replace the library's folder by the files of its archive. WebAssembly is stored compressed."""
    fresh = library.path.with_name(f".{library.path.name}.{os.getpid()}")
    with tarfile.open(fileobj=io.BytesIO(octets), mode="r:gz") as archive:
        for member in archive.getmembers():
            if not (member.isfile() and member.name.startswith(library.folder)):
                continue
            target = fresh / member.name.removeprefix(library.folder)
            file = archive.extractfile(member) if target.name.endswith(library.names) else None
            if file is None:
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            if target.suffix == ".wasm":
                target.with_name(f"{target.name}.gz").write_bytes(gzip.compress(file.read(), mtime=0))
            else:
                target.write_bytes(file.read())
    shutil.rmtree(library.path, ignore_errors=True)
    fresh.rename(library.path)

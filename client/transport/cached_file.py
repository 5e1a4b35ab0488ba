"""A file that devices download once: with resumption, and only if it matches the announced digest.

It is cached in the device's folder as DIGEST.first-model or DIGEST.base, where restarts, other runs and other
devices of the folder find it. An incomplete download is a .part file, one for each device. The file name
contains the expected digest.
"""

import hashlib
import logging
import os
import re
import shutil
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from edgeflock.client.training.interfaces import Compute
from edgeflock.shared.errors import ConfigError, Malformed
from edgeflock.shared.numbers import size as size_text

log = logging.getLogger(__name__)

_RANGE = re.compile(r"bytes (\d{1,18})-\d{1,18}/(\d{1,18})")

_PARTS = 4
"""The number of latest partial files of a device to keep: a server may announce ever new files."""


class FileKind(NamedTuple):
    """A kind of cached files."""

    name: str
    """Its name in messages."""
    suffix: str
    """The end of the files' names."""
    route: str
    """Where a server has it, below /v1."""
    max_files: int
    """The number of latest files to keep in a folder."""


FIRST_MODEL = FileKind("first model", "first-model", "start", 4)
BASE = FileKind("base of the model", "base", "base", 2)


class CachedFile:
    """The cache file of one digest: complete, partial, or missing."""

    def __init__(self, directory: Path, kind: FileKind, digest: bytes, size: int, device: str) -> None:
        """`digest` is the SHA-256 of its `size` bytes.

        Raises ConfigError if the folder cannot be written, as all methods do.
        """
        self.kind, self.expected = kind, size
        self._directory, self._digest = directory, digest
        self._etag = f'"{digest.hex()}"'
        self._path = directory / f"{digest.hex()}.{kind.suffix}"
        owner = hashlib.sha256(device.encode()).hexdigest()
        self._parts = f"*-{owner[:16]}.part"
        self._part = directory / self._parts.replace("*", digest.hex()[:32])
        with self._writing():
            directory.mkdir(parents=True, exist_ok=True)
            self.size = self._part.stat().st_size if self._part.exists() else 0
            """Bytes of the partial file."""
        if self.missing < 0:
            self.drop()

    @property
    def missing(self) -> int:
        """Bytes that are still to come."""
        return self.expected - self.size

    @property
    def headers(self) -> dict[str, str]:
        """The headers of a request for what is missing."""
        whole = {"Accept-Encoding": "identity"}
        return {**whole, "Range": f"bytes={self.size}-", "If-Range": self._etag} if self.size else whole

    def begin(self, headers: Mapping[str, str]) -> bool:
        """Prepare for the answer with these headers. Return False if it is another file.

        Raises Malformed if its length is not the announced one, or it begins at a wrong offset.
        """
        if headers.get("ETag") != self._etag:
            return False
        found = _RANGE.fullmatch(headers.get("Content-Range", ""))
        length = headers.get("Content-Length", self.expected)
        first, size = map(int, found.groups()) if found else (0, int(length))
        if size != self.expected or first not in (0, self.size):
            raise Malformed(
                f"the server announced a {self.kind.name} of {self.expected} bytes, and sends one of {size} "
                f"from byte {first} on"
            )
        if first == 0:
            self.drop()
        with self._writing():
            self._part.touch()
            self._keep_latest(self._parts, _PARTS)
        return True

    def add(self, octets: bytes) -> None:
        """Append bytes. Raises Malformed if they are too many."""
        if len(octets) > self.missing:
            raise Malformed(f"the server sends more than the {self.expected} bytes that it announced")
        with self._writing(), open(self._part, "ab") as file:
            file.write(octets)
        self.size += len(octets)

    def drop(self) -> None:
        """Delete the partial file."""
        with self._writing():
            self._part.unlink(missing_ok=True)
        self.size = 0

    def find(self) -> Path | None:
        """Return the complete file, or None if it is missing or its digest is wrong."""
        if not self._is_valid(self._path):
            return None
        with self._writing():
            os.utime(self._path)
        return self._path

    def complete(self) -> Path | None:
        """Finish the download and return the file. If its digest is wrong, delete it and return None."""
        if not self._is_valid(self._part):
            self.drop()
            return None
        with self._writing():
            with open(self._part, "rb") as file:
                os.fsync(file.fileno())
            self._part.replace(self._path)
            self._keep_latest(f"*.{self.kind.suffix}", self.kind.max_files)
        return self._path

    def check_room(self) -> None:
        """Raise ConfigError if the disk lacks room for what is missing."""
        with self._writing():
            free = shutil.disk_usage(self._directory).free
        if free < self.missing:
            raise ConfigError(
                f"client.directory = {str(self._directory)!r} has {size_text(free)} left, and the "
                f"{self.kind.name} takes {size_text(self.missing)}: free some space, or name another folder"
            )

    def _keep_latest(self, pattern: str, number: int) -> None:
        """Delete all but so many files of this pattern. Other devices of the folder may do so, too."""
        found = []
        for path in self._directory.glob(pattern):
            with suppress(FileNotFoundError):
                found.append((path.stat().st_mtime_ns, path))
        for _, path in sorted(found)[:-number]:
            path.unlink(missing_ok=True)

    def _is_valid(self, path: Path) -> bool:
        with self._writing():
            if not path.exists() or path.stat().st_size != self.expected:
                return False
            with path.open("rb") as file:
                return hashlib.file_digest(file, "sha256").digest() == self._digest

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise ConfigError(
                f"client.directory = {str(self._directory)!r} cannot keep the {self.kind.name}: {error}; "
                "name another folder"
            ) from error


async def fetch(
    load: Callable[[CachedFile], Awaitable[bool]], cache: CachedFile, compute: Compute, *, wanted: bool = True
) -> Path | None:
    """Return the complete file, which `load` downloads if it is `wanted` and missing (downloads.py).

    None: it is not wanted, or the server no longer has it. Raises Malformed if the data differ from the
    announcement, ConfigError if there is no room for them.
    """
    path: Path | None = await compute(cache.find)
    for _ in range(2):
        if path is not None:
            return path
        if not wanted:
            return None
        cache.check_room()
        if not await load(cache):
            return None
        path = await compute(cache.complete)
        if path is None:
            log.warning("the %s did not arrive as the server announced it (SHA-256)", cache.kind.name)
    if path is None:
        raise Malformed(
            f"the server sent a {cache.kind.name} twice that is not the one it announced (SHA-256)"
        )
    return path

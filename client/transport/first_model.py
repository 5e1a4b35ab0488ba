"""Loads the first model: once, with resumption, and only if it matches the announced digest.

It is cached in the device's folder as DIGEST.first-model, which a restart finds again. An incomplete download
is a .part file, one for each device. The file name contains the expected digest.
"""

import hashlib
import logging
import os
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from edgeflock.client.training.interfaces import Compute
from edgeflock.shared.codecs import packed, sparse, values
from edgeflock.shared.errors import ConfigError, Malformed
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.model.weights import Weights
from edgeflock.shared.protocol.messages import Model

log = logging.getLogger(__name__)

_MAX_CACHED = 4
"""Number of latest first models to keep in a folder."""

_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+)")


class CachedFirstModel:
    """The cache file of one first model: complete, partial, or missing."""

    def __init__(self, directory: Path, weights: Weights, device: str) -> None:
        """Raises ConfigError if the folder cannot be written, as all methods do."""
        self._directory, self._weights = directory, weights
        self._etag = f'"{weights.digest.hex()}"'
        self._path = directory / f"{weights.digest.hex()}.first-model"
        owner = hashlib.sha256(device.encode()).hexdigest()
        self._part = directory / f"{weights.digest.hex()[:32]}-{owner[:16]}.part"
        with self._writing():
            directory.mkdir(parents=True, exist_ok=True)
            self.size = self._part.stat().st_size if self._part.exists() else 0
            """Bytes of the partial file."""
        if self.missing < 0:
            self.drop()

    @property
    def missing(self) -> int:
        """Bytes that are still to come."""
        return self._weights.size - self.size

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
        length = headers.get("Content-Length", self._weights.size)
        first, size = map(int, found.groups()) if found else (0, int(length))
        if size != self._weights.size or first not in (0, self.size):
            raise Malformed(
                f"the server announced a first model of {self._weights.size} bytes, and sends one of {size} "
                f"from byte {first} on"
            )
        if first == 0:
            self.drop()
        return True

    def add(self, octets: bytes) -> None:
        """Append bytes. Raises Malformed if they are too many."""
        if len(octets) > self.missing:
            raise Malformed(f"the server sends more than the {self._weights.size} bytes that it announced")
        with self._writing(), open(self._part, "ab") as file:
            file.write(octets)
        self.size += len(octets)

    def drop(self) -> None:
        """Delete the partial file."""
        with self._writing():
            self._part.unlink(missing_ok=True)
        self.size = 0

    def read(self) -> bytes | None:
        """Return the complete model, or None if it is missing or its digest is wrong."""
        return self._read_valid(self._path)

    def complete(self) -> bytes | None:
        """Finish the download and return it. If its digest is wrong, delete it and return None."""
        octets = self._read_valid(self._part)
        with self._writing():
            if octets is None:
                self.drop()
                return None
            with open(self._part, "rb") as file:
                os.fsync(file.fileno())
            self._part.replace(self._path)
            others = sorted(self._directory.glob("*.first-model"), key=lambda path: path.stat().st_mtime)
            for path in others[:-_MAX_CACHED]:
                path.unlink(missing_ok=True)
        return octets

    def _read_valid(self, path: Path) -> bytes | None:
        with self._writing():
            if not path.exists() or path.stat().st_size != self._weights.size:
                return None
            octets = path.read_bytes()
        return octets if hashlib.sha256(octets).digest() == self._weights.digest else None

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise ConfigError(
                f"client.directory = {str(self._directory)!r} cannot keep the first model: {error}; "
                "name another folder"
            ) from error


async def load_first_model(
    load: Callable[[CachedFirstModel], Awaitable[bool]],
    cache: CachedFirstModel,
    weights: Weights,
    layout: Layout,
    compute: Compute,
) -> Model | None:
    """Return the record of version 0 that a Welcome announces as `weights`; None: pull the whole model.

    `load` downloads the missing bytes (downloads.py). Raises Malformed or WrongDtype if the data
    differ from the announcement, or the announcement is invalid.
    """
    packed.width_of(weights.mode)  # raises if the mode cannot code a whole model
    size = values.size_of(weights.mode, layout.counts(None))
    if weights.size > packed.max_size(size):
        raise Malformed(
            f"the server announces a first model of {weights.size} bytes, and this one takes at most "
            f"{packed.max_size(size)}"
        )
    octets: bytes | None = await compute(cache.read)
    for _ in range(2):
        if octets is not None:
            break
        if not weights.load or not await load(cache):
            return None
        octets = await compute(cache.complete)
        if octets is None:
            log.warning("the first model did not arrive as the server announced it (SHA-256)")
    if octets is None:
        raise Malformed("the server sent a first model twice that is not the one it announced (SHA-256)")
    stream = await compute(packed.unpack, octets, weights.mode, size)
    exact = weights.mode == values.CODINGS["f32"].mode
    return Model(0, None, sparse.DENSE, weights.mode, layout.size, b"", stream, not exact)

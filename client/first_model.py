"""The first model where it has to be loaded: once, on from where it broke off, and only what was announced.

It is kept in a folder of the device: DIGEST.first-model, which a restart finds again, and until that is whole
a .part for each device. The name says what must be in it.
"""

import hashlib
import logging
import os
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from edgeflock.client.training.seams import Compute
from edgeflock.shared.codecs import packed, sparse, values
from edgeflock.shared.errors import ConfigError, Malformed
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.model.weights import Weights
from edgeflock.shared.protocol.messages import Model

log = logging.getLogger(__name__)

_KEPT = 4
"""First models in a folder, the latest."""

_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+)")


class CachedFirstModel:
    """One first model in a folder: whole, in part, or not at all yet."""

    def __init__(self, directory: Path, weights: Weights, device: str) -> None:
        """Raises ConfigError if the folder cannot keep anything, as all methods do."""
        self._directory, self._weights = directory, weights
        self._etag = f'"{weights.digest.hex()}"'
        self._path = directory / f"{weights.digest.hex()}.first-model"
        whose = hashlib.sha256(device.encode()).hexdigest()
        self._part = directory / f"{weights.digest.hex()[:32]}-{whose[:16]}.part"
        with self._writing():
            directory.mkdir(parents=True, exist_ok=True)
            self.size = self._part.stat().st_size if self._part.exists() else 0
            """Bytes that are there of a part."""
        if self.missing < 0:
            self.drop()

    @property
    def missing(self) -> int:
        """Bytes that are still to come."""
        return self._weights.size - self.size

    @property
    def asking(self) -> dict[str, str]:
        """The headers of a request for what is missing."""
        whole = {"Accept-Encoding": "identity"}
        return {**whole, "Range": f"bytes={self.size}-", "If-Range": self._etag} if self.size else whole

    def begin(self, headers: Mapping[str, str]) -> bool:
        """Get ready for the answer with these headers; False if it is of another file.

        Raises Malformed if it is not of the length that was announced, or begins elsewhere.
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
        """The next ones. Raises Malformed if they are too many."""
        if len(octets) > self.missing:
            raise Malformed(f"the server sends more than the {self._weights.size} bytes that it announced")
        with self._writing(), open(self._part, "ab") as file:
            file.write(octets)
        self.size += len(octets)

    def drop(self) -> None:
        """Begin again."""
        with self._writing():
            self._part.unlink(missing_ok=True)
        self.size = 0

    def read(self) -> bytes | None:
        """All of it, if it is there and what it should be."""
        return self._checked(self._path)

    def complete(self) -> bytes | None:
        """All of it, now that nothing is missing; None if it is not what was announced: then it is gone."""
        octets = self._checked(self._part)
        with self._writing():
            if octets is None:
                self.drop()
                return None
            with open(self._part, "rb") as file:
                os.fsync(file.fileno())
            self._part.replace(self._path)
            others = sorted(self._directory.glob("*.first-model"), key=lambda path: path.stat().st_mtime)
            for path in others[:-_KEPT]:
                path.unlink(missing_ok=True)
        return octets

    def _checked(self, path: Path) -> bytes | None:
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


async def first_model(
    load: Callable[[CachedFirstModel], Awaitable[bool]],
    kept: CachedFirstModel,
    weights: Weights,
    layout: Layout,
    compute: Compute,
) -> Model | None:
    """The record of version 0 that a Welcome announces as `weights`; None: the whole model is to be pulled.

    `load` brings what is missing (transport.Link.load). Raises Malformed or WrongDtype if the server sends
    something else than it announces, or announces what cannot be.
    """
    packed.width_of(weights.mode)  # which raises if it is none of a whole model
    size = values.size_of(weights.mode, layout.counts(None))
    if weights.size > packed.longest(size):
        raise Malformed(
            f"the server announces a first model of {weights.size} bytes, and this one takes at most "
            f"{packed.longest(size)}"
        )
    octets: bytes | None = await compute(kept.read)
    for _ in range(2):
        if octets is not None:
            break
        if not weights.load or not await load(kept):
            return None
        octets = await compute(kept.complete)
        if octets is None:
            log.warning("the first model did not arrive as the server announced it (SHA-256)")
    if octets is None:
        raise Malformed("the server sent a first model twice that is not the one it announced (SHA-256)")
    stream = await compute(packed.unpack, octets, weights.mode, size)
    exact = weights.mode == values.CODINGS["f32"].mode
    return Model(0, None, sparse.DENSE, weights.mode, layout.size, b"", stream, not exact)

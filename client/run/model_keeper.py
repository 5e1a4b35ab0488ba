"""Keeps a run's best model in a file, for the device's own programs.

The server is not trusted: an ONNX file is parsed and checked as a training graph is, and a damaged file never
replaces a good one.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

import aiohttp

from edgeflock.client.transport.downloads import DownloadedModel
from edgeflock.shared.artifacts import ModelInfo
from edgeflock.shared.artifacts.info import describe
from edgeflock.shared.errors import BadGraph, ConfigError, EdgeflockError, ServerAtFault
from edgeflock.shared.files import write_atomically
from edgeflock.shared.graphs.reading import read
from edgeflock.shared.graphs.writing import without_metadata

log = logging.getLogger(__name__)

FORMATS = (".onnx", ".safetensors")

RETRY_SECONDS = 60.0
"""The time from a failed download to the next one, at most."""

Download = Callable[[str, str], Awaitable[DownloadedModel | None]]
"""(format, ETag of the file at hand or "") -> the model; None if it has not changed."""


class ModelKeeper:
    """Fetches the model again and again, and replaces the file as a whole."""

    def __init__(
        self,
        path: Path,
        seconds: float,
        download: Download,
        merge: Callable[[bytes, str], bytes] = lambda octets, run: octets,
    ) -> None:
        """Fetch into `path` every `seconds`.

        `merge` puts the device's personal layers into a safetensors file of a run.

        Raises ConfigError if the path ends with neither of FORMATS, or its folder does not exist.
        """
        if path.suffix not in FORMATS:
            raise ConfigError(f"client.keep_model = {str(path)!r} must end with {' or '.join(FORMATS)}")
        if not path.parent.is_dir():
            raise ConfigError(f"client.keep_model = {str(path)!r}: there is no folder {path.parent}; make it")
        self._path, self._seconds, self._download, self._merge = path, seconds, download, merge
        self._etag = ""
        self._unmerged = b""
        """The server's file, if the one at hand has personal layers, which change without it."""
        self._complaint = ""

    async def run(self) -> None:
        """Fetch until cancelled."""
        while True:
            fetched = await self.fetch()
            await asyncio.sleep(self._seconds if fetched else min(self._seconds, RETRY_SECONDS))

    async def fetch(self) -> bool:
        """Fetch the model if it is new. A failure is logged once, changes nothing and returns False."""
        try:
            found = await self._download(self._path.suffix.removeprefix("."), self._etag)
            if found is None and not self._unmerged:
                return True
            octets = self._unmerged if found is None else found.octets
            info = await asyncio.to_thread(self._save, octets)
        except (EdgeflockError, OSError, aiohttp.ClientError, TimeoutError) as error:
            complaint = str(error) or "no answer"
            if complaint != self._complaint:
                log.warning("client.keep_model: %s; it is tried again", complaint)
            self._complaint = complaint
            return False
        self._etag, self._complaint = self._etag if found is None else found.etag, ""
        log.info("version %d of the model is in %s", info.version, self._path)
        return True

    def _save(self, octets: bytes) -> ModelInfo:
        """Check the file and replace the one at hand. Raises ServerAtFault or OSError."""
        try:
            format = self._path.suffix.removeprefix(".")
            info = describe(octets, format, "the server's model")
            if format == "onnx":
                read(without_metadata(octets), len(octets))
            else:
                merged = self._merge(octets, info.run)
                self._unmerged = b"" if merged is octets else octets
                octets = merged
        except (BadGraph, ConfigError) as error:
            raise ServerAtFault(f"the server's model is not kept: {error}") from error
        write_atomically(self._path, octets, 0o666)
        return info

"""Versions of a run's model as ONNX files: computed once, not for each request."""

import asyncio

from edgeflock.shared.artifacts import ModelInfo, digest_of
from edgeflock.shared.artifacts.safetensors_file import SavedModel


class ModelExports:
    """Converts versions of a run's model into ONNX. The last file is kept for the next request."""

    def __init__(self, info: ModelInfo) -> None:
        """`info` describes the run's models, without a version."""
        self.info = info
        self._lock = asyncio.Lock()
        self._last: tuple[tuple[str, int], bytes] | None = None

    async def onnx(self, model: SavedModel, evaluation: bytes) -> bytes:
        """Return the file. Raises BadGraph, or ConfigError without a package."""
        async with self._lock:
            return await asyncio.to_thread(self._make, model, evaluation)

    def _make(self, model: SavedModel, evaluation: bytes) -> bytes:
        from edgeflock.shared.artifacts import onnx_file

        key = digest_of(model.theta), model.info.version
        if self._last is None or self._last[0] != key:
            self._last = key, onnx_file.encode(model.info, evaluation, model.theta)
        return self._last[1]

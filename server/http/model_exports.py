"""Versions of a run's model as files: what is computed once, not for each request."""

import asyncio
import json

from edgeflock.shared.artifacts import ModelInfo, digest_of, score
from edgeflock.shared.artifacts.safetensors_file import SavedModel
from edgeflock.shared.data.samples import Dataset

_SCORED = 2000
"""The most held-out samples on which a quantised model is compared with the original."""


class ModelExports:
    """Converts versions of a run's model into files. The last ONNX file is kept for the next request."""

    def __init__(self, info: ModelInfo, held_out: Dataset | None) -> None:
        """`info` describes the run's models, without a version. `held_out` evaluates quantised ones."""
        self.info = info
        self._held_out = held_out
        self._lock = asyncio.Lock()
        self._last: tuple[tuple[str, bool], bytes, dict[str, str]] | None = None

    async def onnx(self, model: SavedModel, evaluation: bytes, *, int8: bool) -> tuple[bytes, dict[str, str]]:
        """Return (the file, its HTTP headers). Raises BadGraph, or ConfigError without a package.

        With `int8`, X-Edgeflock-Scores has the scores of both precisions on held-out data, as JSON.
        """
        async with self._lock:
            made = await asyncio.to_thread(self._make, model, evaluation, int8)
        return made

    def _make(self, model: SavedModel, evaluation: bytes, int8: bool) -> tuple[bytes, dict[str, str]]:
        from edgeflock.shared.artifacts import onnx_file

        key = (f"{digest_of(model.theta)} {model.info.version}", int8)
        if self._last is not None and self._last[0] == key:
            return self._last[1:]
        octets = onnx_file.encode(model.info, evaluation, model.theta)
        headers: dict[str, str] = {}
        if int8:
            from edgeflock.server.training_graph.quantization import quantized

            small = quantized(octets)
            scores = {name: self._score(one) for name, one in (("float32", octets), ("int8", small))}
            headers["X-Edgeflock-Scores"] = json.dumps(scores)
            octets = small
        self._last = key, octets, headers
        return octets, headers

    def _score(self, octets: bytes) -> dict[str, float]:
        """The score of an ONNX file on held-out data; {} without any."""
        from edgeflock.shared.artifacts import onnx_file

        if self._held_out is None:
            return {}
        info, outputs = onnx_file.load(octets, threads=1)
        count = min(_SCORED, len(self._held_out))
        return score(onnx_file.in_batches(outputs, self._held_out.x, count), self._held_out.y[:count], info)

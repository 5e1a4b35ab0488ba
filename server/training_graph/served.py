"""The run's model as ONNX graphs for devices without torch, exported at the first request.

The export runs in a process of its own. It takes seconds of computing and hundreds of megabytes, which the
event loop and a small server must not spend, and which are free afterwards. A module that only this process
can build is exported in a thread.
"""

import asyncio
import hashlib
import logging
import os
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import msgpack

from edgeflock.shared.data import datasets
from edgeflock.shared.environments import is_environment, open_environment
from edgeflock.shared.errors import ConfigError, NotExportable
from edgeflock.shared.extras import install_command
from edgeflock.shared.model.fields import rows
from edgeflock.shared.model.losses import LOSSES, scales_targets
from edgeflock.shared.settings.model import ModelSettings

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ServedGraph:
    """A serialised ONNX graph and the SHA-256 of its bytes."""

    octets: bytes
    digest: str


class GraphStore:
    """The graphs of one model. They are made once."""

    def __init__(self, model: ModelSettings, make: Callable[[], Any] | None = None) -> None:
        """`make` builds the module that `model` only names."""
        self._model = model
        self._make_module = make
        self._export: asyncio.Task[dict[str, ServedGraph]] | None = None
        self._export_end = 0.0

    async def get(self, kind: str) -> ServedGraph:
        """The "step" or "evaluation" graph, or with adapters the "merged" evaluation.

        After a failed export every call raises NotExportable.
        """
        if self._export is None:
            self._export = asyncio.create_task(self._export_all())
        # Shielded, so that a cancelled request does not end the export for the others.
        return (await asyncio.shield(self._export))[kind]

    def wait_end(self, now: float) -> float:
        """The monotonic time until which devices had to wait: `now`, while graphs are made."""
        return now if self._export is not None and not self._export.done() else self._export_end

    async def close(self) -> None:
        """Cancel a running export."""
        if self._export is not None:
            self._export.cancel()
            await asyncio.gather(self._export, return_exceptions=True)

    async def _export_all(self) -> dict[str, ServedGraph]:
        if self._model.arrays:
            raise NotExportable(
                f"model.module = {self._model.module!r} has no graph: devices train it with an app of their "
                "own, e.g. edgeflock client --flower-app FOLDER"
            )
        if not (self._model.data or self._model.input):
            raise NotExportable(
                "model.input = []: the shape of the model's input is not known, so there is no graph of it; "
                "set it on the server to that of one sample, e.g. [16] or [1, 28, 28], or set model.data"
            )
        log.info("exporting %s for devices without torch", self._model.module)
        in_process = self._make_module is None and not LOSSES.is_process_local(self._model.loss)
        exported = await (self._export_in_process() if in_process else self._export_in_thread())
        if "refused" in exported:
            log.warning("no graph for devices without torch: %s", exported["refused"])
            raise NotExportable(exported["refused"])
        self._export_end = time.monotonic()
        return {
            kind: ServedGraph(octets, hashlib.sha256(octets).hexdigest()) for kind, octets in exported.items()
        }

    async def _export_in_thread(self) -> dict[str, Any]:
        """Export in a thread. A cancelled caller waits until it is over, so that no thread is left behind."""
        with ThreadPoolExecutor(1, thread_name_prefix="edgeflock-export") as thread:
            job = thread.submit(_export, self._model, self._make_module)
            try:
                return await asyncio.wrap_future(job)
            except asyncio.CancelledError:
                while not job.done():
                    with suppress(asyncio.CancelledError):
                        await asyncio.wait([asyncio.wrap_future(job)])
                raise
            except Exception as error:  # a user's module may raise anything
                log.exception("the export of %s failed", self._model.module)
                raise NotExportable(
                    f"{self._model.module}: the export failed; the server's log says why"
                ) from error

    async def _export_in_process(self) -> dict[str, Any]:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", __name__),
            stdin=PIPE,
            stdout=PIPE,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)},
        )
        try:
            answer, _ = await process.communicate(self._model.model_dump_json().encode())
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode:
            raise NotExportable(f"{self._model.module}: the export failed; the server's log says why")
        answered: dict[str, Any] = msgpack.unpackb(answer)
        return answered


def _export_in_this_process() -> None:
    """Read settings as JSON from stdin; write graphs as msgpack to stdout, or {"refused": why}."""
    results = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # a user's module may print
    model = ModelSettings.model_validate_json(sys.stdin.buffer.read())
    with suppress(ImportError):  # `_export` reports it
        import torch

        torch.set_num_threads(1)
    answer = _export(model)
    with results:
        results.write(msgpack.packb(answer))


def _export(model: ModelSettings, make: Callable[[], Any] | None = None) -> dict[str, Any]:
    """The graphs by kind, or {"refused": why}."""
    try:
        from edgeflock.server.training_graph.export import export_model
        from edgeflock.shared.model.modules.building import seeded_random
        from edgeflock.shared.model.torch_module import FlatModule
    except ImportError as error:
        return {"refused": f"the server lacks {error.name}: {install_command('server')}"}
    try:
        with seeded_random(0):
            if is_environment(model.data):
                batch: tuple[Any, Any] = open_environment(model.data).example(8)
            elif model.data:
                held_out = datasets.open_stored(model.data, "test", scales_targets=scales_targets(model.loss))
                batch = rows(held_out.x, slice(8)), held_out.y[:8]
            else:
                batch = FlatModule(model.module, model.loss, make=make).example(tuple(model.input))
            graphs = export_model(model.module, model.loss, *batch, make, model.adapters)
    except ConfigError as error:
        return {"refused": str(error)}
    return {"step": graphs.step, "evaluation": graphs.evaluation, "merged": graphs.merged}


if __name__ == "__main__":
    _export_in_this_process()

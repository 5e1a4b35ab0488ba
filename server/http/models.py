"""Operators' and devices' HTTP for a trained model as a file: safetensors for torch, ONNX for any runtime."""

import asyncio
from contextlib import suppress
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import numpy as np
from aiohttp import web
from numpy.typing import NDArray

from edgeflock.server.http import ranges
from edgeflock.server.http.callers import caller_of
from edgeflock.server.http.keys import EVALUATOR, GRAPHS, HOST, MODEL_EXPORTS, WRITER
from edgeflock.server.http.middleware import charge
from edgeflock.server.http.model_exports import ModelFile
from edgeflock.server.http.problem import problem, refusal
from edgeflock.server.http.roles import GRAPH, allows
from edgeflock.server.monitoring.best_model import BEST, summary
from edgeflock.shared.artifacts import ModelInfo, digest_of, safetensors_file
from edgeflock.shared.errors import BadGraph, ConfigError, NotExportable
from edgeflock.shared.extras import install_command

routes = web.RouteTableDef()

_EVALUATION_SECONDS = 15.0
"""The longest wait for the evaluation of a complete run's last version."""


@routes.get("/v1/model.safetensors")
@allows(GRAPH)
async def get_safetensors(request: web.Request) -> web.StreamResponse:
    """The model as a safetensors file.

    version=last (the default, averaged if the run says so), best, or a number, which needs an admin's token.
    """
    model = await _model(request)
    etag = _etag(request, model, "safetensors")
    extra = request.app[HOST].extra_tensors
    octets = await asyncio.to_thread(safetensors_file.encode, model.info, model.theta, extra)
    return _answer(request, octets, model, etag, {})


@routes.get("/v1/model.onnx")
@allows(GRAPH)
async def get_onnx(request: web.Request) -> web.StreamResponse:
    """The model's forward pass with its weights as ONNX.

    version as for safetensors. precision=float32 (the default) or int8, which is evaluated on held-out data
    (X-Edgeflock-Scores).
    """
    precision = request.query.get("precision", "float32")
    if precision not in ("float32", "int8"):
        return problem(400, "bad-precision", f"precision={precision!r:.40} must be float32 or int8")
    if precision == "int8" and caller_of(request).role not in ("viewer", "admin"):
        return problem(
            403, "forbidden", "precision=int8 is computed for a viewer's or an admin's token alone"
        )
    if request.app[HOST].personal is not None:
        reason = (
            "each device has layers of its own (model.personal): pull safetensors, or keep it on a device"
        )
        return problem(422, "not-exportable", reason)
    model = await _model(request)
    etag = _etag(request, model, precision)
    try:
        graph = await request.app[GRAPHS].get("evaluation")
        made = request.app[MODEL_EXPORTS].onnx(model, graph.octets, int8=precision == "int8")
        octets, headers = await made
    except ImportError as error:
        return problem(422, "not-exportable", f"an ONNX file needs {error.name}: {install_command('server')}")
    except (NotExportable, BadGraph) as error:
        return problem(422, "not-exportable", str(error))
    return _answer(request, octets, model, etag, headers)


async def _model(request: web.Request) -> ModelFile:
    """The requested version. Raises HTTPException with a problem."""
    host, wanted = request.app[HOST], request.query.get("version", "last")
    if wanted == "best":
        with suppress(TimeoutError):
            async with asyncio.timeout(_EVALUATION_SECONDS):
                await request.app[EVALUATOR].wait_for_best()
        try:
            saved = await asyncio.to_thread(safetensors_file.load, Path(host.config.run.directory) / BEST)
        except ConfigError as error:
            raise refusal(404, "no-such-version", f"there is no best model yet: {error}") from error
        return ModelFile(saved.info, saved.theta)
    engine, writer = host.engine, request.app[WRITER]
    if wanted == "last":
        return ModelFile(*_described(request, *await writer.call(engine.result)))
    if not (wanted.isascii() and wanted.isdecimal()) or len(wanted) > 18:
        raise refusal(400, "bad-version", f"version={wanted!r:.40} must be last, best or a number")
    if caller_of(request).role != "admin":
        raise refusal(403, "forbidden", "an earlier version is made again for an admin's token alone")

    def attempt() -> tuple[int, NDArray[np.float32]] | ConfigError:
        try:
            return engine.steering.model_at(int(wanted))
        except ConfigError as error:  # what is raised here ends the server
            return error

    made = await writer.call(attempt)
    if isinstance(made, ConfigError):
        raise refusal(404, "no-such-version", str(made))
    return ModelFile(*_described(request, *made))


def _described(
    request: web.Request, version: int, theta: NDArray[np.float32]
) -> tuple[ModelInfo, NDArray[np.float32]]:
    """Return (the description of that version, theta)."""
    known = [one for one in request.app[EVALUATOR].history if one.version <= version]
    info = replace(
        request.app[MODEL_EXPORTS].info, version=version, evaluation=summary(known[-1]) if known else None
    )
    return info, theta


def _etag(request: web.Request, model: ModelFile, kind: str) -> str:
    """Return the digest of a file of this `kind`. Raises HTTPNotModified if the client has it."""
    digest = f"{digest_of(model.theta)}-{model.info.version}-{kind}"
    if ranges.has_copy(request, digest):
        raise web.HTTPNotModified(headers={"ETag": f'"{digest}"'})
    return digest


def _answer(
    request: web.Request, octets: bytes, model: ModelFile, etag: str, headers: dict[str, str]
) -> web.Response:
    charge(request, len(octets))
    named = {
        "Content-Length": str(len(octets)),
        "ETag": f'"{etag}"',
        "X-Edgeflock-Version": str(model.info.version),
        **headers,
    }
    # In a payload, since aiohttp warns of a large bytes body that it would copy.
    return web.Response(body=BytesIO(octets), headers=named, content_type="application/octet-stream")

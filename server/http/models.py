"""The run's model: its numbers, its graphs, the first model, and files for torch and other runtimes."""

import asyncio
import hashlib
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
from aiohttp import web
from numpy.typing import NDArray

from edgeflock.server.evaluation.best_model import BEST, summary
from edgeflock.server.http.bodies import (
    add_etag,
    octets_response,
    problem,
    refusal,
    resolve_range,
    send_file,
)
from edgeflock.server.http.callers import caller_of
from edgeflock.server.http.keys import CONNECTION, EVALUATOR, GRAPHS, HOST, MODEL_EXPORTS, WRITER
from edgeflock.server.http.middleware import charge
from edgeflock.server.http.roles import ADMIN, DEVICE, GRAPH, allows
from edgeflock.server.ledger import BASE, FIRST_MODEL
from edgeflock.shared.artifacts import digest_of, safetensors_file
from edgeflock.shared.artifacts.safetensors_file import SavedModel
from edgeflock.shared.errors import BadGraph, ConfigError, NotExportable
from edgeflock.shared.extras import install_command
from edgeflock.shared.model.layout import NO_EXTRA_STATE
from edgeflock.shared.model.lora import whole_model

routes = web.RouteTableDef()

_EVALUATION_SECONDS = 15.0
"""The longest wait for the evaluation of a complete run's last version."""


@routes.get("/v1/model")
@allows(DEVICE)
async def get_model(request: web.Request) -> web.StreamResponse:
    """The model to use as little-endian float32. ETag, If-None-Match and Range are honoured."""
    version, theta = await request.app[WRITER].call(request.app[HOST].engine.result)
    charge(request, theta.nbytes)
    octets = theta.astype("<f4").tobytes()
    digest = await asyncio.to_thread(lambda: hashlib.sha256(octets).hexdigest())  # long, of a large model
    headers = {"X-Edgeflock-Version": str(version)}
    start, stop, status = resolve_range(request, digest, len(octets), headers)
    return octets_response(octets[start:stop], status, headers)


@routes.get("/v1/graphs/{kind:step|evaluation}")
@allows(GRAPH)
async def get_graph(request: web.Request) -> web.StreamResponse:
    """The model's training step or evaluation as ONNX (training_graph/export.py).

    ETag and If-None-Match are honoured. The first request waits until the graphs are made.
    """
    try:
        graph = await request.app[GRAPHS].get(request.match_info["kind"])
    except NotExportable as error:
        return problem(422, "not-exportable", str(error))
    response = octets_response(graph.octets, 200, add_etag(request, graph.digest, {}))
    response.enable_compression()
    return response


@routes.get("/v1/start")
@allows(DEVICE)
async def get_start(request: web.Request) -> web.StreamResponse:
    """The first model, packed. It counts as traffic of the device that ?device=NAME says, if there is one.

    docs/protocol.md is the reference.
    """
    host = request.app[HOST]
    if (weights := host.engine.outlet.first_model) is None:
        return problem(404, "no-start", "devices make the first model of this run: the Welcome says how")
    path = Path(host.config.server.directory) / FIRST_MODEL
    return await _send_file(request, path, weights.digest, weights.size)


@routes.get("/v1/base")
@allows(GRAPH)
async def get_base(request: web.Request) -> web.StreamResponse:
    """The frozen part of a model with adapters, as little-endian float32. Its bytes are counted apart."""
    host = request.app[HOST]
    if (base := host.terms.base) is None:
        return problem(404, "no-base", "all parameters of this run's model are trained (model.lora)")
    path = Path(host.config.server.directory) / BASE
    return await _send_file(request, path, base.digest, base.size, is_base=True)


async def _send_file(
    request: web.Request, path: Path, digest: bytes, size: int, *, is_base: bool = False
) -> web.StreamResponse:
    """Send a file in chunks, as traffic of its device, or apart if it is a base.

    ETag, If-None-Match and Range are honoured.
    """
    host, meter = request.app[HOST], request[CONNECTION].meter
    device = host.registry.devices.get(request.query.get("device", ""))
    before, meter.internal = meter.egress, is_base
    try:
        with await asyncio.to_thread(open, path, "rb") as file:
            return await send_file(request, file, digest.hex(), size)
    finally:
        sent, meter.internal = meter.egress - before, False
        if is_base:
            host.traffic.base += sent
        elif device is not None:
            device.connection.earlier_traffic.egress += sent
        if is_base and device is not None:
            device.connection.base_egress += sent


@routes.get("/v1/model.safetensors")
@allows(GRAPH)
async def get_safetensors(request: web.Request) -> web.StreamResponse:
    """The model as a safetensors file.

    version=last (the default, averaged if the run says so), best, or a number, which needs an admin's token.
    part=adapters: those alone, of a run that trains adapters. All else has them merged into the weights.
    """
    host, part = request.app[HOST], request.query.get("part", "all")
    if part not in ("all", "adapters"):
        return problem(400, "bad-part", f"part={part!r:.40} must be all or adapters")
    if part == "adapters" and host.adapted is None:
        detail = "this run has no model.lora, so no adapters: leave out part=adapters (--format peft)"
        return problem(400, "bad-part", detail)
    model = await _model(request)
    headers = await asyncio.to_thread(_headers, request, model, part)
    if part == "all":
        octets = await asyncio.to_thread(safetensors_file.encode, model.info, model.theta, host.extra_tensors)
    else:
        octets = await asyncio.to_thread(safetensors_file.encode_adapters, model)
    charge(request, len(octets))
    return octets_response(octets, 200, headers)


@routes.get("/v1/model.onnx")
@allows(GRAPH)
async def get_onnx(request: web.Request) -> web.StreamResponse:
    """The model's forward pass with its weights as ONNX. version as for safetensors."""
    host = request.app[HOST]
    if host.terms.personal is not None:
        reason = (
            "each device has layers of its own (model.personal): pull safetensors, or keep it on a device"
        )
        return problem(422, "not-exportable", reason)
    model = await _model(request)
    headers = _headers(request, model, "onnx")
    try:
        graph = await request.app[GRAPHS].get("evaluation" if host.adapted is None else "merged")
        octets = await request.app[MODEL_EXPORTS].onnx(model, graph.octets)
    except ImportError as error:
        return problem(422, "not-exportable", f"an ONNX file needs {error.name}: {install_command('server')}")
    except (NotExportable, BadGraph) as error:
        return problem(422, "not-exportable", str(error))
    charge(request, len(octets))
    return octets_response(octets, 200, headers)


async def _model(request: web.Request) -> SavedModel:
    """The requested version. Raises HTTPException with a problem."""
    host, wanted = request.app[HOST], request.query.get("version", "last")
    if wanted == "best":
        with suppress(TimeoutError):
            async with asyncio.timeout(_EVALUATION_SECONDS):
                await request.app[EVALUATOR].wait_for_best()
        try:
            saved = await asyncio.to_thread(safetensors_file.load, Path(host.config.server.directory) / BEST)
        except ConfigError as error:
            raise refusal(404, "no-such-version", f"there is no best model yet: {error}") from error
        return saved
    engine, writer = host.engine, request.app[WRITER]
    if wanted == "last":
        return await asyncio.to_thread(_describe, request, *await writer.call(engine.result))
    if not (wanted.isascii() and wanted.isdecimal()) or len(wanted) > 18:
        raise refusal(400, "bad-version", f"version={wanted!r:.40} must be last, best or a number")
    if caller_of(request).role not in ADMIN.roles:
        raise refusal(
            403,
            "forbidden",
            "an earlier version is for the admin's token alone (--token-file DIRECTORY/admin-token)",
        )

    def attempt() -> tuple[int, NDArray[np.float32]] | ConfigError:
        try:
            return engine.steering.model_at(int(wanted))
        except ConfigError as error:  # what is raised here ends the server
            return error

    made = await writer.call(attempt)
    if isinstance(made, ConfigError):
        raise refusal(404, "no-such-version", str(made))
    return await asyncio.to_thread(_describe, request, *made)


def _describe(request: web.Request, version: int, theta: NDArray[np.float32]) -> SavedModel:
    """Return the file of that version, with its last evaluation."""
    known = [one for one in request.app[EVALUATOR].history if one.version <= version]
    spent = request.app[HOST].engine.eligibility.privacy_spent
    info = replace(
        request.app[MODEL_EXPORTS].info,
        version=version,
        evaluation=summary(known[-1]) if known else None,
        privacy=None if spent is None else spent._asdict(),
    )
    whole, extra = whole_model(request.app[HOST].adapted, theta, NO_EXTRA_STATE)
    return SavedModel(info, whole, extra.constants)


def _headers(request: web.Request, model: SavedModel, kind: str) -> dict[str, str]:
    """Return the headers of a file of this `kind`. Raises HTTPNotModified if the client has it."""
    etag = add_etag(request, f"{digest_of(model.theta)}-{model.info.version}-{kind}", {})
    return {**etag, "X-Edgeflock-Version": str(model.info.version)}

"""The routes with which people and monitors read the run's state. actions.py has those that act."""

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from aiohttp import web

from edgeflock.server.defence import DefenceGuard
from edgeflock.server.evaluation.evaluator import Evaluator
from edgeflock.server.evaluation.federated import combine_evaluations
from edgeflock.server.http.bodies import problem
from edgeflock.server.http.callers import caller_of, find_caller
from edgeflock.server.http.keys import EVALUATOR, GATEWAYS, HEALTH, HOST, WATCHERS, WRITER
from edgeflock.server.http.roles import DEVICE, EVERYBODY, VIEWER, allows
from edgeflock.server.monitoring.feed import dense_bytes, document, pause_reason, settings, state
from edgeflock.server.roster import Device, RateLimiters
from edgeflock.server.sessions import GatewayConnection, RelayedDevice, RunHost
from edgeflock.shared.errors import Unauthorized
from edgeflock.shared.model.lora import Base
from edgeflock.shared.protocol.frames import Finding, Role
from edgeflock.shared.protocol.messages import TAGS, Facts, Samples

FASTEST, USUAL, SLOWEST = 0.2, 1.0, 60.0
"""Seconds between the frames of a feed."""

routes = web.RouteTableDef()


@routes.get("/v1/status")
@allows(DEVICE)
async def get_status(request: web.Request) -> web.Response:
    """The run, its traffic and its devices as JSON; to a device, the run alone."""
    host, evaluator = request.app[HOST], request.app[EVALUATOR]
    if caller_of(request).role == "device":
        return web.json_response(run_status(host, evaluator))
    findings, lines = request.app[HEALTH].findings, request.app[GATEWAYS].connections
    return web.json_response(status(host, evaluator, findings, lines, time.monotonic()))


@routes.get("/livez")
@allows(EVERYBODY)
async def get_livez(request: web.Request) -> web.Response:
    """Whether anybody is at home: without a token."""
    return web.Response(text="ok\n")


@routes.get("/readyz")
@allows(EVERYBODY)
async def get_readyz(request: web.Request) -> web.Response:
    """Whether the server can take updates, and if not, why: without a token."""
    reason = request.app[WRITER].unavailable_reason
    return web.Response(text=f"{reason or 'ok'}\n", status=503 if reason else 200)


@routes.get("/v1/feed")
@allows(VIEWER)
async def get_feed(request: web.Request) -> web.StreamResponse:
    """The run as it goes, as a WebSocket: docs/operations.md."""
    interval_text, watchers = request.query.get("interval", str(USUAL)), request.app[WATCHERS]
    try:
        interval = float(interval_text)
    except ValueError:
        interval = math.nan
    if not FASTEST <= interval <= SLOWEST:
        return problem(
            400, "bad-interval", f"interval={interval_text!r:.40} must be {FASTEST:g} to {SLOWEST:g} seconds"
        )
    if watchers.full:
        return problem(
            429,
            "too-many-watchers",
            f"{watchers.limit} monitors follow this run already (limits.watchers); close one",
        )
    role: Role = "admin" if caller_of(request).role == "admin" else "viewer"
    return await watchers.serve(request, role, interval, lambda: _may_watch(request))


def _may_watch(request: web.Request) -> bool:
    """Whether the secret or the login of a monitor is still valid."""
    with suppress(Unauthorized):
        return bool(find_caller(request))
    return False


@routes.get("/v1/devices/{name:[^/]+}")
@allows(VIEWER)
async def get_device(request: web.Request) -> web.Response:
    """A device and its recent updates as JSON."""
    host = request.app[HOST]
    device = host.registry.devices.get(request.match_info["name"])
    if device is None:
        return problem(404, "unknown-device", f"this run has no device {request.match_info['name']!r:.200}")
    return web.json_response(document(device, host.engine.guard))


@routes.get("/v1/evaluations")
@allows(DEVICE)
async def get_evaluations(request: web.Request) -> web.Response:
    """Every evaluation so far as a JSON array, in order."""
    return web.json_response([evaluation._asdict() for evaluation in request.app[EVALUATOR].history])


def run_status(host: RunHost, evaluator: Evaluator) -> dict[str, Any]:
    """The part of the status that every participant may read."""
    spent = host.engine.eligibility.privacy_spent
    return {**host.public_status(evaluator.state), "privacy": None if spent is None else spent._asdict()}


def shards(host: RunHost) -> dict[str, Any] | None:
    """The processes that hold the model shards. None: the model is in this process."""
    parameters = host.engine.parameters
    if parameters.store.is_local:
        return None
    processes = [shard._asdict() for shard in parameters.store.vectors.shard_statuses]
    return {"processes": processes, "restored": parameters.store.restorations}


def status(
    host: RunHost,
    evaluator: Evaluator,
    findings: Sequence[Finding],
    lines: Sequence[GatewayConnection],
    now: float,
) -> dict[str, Any]:
    """The whole state of a run, in plain JSON types."""
    config, traffic = host.config, host.traffic
    devices = [
        _device(device, host.rate_limiters, host.engine.guard, now)
        for device in host.registry.devices.values()
    ]
    ingress, egress = (sum(device[key] for device in devices) for key in ("ingress", "egress"))
    compressed, uncompressed = (
        sum(device[key] for device in devices) for key in ("compressed", "uncompressed")
    )
    dense = dense_bytes(host, sum(device["updates"] for device in devices))
    turns = host.engine.turns
    return {
        **run_status(host, evaluator),
        "diverged": evaluator.divergence,
        "findings": [finding._asdict() for finding in findings],
        "coordination": settings(host)["coordination"],
        "compression": config.compression.model_dump(),
        "defence": config.defence.mode,
        "tasks": None if host.engine.tasks is None else host.engine.tasks.status()._asdict(),
        "cohort": None if turns is None else {"members": len(turns.members), "waiting": turns.waiting},
        "shards": shards(host),
        "evaluation": evaluator.history[-1]._asdict() if evaluator.history else None,
        "on_devices": combine_evaluations(device["telemetry"] for device in devices),
        "on_devices_by_label": _evaluations_by_label(devices),
        "evaluation_failed": evaluator.failed_at is not None,
        "ingress": traffic.total.ingress,
        "egress": traffic.total.egress,
        "base": None if host.terms.base is None else _base(host.terms.base, traffic.base),
        "records": {
            kind.__name__: {"ingress": traffic.received[kind], "egress": traffic.sent[kind]} for kind in TAGS
        },
        "shared": {
            "samples": host.relay.samples,
            "dropped": host.relay.dropped,
            "ingress": traffic.received[Samples],
            "egress": traffic.sent[Samples],
        },
        "paced": round(host.rate_limiters.total, 1),
        "device_ingress": ingress,
        "device_egress": egress,
        "cnc": _cnc(compressed, uncompressed),
        "dense_bytes": dense,
        "gateways": [_gateway(line) for line in lines],
        "reduction": round(dense / ingress, 1) if ingress else None,
        "reduction_both_ways": round(2 * dense / (ingress + egress), 1) if ingress else None,
        "devices": devices,
    }


def _base(base: Base, egress: int) -> dict[str, Any]:
    """The frozen part of the model. `egress` are its bytes since the server started, in no other count."""
    return {"size": base.size, "sha256": base.digest.hex(), "egress": egress}


def _gateway(line: GatewayConnection) -> dict[str, Any]:
    return {
        "name": line.name,
        "address": line.address,
        "since": line.start_time,
        "devices": line.devices,
        "updates": line.updates,
        "ingress": line.meter.ingress,
        "egress": line.meter.egress,
        "waiting": line.waiting,
    }


def _evaluations_by_label(devices: Iterable[dict[str, Any]]) -> dict[str, Mapping[str, float]]:
    """NAME=VALUE -> the combined evaluations of the devices with this label."""
    telemetry: dict[str, list[Facts]] = {}
    for device in devices:
        for name, value in device["labels"].items():
            telemetry.setdefault(f"{name}={value}", []).append(device["telemetry"])
    found = {label: combine_evaluations(facts) for label, facts in sorted(telemetry.items())}
    return {label: means for label, means in found.items() if means is not None}


def _device(device: Device, limiters: RateLimiters, guard: DefenceGuard | None, now: float) -> dict[str, Any]:
    connection, done = device.connection, device.statistics
    ingress, egress = connection.traffic
    return {
        "name": device.name,
        "state": state(device, now),
        "connected": connection.is_connected,
        "waits": connection.awaits_turn,
        "gateway": connection.session.gateway_name if isinstance(connection.session, RelayedDevice) else None,
        "facts": device.facts,
        "labels": dict(device.labels),
        "telemetry": done.telemetry,
        "updates": done.updates,
        "compressed": done.compressed,
        "uncompressed": done.uncompressed,
        "cnc": _cnc(done.compressed, done.uncompressed),
        "refused": done.refused,
        "defence": None if guard is None else guard.record(device.id).document(),
        "shards": device.shards,
        "duplicates": done.duplicates,
        "paced": round(limiters.delay_seconds(device.name), 1),
        "samples": done.samples,
        "shares": device.shares,
        "shared": done.shared,
        "received": done.received,
        "staleness": done.staleness if done.last_update else None,
        "loss": done.loss if done.last_update and math.isfinite(done.loss) else None,
        "ingress": ingress,
        "egress": egress,
        "base_egress": connection.base_egress,
        "last_seen": connection.last_seen or None,
        "paused_because": pause_reason(device),
        "why_left": connection.leave_reason,
        "idle_seconds": round(now - connection.last_heard, 1) if connection.last_seen else None,
    }


def _cnc(compressed: int, uncompressed: int) -> float | None:
    """A run's compression-to-no-compression ratio (ScaDLES, section V G); None without updates."""
    total = compressed + uncompressed
    return compressed / total if total else None

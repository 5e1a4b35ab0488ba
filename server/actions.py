"""What an admin may do to a run: POST, with a JSON body where there is something to say."""

import json
import logging
from contextlib import suppress
from json import JSONDecodeError
from typing import Any

from aiohttp import web

from edgeflock.server.access import problem
from edgeflock.server.keys import SERVICES
from edgeflock.server.registry import Device, Pause
from edgeflock.server.session import Services
from edgeflock.shared.config import LARGEST_RATE, LEAST_RATE
from edgeflock.shared.errors import Dropped
from edgeflock.shared.frames import Kind

log = logging.getLogger(__name__)

routes = web.RouteTableDef()

_LONGEST = 200
"""Characters of a reason."""


@routes.post("/v1/devices/{name:[^/]+}/pause")
async def pause(request: web.Request) -> web.Response:
    """Let a device wait for its answers until it is resumed. {"because": text} is optional."""
    services, device, because = await _device_and_reason(request)
    _begin(services, device, Pause(because), "paused")
    return _of(device)


@routes.post("/v1/devices/{name:[^/]+}/drop")
async def drop(request: web.Request) -> web.Response:
    """End the session of a device, and refuse it until it is resumed. {"because": text} is optional."""
    services, device, because = await _device_and_reason(request)
    _begin(services, device, Pause(because, dropped=True), "dropped")
    if device.session is not None:
        await device.session.drop(Dropped(f"an operator has dropped {device.name!r}: {because}"))
    return _of(device)


@routes.post("/v1/devices/{name:[^/]+}/resume")
async def resume(request: web.Request) -> web.Response:
    """Let a device go on, or come back."""
    services, device, _ = await _device_and_reason(request)
    if device.pause is not None:
        device.pause.over.set()
        device.pause = None
        _note(services, "resumed", device, "by an admin")
    return _of(device)


@routes.post("/v1/learning_rate")
async def set_learning_rate(request: web.Request) -> web.Response:
    """{"value": number}: the learning rate from the next update on."""
    services = request.app[SERVICES]
    rate = _rate((await _body(request)).get("value"))
    configured = services.config.coordination.learning_rate
    before = services.engine.parameters.regime.learning_rate
    version = await services.writer.call(lambda: services.engine.adjust(rate, configured))
    _note(
        services,
        "config",
        None,
        f"learning rate {before:g} -> {rate:g} from version {version:,} on, by an admin",
    )
    return web.json_response({"learning_rate": rate, "version": version})


@routes.post("/v1/checkpoint")
async def checkpoint(request: web.Request) -> web.Response:
    """Put a snapshot of the model into the journal now."""
    services = request.app[SERVICES]
    version = await services.writer.call(services.engine.checkpoint)
    _note(services, "checkpoint", None, f"version {version:,}, by an admin")
    return web.json_response({"version": version})


def _begin(services: Services, device: Device, pause: Pause, kind: Kind) -> None:
    """`pause` takes the place of one that the device may have; whoever waits for that one looks again."""
    before, device.pause = device.pause, pause
    if before is not None:
        before.over.set()
    services.writer.look()  # a round waits for it no longer
    _note(services, kind, device, f"by an admin: {pause.because}" if pause.because else "by an admin")


def _note(services: Services, kind: Kind, device: Device | None, text: str) -> None:
    log.warning("%s%s %s", kind, "" if device is None else f" {device.name!r}", text)
    services.hub.note(kind, device, text)


def _of(device: Device) -> web.Response:
    pause = device.pause
    return web.json_response(
        {
            "device": device.name,
            "paused": pause is not None,
            "dropped": pause is not None and pause.dropped,
            "because": None if pause is None else pause.because,
        }
    )


async def _device_and_reason(request: web.Request) -> tuple[Services, Device, str]:
    services, name = request.app[SERVICES], request.match_info["name"]
    device = services.registry.devices.get(name)
    if device is None or not device.id:
        raise _refusal(404, "unknown-device", f"this run has no device {name!r:.200}")
    because = (await _body(request)).get("because", "")
    if not isinstance(because, str) or len(because) > _LONGEST:
        raise _bad(f"because must be a text of at most {_LONGEST} characters")
    return services, device, "".join(c if c.isprintable() else "?" for c in because)


def _rate(value: object) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        with suppress(OverflowError):
            rate = float(value)
            if LEAST_RATE <= rate <= LARGEST_RATE:
                return rate
    raise _bad(f"value must be a number from {LEAST_RATE:g} to {LARGEST_RATE:g}, not {value!r:.40}")


async def _body(request: web.Request) -> dict[str, Any]:
    """The JSON object of a request; an empty one stands for {}."""
    try:
        body = json.loads(await request.read() or "{}")
    except (JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _bad(f"the body is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise _bad("the body must be a JSON object")
    return body


def _bad(detail: str) -> web.HTTPException:
    return _refusal(400, "bad-request", detail)


def _refusal(status: int, code: str, detail: str) -> web.HTTPException:
    kinds = {400: web.HTTPBadRequest, 404: web.HTTPNotFound}
    return kinds[status](text=problem(status, code, detail).text, content_type="application/json")

"""The routes with which an admin changes a run: POST, with a JSON body if the action has arguments."""

import asyncio
import time
from contextlib import suppress
from functools import partial

from aiohttp import web

from edgeflock.server.http.bodies import bad_request, read_object, refusal
from edgeflock.server.http.keys import HOST, REGISTER, WRITER
from edgeflock.server.http.roles import ADMIN, allows
from edgeflock.server.identity import StoredOrder
from edgeflock.server.roster import Device
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.protocol.frames import EventKind
from edgeflock.shared.settings.coordination import MAX_RATE, MIN_RATE

routes = web.RouteTableDef()

_LONGEST = 200
"""The most characters of a reason."""


@routes.post("/v1/devices/{name:[^/]+}/pause")
@allows(ADMIN)
async def pause(request: web.Request) -> web.Response:
    """Let a device wait for its answers until it is resumed. {"because": text} is optional."""
    device, because = await _device_and_reason(request)
    if device.connection.dropped:
        raise refusal(409, "dropped", f"{device.name} is dropped; resume it before you pause it")
    await _store_order(request, device, StoredOrder(False, because))
    device.connection.pause(because)
    _record_change(request, "paused", device, because)
    return _order_response(device)


@routes.post("/v1/devices/{name:[^/]+}/drop")
@allows(ADMIN)
async def drop(request: web.Request) -> web.Response:
    """End the session of a device, and refuse it until it is resumed. {"because": text} is optional."""
    device, because = await _device_and_reason(request)
    await _store_order(request, device, StoredOrder(True, because))
    device.connection.drop(because)
    _record_change(request, "dropped", device, because)
    if device.connection.session is not None and (refusal := device.dropped) is not None:
        await device.connection.session.drop(refusal)
    return _order_response(device)


@routes.post("/v1/devices/{name:[^/]+}/resume")
@allows(ADMIN)
async def resume(request: web.Request) -> web.Response:
    """Let a device go on, or come back."""
    device, _ = await _device_and_reason(request, ())
    if device.connection.order is not None:
        await _store_order(request, device, None)
    if device.connection.order is not None:
        device.connection.resume()
        _record_change(request, "resumed", device)
    return _order_response(device)


@routes.post("/v1/devices/{name:[^/]+}/pardon")
@allows(ADMIN)
async def pardon(request: web.Request) -> web.Response:
    """Let the guard forget what it knows of a device, which then stands as a new one does."""
    device, _ = await _device_and_reason(request, ())
    guard = request.app[HOST].engine.guard
    was_known = guard is not None and await request.app[WRITER].call(partial(guard.pardon, device.id))
    if was_known:
        _note(request, "config", device, "pardoned: the defence begins anew with it, by an admin")
    return web.json_response({"device": device.name, "pardoned": was_known})


@routes.post("/v1/learning_rate")
@allows(ADMIN)
async def set_learning_rate(request: web.Request) -> web.Response:
    """{"value": number}: the learning rate from the next update on."""
    engine = request.app[HOST].engine
    rate = _rate((await read_object(request, ("value",))).get("value"))
    if request.app[HOST].config.coordination.traits.elastic:
        raise refusal(
            409,
            "no-learning-rate",
            "in elastic averaging devices descend by local.rate: restart with another",
        )
    configured = request.app[HOST].config.coordination.learning_rate
    before = engine.published.learning_rate
    version = await request.app[WRITER].call(lambda: engine.steering.adjust(rate, configured))
    _note(
        request,
        "config",
        None,
        f"learning rate {before:g} -> {rate:g} from version {version:,} on, by an admin",
    )
    return web.json_response({"learning_rate": rate, "version": version})


@routes.post("/v1/checkpoint")
@allows(ADMIN)
async def checkpoint(request: web.Request) -> web.Response:
    """Put a snapshot of the model into the journal now."""
    await read_object(request, ())
    version = await request.app[WRITER].call(request.app[HOST].engine.steering.checkpoint)
    _note(request, "checkpoint", None, f"version {version:,}, by an admin")
    return web.json_response({"version": version})


@routes.post("/v1/rollback")
@allows(ADMIN)
async def roll_back(request: web.Request) -> web.Response:
    """{"version": number}: go on from the model of that version, as the next one."""
    engine, writer = request.app[HOST].engine, request.app[WRITER]
    wanted = (await read_object(request, ("version",))).get("version")
    if not isinstance(wanted, int) or isinstance(wanted, bool):
        raise bad_request(f"version must be a whole number, not {wanted!r:.40}")

    def attempt() -> tuple[int, int] | ConfigError:
        try:
            return engine.steering.roll_back(wanted, time.time())
        except ConfigError as error:  # what is raised here ends the server
            return error

    done = await writer.call(attempt)
    if isinstance(done, ConfigError):
        raise refusal(409, "no-such-version", str(done))
    writer.wake()
    old, version = done
    _note(request, "config", None, f"the model of version {old:,} again, as version {version:,}, by an admin")
    return web.json_response({"of": old, "version": version})


async def _store_order(request: web.Request, device: Device, order: StoredOrder | None) -> None:
    """Store the order for the next server. It returns when the order is durable."""
    await asyncio.to_thread(request.app[REGISTER].order, device.name, order)


def _record_change(request: web.Request, kind: EventKind, device: Device, because: str = "") -> None:
    """Record a change of a device: the writer updates whether others wait for it."""
    request.app[WRITER].set_presence(device.id, device.present)
    _note(request, kind, device, f"by an admin: {because}" if because else "by an admin")


def _note(request: web.Request, kind: EventKind, device: Device | None, text: str) -> None:
    request.app[HOST].hub.note(kind, device, text)


def _order_response(device: Device) -> web.Response:
    connection = device.connection
    return web.json_response(
        {
            "device": device.name,
            "paused": connection.order is not None,
            "dropped": connection.dropped,
            "because": None if connection.order is None else connection.order.reason,
        }
    )


async def _device_and_reason(
    request: web.Request, keys: tuple[str, ...] = ("because",)
) -> tuple[Device, str]:
    name = request.match_info["name"]
    device = request.app[HOST].registry.devices.get(name)
    if device is None or not device.id:
        raise refusal(404, "unknown-device", f"this run has no device {name!r:.200}")
    because = (await read_object(request, keys)).get("because", "")
    if not isinstance(because, str) or len(because) > _LONGEST:
        raise bad_request(f"because must be a text of at most {_LONGEST} characters")
    return device, "".join(c if c.isprintable() else "?" for c in because)


def _rate(value: object) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        with suppress(OverflowError):
            rate = float(value)
            if MIN_RATE <= rate <= MAX_RATE:
                return rate
    raise bad_request(f"value must be a number from {MIN_RATE:g} to {MAX_RATE:g}, not {value!r:.40}")

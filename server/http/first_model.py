"""GET /v1/start: the file from which devices load the first model. docs/protocol.md is the reference."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from aiohttp import web

from edgeflock.server.connections import Meter
from edgeflock.server.http import ranges
from edgeflock.server.http.keys import HOST, MODEL_FILE
from edgeflock.server.http.problem import problem
from edgeflock.server.http.roles import DEVICE, allows

_CHUNK_BYTES = 1 << 18

routes = web.RouteTableDef()


@routes.get("/v1/start")
@allows(DEVICE)
async def get_start(request: web.Request) -> web.StreamResponse:
    """The first model, packed. It counts as traffic of the device that ?device=NAME says, if there is one."""
    path, weights = request.app.get(MODEL_FILE), request.app[HOST].engine.outlet.first_model
    if path is None or weights is None:
        return problem(404, "no-start", "devices make the first model of this run: the Welcome says how")
    headers = {"Content-Type": "application/octet-stream"}
    start, stop, status = ranges.resolve(request, weights.digest.hex(), weights.size, headers)
    response = web.StreamResponse(status=status, headers=headers)
    response.content_length = stop - start
    with _count_traffic(request), await asyncio.to_thread(open, path, "rb") as file:
        await response.prepare(request)
        if request.method == "HEAD":
            return response
        await asyncio.to_thread(file.seek, start)
        with suppress(ConnectionError):  # it will ask for the rest
            while start < stop:
                octets = await asyncio.to_thread(file.read, min(_CHUNK_BYTES, stop - start))
                if not octets:
                    raise EOFError(f"{path} ends at byte {start}, which it did not when the server began")
                await response.write(octets)
                start += len(octets)
            await response.write_eof()
    return response


@contextmanager
def _count_traffic(request: web.Request) -> Iterator[None]:
    """Count the bytes sent inside the block as the device's traffic."""
    device = request.app[HOST].registry.devices.get(request.query.get("device", ""))
    meter = Meter() if request.transport is None else request.transport.get_extra_info("meter", Meter())
    before = meter.egress
    try:
        yield
    finally:
        if device is not None:
            device.connection.earlier_traffic.egress += meter.egress - before

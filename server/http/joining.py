"""POST /v1/join: a device shows a token or its credential, and gets a credential for its key.

docs/protocol.md is the reference.
"""

import asyncio
from contextlib import suppress

from aiohttp import web

from edgeflock.server.http.bodies import bad_request, read_object
from edgeflock.server.http.callers import caller_of, note, secret_of
from edgeflock.server.http.keys import AUTHORITY, HOST, PIN, REGISTER
from edgeflock.server.http.roles import JOIN, allows
from edgeflock.shared.identity import from_base64url, names, to_base64url

routes = web.RouteTableDef()


@routes.post("/v1/join")
@allows(JOIN)
async def join(request: web.Request) -> web.Response:
    """{"name", "key", "proof", "before"}: the last one only of a device that is to have another key."""
    body = await read_object(request)
    name = body.get("name")
    if not isinstance(name, str) or (wrong := names.fault(name)):
        raise bad_request(f"name {wrong if isinstance(name, str) else 'must be a text'}")
    key, proof = _octets(body, "key", 32), _octets(body, "proof", 64)
    old_proof, caller = _octets(body, "before", 64, 0), caller_of(request)
    register, limit = request.app[REGISTER], request.app[HOST].config.limits.devices
    joined = await asyncio.to_thread(  # it waits for the disk
        register.join, secret_of(request), name, key, proof, request.app[PIN], old_proof, limit
    )
    action = "has another key" if caller.role == "device" else "joined"
    note(request, caller.name, f"{name!r} {action}", request.remote)
    answer = {"credential": joined.credential, "realm": to_base64url(joined.realm)}
    if (authority := request.app.get(AUTHORITY)) is not None:
        answer["certificate"] = authority.certificate(key)
    return web.json_response(answer)


def _octets(body: dict[str, object], key: str, *sizes: int) -> bytes:
    text = body.get(key, "")
    with suppress(ValueError):
        octets = from_base64url(text) if isinstance(text, str) else None
        if octets is not None and len(octets) in sizes:
            return octets
    raise bad_request(f"{key} must be {sizes[0]} bytes in base64url")

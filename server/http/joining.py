"""How devices join: POST /v1/join, and POST /v1/invitation for the page of an operator.

docs/protocol.md is the reference of the first.
"""

import asyncio
from contextlib import suppress
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from aiohttp import web

from edgeflock.server.http.bodies import bad_request, read_object, refusal
from edgeflock.server.http.callers import caller_of, note
from edgeflock.server.http.keys import AUTHORITY, HOST, PIN, REGISTER, TRAINING
from edgeflock.server.http.roles import ADMIN, JOIN, allows
from edgeflock.server.identity import own_fingerprint
from edgeflock.server.web import hindrance
from edgeflock.shared.identity import from_base64url, names, secret_of, to_base64url, training_page

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
        register.join, secret_of(request.headers), name, key, proof, request.app[PIN], old_proof, limit
    )
    action = "has another key" if caller.role == "device" else "joined"
    note(request, caller.name, f"{name!r} {action}", request.remote)
    answer = {"credential": joined.credential, "realm": to_base64url(joined.realm)}
    if (authority := request.app.get(AUTHORITY)) is not None:
        answer["certificate"] = authority.certificate(key)
    return web.json_response(answer)


_INVITATION_SECONDS = 86400.0
"""How long an invitation is valid: as long as a token that `edgeflock token create` makes."""


@routes.post("/v1/invitation")
@allows(ADMIN)
async def invite(request: web.Request) -> web.Response:
    """{"reusable": bool}: a new token for one device or for many, as the address of the training page.

    The answer has the rows of its QR code, a text of 0 and 1 each (null without the package segno), and why
    a browser elsewhere would not open the page.
    """
    reusable = (await read_object(request, ("reusable",))).get("reusable", False)
    if not isinstance(reusable, bool):
        raise bad_request("reusable must be true or false")
    if TRAINING not in request.app:
        raise refusal(409, "no-browsers", "this server takes no browsers; set server.browsers and restart it")
    create = partial(request.app[REGISTER].create, "device", reusable=reusable, seconds=_INVITATION_SECONDS)
    token = await asyncio.to_thread(create)  # it waits for the disk
    origin = request.headers.get("Origin", f"{request.scheme}://{request.host}")
    path = urlsplit(request.app[REGISTER].url).path  # of the run, at a server of several
    page, code = training_page(origin + path, token.text), None
    with suppress(ImportError):
        import segno

        code = ["".join(map(str, row)) for row in segno.make(page, micro=False).matrix_iter(border=4)]
    note(request, caller_of(request).name, f"made the token {token.digest.hex()[:12]}", request.remote)
    fingerprint = own_fingerprint(Path(request.app[HOST].config.server.directory), token.pin)
    why = hindrance(page, fingerprint if origin.endswith(f"//{request.host}") else "")
    return web.json_response({"page": page, "code": code, "hindrance": why})


def _octets(body: dict[str, object], key: str, *sizes: int) -> bytes:
    text = body.get(key, "")
    with suppress(ValueError):
        octets = from_base64url(text) if isinstance(text, str) else None
        if octets is not None and len(octets) in sizes:
            return octets
    raise bad_request(f"{key} must be {sizes[0]} bytes in base64url")

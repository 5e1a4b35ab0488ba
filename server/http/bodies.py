"""The bodies of requests and answers: JSON objects, refusals, logins, and files."""

import asyncio
import json
import math
from contextlib import suppress
from io import BytesIO
from typing import Any, BinaryIO

from aiohttp import web

from edgeflock.server.identity import LOGIN_SECONDS, Audit, Register
from edgeflock.server.web import HEADERS, Asset, LoginAttempts
from edgeflock.shared.errors import Refused

_LONGEST_LOGIN = 4096
"""The most bytes of a login's body."""

CHUNK_BYTES = 1 << 18
"""Bytes of a large body that are sent at once."""

_REFUSALS: dict[int, type[web.HTTPException]] = {
    400: web.HTTPBadRequest,
    403: web.HTTPForbidden,
    404: web.HTTPNotFound,
    408: web.HTTPRequestTimeout,
    409: web.HTTPConflict,
}


def problem(status: int, code: str, detail: str) -> web.Response:
    """A refusal as JSON: {"code": text, "detail": text}."""
    return web.json_response({"code": code, "detail": detail}, status=status)


def refusal(status: int, code: str, detail: str) -> web.HTTPException:
    """An exception whose response is a problem, to raise in a handler."""
    return _REFUSALS[status](text=problem(status, code, detail).text, content_type="application/json")


def bad_request(detail: str) -> web.HTTPException:
    return refusal(400, "bad-request", detail)


async def read_object(request: web.Request, keys: tuple[str, ...] | None = None) -> dict[str, Any]:
    """The JSON object of a request, with no key but `keys`, if given. No body: {}. Raises HTTPBadRequest."""
    try:
        body = json.loads(await request.read() or "{}")
    except (ValueError, RecursionError) as error:  # also of a number of thousands of digits
        raise bad_request(f"the body is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise bad_request("the body must be a JSON object")
    if keys is not None and (unknown := body.keys() - {*keys}):
        known = f"known are {', '.join(keys)}" if keys else "the body has no keys"
        raise bad_request(f"{min(unknown)!r:.40} is unknown; {known}")
    return body


async def read_in_time(request: web.Request, seconds: float) -> None:
    """Read the body. Raises HTTPRequestTimeout, which closes the connection."""
    try:
        async with asyncio.timeout(seconds):
            await request.read()
    except TimeoutError as error:
        reason = f"the body did not come within {seconds:g} s (limits.request_seconds)"
        late = refusal(408, "too-slow", reason)
        late.force_close()
        raise late from error


async def read_token(request: web.Request) -> str:
    """The token of a login's body, {"token": text}. Raises HTTPBadRequest."""
    if len(await request.read()) > _LONGEST_LOGIN:
        raise bad_request(f"the body has at most {_LONGEST_LOGIN} bytes")
    token = (await read_object(request)).get("token")
    if not isinstance(token, str) or not token.strip():
        raise bad_request("token must be a text")
    return token.strip()


def login_response(
    request: web.Request, role: str, cookie: str, number: str, path: str = "/"
) -> web.Response:
    """The answer to a login: {"role": text}, and its number in a cookie that no script can read."""
    response = web.json_response({"role": role})
    # Behind a proxy with TLS the request itself does not show it.
    secure = request.secure or request.headers.get("Origin", "").lower().startswith("https:")
    age = int(LOGIN_SECONDS)
    response.set_cookie(
        cookie, number, max_age=age, path=path, secure=secure, httponly=True, samesite="Strict"
    )
    return response


def failed_login(
    attempts: LoginAttempts, register: Register, audit: Audit, token: str, address: str, error: Refused
) -> web.Response:
    """Count and note a failed login, and return the answer. Valid tokens are accepted in the meantime."""
    account = register.find_account(token)
    if (wait := attempts.count_failure(address, account)) > 0:
        reason = f"too many logins have failed: wait {wait:.0f} s, unless you now have the right token"
        refused = problem(429, "too-many-attempts", f"{error}; {reason}")
        refused.headers["Retry-After"] = str(math.ceil(wait))
        return refused
    audit.note(account or "anybody", "failed to log in to the page", address=address)
    return problem(error.status, error.code, str(error))


def page_response(request: web.Request, page: dict[str, Asset], name: str) -> web.Response:
    """Answer with a file of the page, or that it has none of this name. Raises as `asset_response`."""
    if name not in page:
        return problem(404, "not-found", f"the page has no file {name!r:.100}")
    return asset_response(request, page[name], HEADERS)


def asset_response(request: web.Request, asset: Asset, headers: dict[str, str]) -> web.Response:
    """Answer with a file of a page. Raises HTTPNotModified if the browser has it."""
    headers = add_etag(request, asset.digest, headers)
    is_text = asset.content_type.startswith("text/")
    if asset.encoding:
        headers["Content-Encoding"] = asset.encoding
    response = web.Response(
        body=BytesIO(asset.octets),
        headers=headers,
        content_type=asset.content_type,
        charset="utf-8" if is_text else None,
    )
    if is_text and not asset.encoding:
        response.enable_compression()
    return response


def octets_response(octets: bytes, status: int, headers: dict[str, str]) -> web.Response:
    """Wrap the bytes in a payload, since aiohttp warns of a large bytes body that it would copy."""
    return web.Response(
        body=BytesIO(octets),
        status=status,
        headers={"Content-Length": str(len(octets)), **headers},
        content_type="application/octet-stream",
    )


def add_etag(request: web.Request, digest: str, headers: dict[str, str]) -> dict[str, str]:
    """`headers` with the ETag of bytes of this digest. Raises HTTPNotModified if the client has them."""
    headers = {**headers, "ETag": f'"{digest}"'}
    if any(tag.value in (digest, "*") for tag in request.if_none_match or ()):
        raise web.HTTPNotModified(headers=headers)
    return headers


def resolve_range(
    request: web.Request, digest: str, size: int, headers: dict[str, str]
) -> tuple[int, int, int]:
    """(first, end, status): which of `size` bytes to answer with. `headers` gets their headers.

    ETag, If-None-Match, If-Range and Range are honoured (RFC 9110, sections 13 and 14). Raises
    HTTPNotModified if the client has them all, HTTPRequestRangeNotSatisfiable if no byte of the range exists.
    """
    headers |= add_etag(request, digest, {**headers, "Accept-Ranges": "bytes"})
    beyond = {"Content-Range": f"bytes */{size}"}
    try:
        wanted = request.http_range
    except ValueError as error:
        raise web.HTTPRequestRangeNotSatisfiable(headers=beyond) from error
    # A range of another representation does not apply to this one.
    same = request.headers.get("If-Range", headers["ETag"]) == headers["ETag"]
    if wanted == slice(None, None, 1) or not same:
        return 0, size, 200
    start, stop, _ = wanted.indices(size)
    if start >= stop:
        raise web.HTTPRequestRangeNotSatisfiable(headers=beyond)
    headers["Content-Range"] = f"bytes {start}-{stop - 1}/{size}"
    return start, stop, 206


async def send_file(request: web.Request, file: BinaryIO, digest: str, size: int) -> web.StreamResponse:
    """Send a file of this digest and size, or the range that is asked for, in chunks.

    Raises as `resolve_range` does, and EOFError if the file is shorter.
    """
    headers = {"Content-Type": "application/octet-stream"}
    start, stop, status = resolve_range(request, digest, size, headers)
    response = web.StreamResponse(status=status, headers=headers)
    response.content_length = stop - start
    await response.prepare(request)
    if request.method == "HEAD":
        return response
    await asyncio.to_thread(file.seek, start)
    with suppress(ConnectionError):  # it will ask for the rest
        while start < stop:
            octets = await asyncio.to_thread(file.read, min(CHUNK_BYTES, stop - start))
            if not octets:
                raise EOFError(f"{request.path}: its file of {size} bytes ends at byte {start} now")
            await response.write(octets)
            start += len(octets)
        await response.write_eof()
    return response

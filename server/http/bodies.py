"""The bodies of requests and answers: JSON objects, refusals, and bytes in whole or in part."""

import json
from contextlib import suppress
from io import BytesIO
from typing import Any

from aiohttp import web

CHUNK_BYTES = 1 << 18
"""Bytes of a large body that are sent at once."""

_REFUSALS: dict[int, type[web.HTTPException]] = {
    400: web.HTTPBadRequest,
    403: web.HTTPForbidden,
    404: web.HTTPNotFound,
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


async def read_object(request: web.Request) -> dict[str, Any]:
    """The JSON object of a request. An empty body means {}. Raises HTTPBadRequest with the reason."""
    try:
        body = json.loads(await request.read() or "{}")
    except (ValueError, RecursionError) as error:  # also of a number of thousands of digits
        raise bad_request(f"the body is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise bad_request("the body must be a JSON object")
    return body


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


async def send_part(request: web.Request, octets: bytes, digest: str) -> web.StreamResponse:
    """Send bytes of this digest, or the range that is asked for, in chunks: a slow reader takes no copy.

    Raises as `resolve_range` does.
    """
    headers = {"Content-Type": "application/octet-stream"}
    start, stop, status = resolve_range(request, digest, len(octets), headers)
    response = web.StreamResponse(status=status, headers=headers)
    response.content_length = stop - start
    await response.prepare(request)
    if request.method != "HEAD":
        with suppress(ConnectionError), memoryview(octets) as whole:  # it will ask for the rest
            for first in range(start, stop, CHUNK_BYTES):
                await response.write(bytes(whole[first : min(first + CHUNK_BYTES, stop)]))
            await response.write_eof()
    return response

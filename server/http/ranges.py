"""Conditional and partial answers of bytes that have a digest (RFC 9110, sections 13 and 14)."""

from aiohttp import web


def resolve(request: web.Request, digest: str, size: int, headers: dict[str, str]) -> tuple[int, int, int]:
    """(first, end, status): which of `size` bytes to answer with. `headers` gets their headers.

    ETag, If-None-Match, If-Range and Range are honoured. Raises HTTPNotModified if the client has them all,
    HTTPRequestRangeNotSatisfiable if no byte of the range exists.
    """
    headers |= {"ETag": f'"{digest}"', "Accept-Ranges": "bytes"}
    if has_copy(request, digest):
        raise web.HTTPNotModified(headers=headers)
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


def has_copy(request: web.Request, digest: str) -> bool:
    """Whether the client has these bytes already."""
    return any(tag.value in (digest, "*") for tag in request.if_none_match or ())

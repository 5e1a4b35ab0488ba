"""Octets that have a digest, all of them or the rest of an earlier answer (RFC 9110, sections 13 and 14)."""

from aiohttp import web


def asked(request: web.Request, digest: str, size: int, headers: dict[str, str]) -> tuple[int, int, int]:
    """(first, end, status): which of `size` octets to answer with; `headers` gets what is to be said of them.

    ETag, If-None-Match, If-Range and Range are honoured. Raises HTTPNotModified if whoever asks has them all,
    HTTPRequestRangeNotSatisfiable if there are none of those that it wants.
    """
    headers |= {"ETag": f'"{digest}"', "Accept-Ranges": "bytes"}
    if has(request, digest):
        raise web.HTTPNotModified(headers=headers)
    beyond = {"Content-Range": f"bytes */{size}"}
    try:
        wanted = request.http_range
    except ValueError as error:
        raise web.HTTPRequestRangeNotSatisfiable(headers=beyond) from error
    # A part of something else would be no part of this.
    same = request.headers.get("If-Range", headers["ETag"]) == headers["ETag"]
    if wanted == slice(None, None, 1) or not same:
        return 0, size, 200
    start, stop, _ = wanted.indices(size)
    if start >= stop:
        raise web.HTTPRequestRangeNotSatisfiable(headers=beyond)
    headers["Content-Range"] = f"bytes {start}-{stop - 1}/{size}"
    return start, stop, 206


def has(request: web.Request, digest: str) -> bool:
    """Whether whoever asks has it already."""
    return any(tag.value in (digest, "*") for tag in request.if_none_match or ())

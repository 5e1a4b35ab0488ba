"""A refusal of an HTTP request as JSON: {"code": text, "detail": text}."""

from aiohttp import web


def problem(status: int, code: str, detail: str) -> web.Response:
    """A JSON response of that status."""
    return web.json_response({"code": code, "detail": detail}, status=status)


def refusal(status: int, code: str, detail: str) -> web.HTTPException:
    """An exception whose response is a problem, to raise in a handler."""
    kinds: dict[int, type[web.HTTPException]] = {
        400: web.HTTPBadRequest,
        403: web.HTTPForbidden,
        404: web.HTTPNotFound,
        409: web.HTTPConflict,
    }
    return kinds[status](text=problem(status, code, detail).text, content_type="application/json")

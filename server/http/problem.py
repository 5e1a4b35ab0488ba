"""A refusal of an HTTP request as JSON: {"code": text, "detail": text}."""

from aiohttp import web


def problem(status: int, code: str, detail: str) -> web.Response:
    """A JSON response of that status."""
    return web.json_response({"code": code, "detail": detail}, status=status)

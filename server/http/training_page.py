"""The training page: a browser that opens it can take part as a device (server.browsers).

Its scripts use the same routes as other devices: /v1/join, /v1/session and the downloads.
"""

import asyncio

from aiohttp import web

from edgeflock.server.http.bodies import asset_response, problem
from edgeflock.server.http.keys import TRAINING
from edgeflock.server.http.roles import EVERYBODY, allows
from edgeflock.server.web import TRAINING_HEADERS, asset, library_file, missing_libraries

routes = web.RouteTableDef()

_VENDOR = "device/vendor/"


@routes.get("/train")
@allows(EVERYBODY)
async def get_training_page(request: web.Request) -> web.StreamResponse:
    """The page. Its token is in the fragment, which browsers send nobody."""
    return await _answer(request, "page/index.html")


@routes.get("/train/{path:.+}")
@allows(EVERYBODY)
async def get_training_asset(request: web.Request) -> web.StreamResponse:
    """A file of the page, of the device in JavaScript, or of the libraries that it imports."""
    return await _answer(request, request.match_info["path"])


async def _answer(request: web.Request, path: str) -> web.StreamResponse:
    if TRAINING not in request.app:
        return problem(404, "no-browsers", "this server takes no browsers; its operator sets server.browsers")
    found = request.app[TRAINING].get(path)
    if found is None and path.startswith(_VENDOR):
        file = library_file(path.removeprefix(_VENDOR))
        if file is not None and (found := await asyncio.to_thread(asset, file)) is not None:
            request.app[TRAINING][path] = found  # once in memory, however many readers there are
        elif reason := missing_libraries():
            return problem(404, "not-installed", reason)
    if found is None:
        return problem(404, "not-found", f"the training page has no file {path!r:.100}")
    return asset_response(request, found, TRAINING_HEADERS)

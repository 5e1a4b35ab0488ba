"""A server of feeds for a test: tells what it is told to tell, when it is told to."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from edgeflock.shared.protocol import feed
from edgeflock.shared.protocol.frames import COLUMNS, Delta, DeviceRow, Frame, Mark, Point, Snapshot


@dataclass
class Feed:
    """What a test sees of it, and says to it."""

    port: int = 0
    token: str = ""
    watchers: list["asyncio.Queue[Frame | None]"] = field(default_factory=list)
    first: list[Frame] = field(default_factory=list)
    """What every new watcher is told."""
    leaving: bool = False
    """Whether it hangs up on whoever comes."""
    asked: list[str] = field(default_factory=list)
    """The query of each connection to the feed."""
    acts: list[tuple[str, Any]] = field(default_factory=list)
    """(path, body) of each action."""
    refusal: tuple[int, str] | None = None
    """How actions are refused."""
    history: tuple[DeviceRow, list[Point]] | None = None
    past: list[Mark] = field(default_factory=list)
    """What it remembers of the run."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def tell(self, *frames: Snapshot | Delta) -> None:
        for watcher in self.watchers:
            for frame in frames:
                watcher.put_nowait(frame)

    def hang_up(self) -> None:
        """End the connection of everybody who watches."""
        for watcher in self.watchers:
            watcher.put_nowait(None)


@asynccontextmanager
async def serving(*first: Frame, token: str = "", port: int = 0) -> AsyncIterator[Feed]:
    """A server on 127.0.0.1, for as long as the context lasts."""
    reported = Feed(token=token, first=list(first))

    @web.middleware
    async def authenticate(request: web.Request, handler: Any) -> web.StreamResponse:
        if token and request.headers.get("Authorization") != f"Bearer {token}":
            return web.json_response({"code": "unauthorized", "detail": "send the token"}, status=401)
        response: web.StreamResponse = await handler(request)
        return response

    async def watch(request: web.Request) -> web.StreamResponse:
        reported.asked.append(request.query_string)
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        queue: asyncio.Queue[Frame | None] = asyncio.Queue()
        for frame in reported.first:
            queue.put_nowait(frame)
        if reported.leaving:
            queue.put_nowait(None)
        reported.watchers.append(queue)
        sending = asyncio.create_task(_send(socket, queue))
        async for _ in socket:
            pass
        sending.cancel()
        reported.watchers.remove(queue)
        return socket

    async def act(request: web.Request) -> web.Response:
        reported.acts.append((request.path, await request.json()))
        if reported.refusal is not None:
            status, words = reported.refusal
            return web.json_response({"code": "refused", "detail": words}, status=status)
        return web.json_response({})

    async def device(request: web.Request) -> web.Response:
        if reported.history is None or reported.history[0].name != request.match_info["name"]:
            return web.json_response({"code": "unknown", "detail": "no such device"}, status=404)
        row, points = reported.history
        return web.json_response({"device": dict(zip(COLUMNS, row, strict=True)), "history": points})

    async def past(request: web.Request) -> web.Response:
        return web.json_response(reported.past)

    app = web.Application(middlewares=[authenticate])
    app.router.add_get("/v1/feed", watch)
    app.router.add_get("/v1/devices/{name}", device)
    app.router.add_get("/v1/history", past)
    app.router.add_post("/v1/{path:.*}", act)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port)
    await site.start()
    reported.port = runner.addresses[0][1]
    try:
        yield reported
    finally:
        reported.hang_up()
        await runner.cleanup()


async def _send(socket: web.WebSocketResponse, queue: "asyncio.Queue[Frame | None]") -> None:
    while (frame := await queue.get()) is not None:
        await socket.send_bytes(feed.encode(frame))
    await socket.close()

"""The task feed of a gateway's session: the leader's records, passed on in order."""

import asyncio
from typing import TYPE_CHECKING

from edgeflock.server.sessions import Send
from edgeflock.shared.protocol import gateway
from edgeflock.shared.protocol.messages import Record

if TYPE_CHECKING:
    from edgeflock.server.gateway.upstream import Upstream


class GatewayTaskFeed:
    """The feed of one session."""

    def __init__(self, upstream: "Upstream", ticket: int, send: Send) -> None:
        self._upstream, self._ticket, self._send = upstream, ticket, send
        self._records: asyncio.Queue[Record] = asyncio.Queue()
        upstream.listen(ticket, self._records.put_nowait)

    async def begin(self, version: int) -> None:
        await self._upstream.report_ready(gateway.Ready(self._ticket, version, True))

    async def advance(self, *, counted: bool) -> None:
        await self._upstream.report_ready(gateway.Ready(self._ticket, None, counted))

    async def follow(self) -> None:
        while True:
            await self._send(await self._records.get())

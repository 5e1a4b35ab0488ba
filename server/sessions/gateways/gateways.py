"""The gateways of a leader, and the changes of the model that they get."""

import asyncio
import json
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from aiohttp import web

from edgeflock.server.engine import Published
from edgeflock.server.ledger import FIRST_MODEL
from edgeflock.server.publication import Changes
from edgeflock.server.sessions.context import RunHost
from edgeflock.server.sessions.gateways.changes import ChangeLog
from edgeflock.server.sessions.gateways.gateway_connection import GatewayConnection
from edgeflock.server.sessions.writer import Writer
from edgeflock.shared.errors import Dropped, Unauthorized
from edgeflock.shared.protocol import gateway, gateway_coding, wire

_RETAINED_BYTES = 1 << 20
"""The bytes that the log of changes may hold, if the model is not larger. The whole model is then cheaper."""


class Gateways:
    """The gateways of a leader.

    They get each version once it is durable, and before any device has a receipt for it.
    """

    def __init__(self, host: RunHost, writer: Writer, pin: bytes, authority: str) -> None:
        """`pin`: see gateway.Sync. `authority` (PEM) signs certificates of devices; empty: they need none."""
        self.host, self.writer, self._pin, self._authority = host, writer, pin, authority
        self._published: Published | None = None
        self._changes: ChangeLog | None = None
        """None: no gateway needs changes, so they are not recorded."""
        self._last_mark = b""
        """The mark when a gateway last disconnected. It may resume while the log has this mark."""
        self.connections: list[GatewayConnection] = []

    def publish(self) -> None:
        """Send the gateways the changes since the last call. The engine must be at rest and durable."""
        engine = self.host.engine
        if self._changes is None:
            return
        if not self.connections and not self._changes.has(self._last_mark):
            engine.outlet.record_changes(enabled=False)
            self._published = self._changes = None
            return
        touched, now = engine.outlet.changes(), engine.published
        if touched is None and now == self._published:
            return
        self._published = now
        if touched is None:
            touched = Changes([], np.zeros(0, np.int64), np.zeros(0, np.float32))
        change = gateway.Change(
            now.version,
            touched.counts,
            touched.indices.astype("<i4").tobytes(),
            touched.values.astype("<f4").tobytes(),
            touched.is_reset,
            now.learning_rate,
            now.end_reason,
            now.diverged,
        )
        octets = gateway_coding.pack(change)
        self._changes.add(octets)
        for connection in list(self.connections):
            connection.put(octets)

    async def serve(self, connection: GatewayConnection) -> web.StreamResponse:
        """Serve one gateway until either end disconnects."""
        try:
            return await connection.serve(lambda: self._join(connection))
        finally:
            if connection in self.connections:
                self.connections.remove(connection)
            if self._changes is not None:
                self._last_mark = self._changes.mark

    async def _join(self, connection: GatewayConnection) -> None:
        """Send the gateway the changes that it missed, or the whole model, and each version from now on."""
        host, engine = self.host, self.host.engine
        if host.sums is not None:
            raise Dropped(
                "this run sums in secret, and a gateway would answer its devices in the server's place; "
                "devices connect to the server"
            )

        def begin() -> None:
            if self._changes is None:
                engine.outlet.record_changes()
                self._changes = ChangeLog(max(_RETAINED_BYTES, 4 * host.layout.size))
            elif (missed := self._changes.list_after(connection.mark)) is not None:
                digest = sha256(engine.theta()[1].astype("<f4").data).digest()
                connection.queue(gateway_coding.pack(gateway.Resumed(connection.mark, missed, digest)))
                self.connections.append(connection)
                return
            self._published = now = engine.published
            file = Path(host.config.server.directory) / FIRST_MODEL
            terms = host.welcome(now.version, engine.outlet.weights(), 0, b"")
            sync = gateway.Sync(
                gateway.GATEWAY,
                wire.encode(terms),
                json.dumps(_gateway_settings(host)),
                engine.theta()[1].astype("<f4").tobytes(),
                b"" if engine.outlet.first_model is None else file.read_bytes(),
                self._pin,
                self._changes.mark,
                self._authority,
                now.learning_rate,
                now.end_reason,
                now.diverged,
            )
            connection.queue(gateway_coding.pack(sync))
            self.connections.append(connection)

        await self.writer.call(begin)
        connection.wake()

    async def close_revoked(self, is_valid: Callable[[bytes], bool]) -> None:
        """Close connections whose token is no longer valid. `is_valid` gets the token's digest."""
        revoked = [one for one in self.connections if one.credential and not is_valid(one.credential)]
        refusal = Unauthorized("the token of this gateway was revoked, or has expired")
        await asyncio.gather(*(connection.reject(refusal) for connection in revoked))

    async def close(self) -> None:
        """Close all connections because the server stops. The gateways will connect again."""
        await asyncio.gather(*(connection.close() for connection in list(self.connections)))


def _gateway_settings(host: RunHost) -> dict[str, Any]:
    """Return the settings for a gateway, without those of the leader's machine."""
    return host.config.model_dump(
        mode="json",
        exclude={
            "server": {"directory", "certificate", "key"},
            "evaluation": {"trackers"},
            **dict.fromkeys(("journal", "callbacks", "client"), True),
        },
    )

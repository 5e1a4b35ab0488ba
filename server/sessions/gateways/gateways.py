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
from edgeflock.server.engine.welcome import welcome
from edgeflock.server.publication import Touched
from edgeflock.server.sessions.context import RunHost
from edgeflock.server.sessions.gateways.changes import ChangeLog
from edgeflock.server.sessions.gateways.line import GatewayLine
from edgeflock.server.sessions.writer import Writer
from edgeflock.shared.errors import Unauthorized
from edgeflock.shared.protocol import gateway, wire

_KEPT = 1 << 20
"""Bytes of changes, or as many as the model has. Beyond that it is cheaper to send the whole model."""


class Gateways:
    """The gateways of a leader.

    They get each version once it is durable, and before any device has a receipt for it."""

    def __init__(
        self,
        host: RunHost,
        writer: Writer,
        pin: bytes,
        offered: Path | None,
        authority: str,
    ) -> None:
        """`authority`, in PEM, signs the certificates that devices must show. Empty: none are needed."""
        self.host, self.writer, self._authority = host, writer, authority
        self._pin, self._offered = pin, offered
        self._told: Published | None = None
        self._changes: ChangeLog | None = None
        """None: changes are not recorded."""
        self._left = b""
        """The mark when the last line broke."""
        self.lines: list[GatewayLine] = []

    def publish(self) -> None:
        """Send what is new. The engine must be at rest and durable."""
        engine = self.host.engine
        if self._changes is None:
            return
        if not self.lines and not self._changes.knows(self._left):
            engine.outlet.follow(on=False)
            self._told = self._changes = None
            return
        touched, now = engine.outlet.changes(), engine.published
        if touched is None and now == self._told:
            return
        self._told = now
        if touched is None:
            touched = Touched([], np.zeros(0, np.int64), np.zeros(0, np.float32))
        change = gateway.Change(
            now.version,
            touched.counts,
            touched.where.astype("<i4").tobytes(),
            touched.values.astype("<f4").tobytes(),
            touched.again,
            now.learning_rate,
            now.over,
            now.diverged,
        )
        octets = gateway.packed(change)
        self._changes.add(octets)
        for line in list(self.lines):
            line.put(octets)

    async def serve(self, line: GatewayLine) -> web.StreamResponse:
        """Serve one gateway until it hangs up."""
        try:
            return await line.serve(lambda: self._join(line))
        finally:
            if line in self.lines:
                self.lines.remove(line)
            if self._changes is not None:
                self._left = self._changes.mark

    async def _join(self, line: GatewayLine) -> None:
        """Send the gateway each version from now on."""
        host, engine = self.host, self.host.engine

        def begin() -> None:
            if self._changes is None:
                engine.outlet.follow()
                self._changes = ChangeLog(max(_KEPT, 4 * host.layout.size))
            elif (missed := self._changes.since(line.mark)) is not None:
                digest = sha256(engine.theta()[1].astype("<f4").data).digest()
                line.queue(gateway.packed(gateway.Resumed(line.mark, missed, digest)))
                self.lines.append(line)
                return
            self._told = now = engine.published
            weights = engine.outlet.weights()
            terms = welcome(
                *(host.run, host.config, host.layout, now.version, 0, engine.start, weights, b""),
                host.input,
                host.described,
                host.app,
                host.held_out,
            )
            sync = gateway.Sync(
                gateway.GATEWAY,
                wire.encode(terms),
                json.dumps(_told(host)),
                engine.theta()[1].astype("<f4").tobytes(),
                b"" if self._offered is None else self._offered.read_bytes(),
                self._pin,
                self._changes.mark,
                self._authority,
                host.config.run.open is False,
                now.learning_rate,
                now.over,
                now.diverged,
            )
            line.queue(gateway.packed(sync))
            self.lines.append(line)

        await self.writer.call(begin)
        line.wake()

    async def turn_out(self, opens: Callable[[bytes], bool]) -> None:
        """Close the lines whose token is not valid any more, as `opens` says of its digest."""
        gone = [line for line in self.lines if line.credential and not opens(line.credential)]
        refusal = Unauthorized("the token of this gateway was revoked, or has expired")
        await asyncio.gather(*(line.turn_out(refusal) for line in gone))

    async def close(self) -> None:
        """Close all lines, because the server stops. The devices will connect again."""
        await asyncio.gather(*(line.close() for line in list(self.lines)))


def _told(host: RunHost) -> dict[str, Any]:
    """The settings for a gateway, without those of the leader's machine."""
    ours = {"directory", "certificate", "key", "trackers", "on_update", "on_evaluated", "on_finding", "stop"}
    return host.config.model_dump(mode="json", exclude={"client": True, "journal": True, "run": ours})

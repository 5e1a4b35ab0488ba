"""Pauses training while the machine has a reason, and resumes automatically."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

from edgeflock.client.neighbour.reasons import MachineState, RestRules, Rules, Sensors
from edgeflock.shared.protocol.messages import Facts

log = logging.getLogger(__name__)

_EVERY = 5.0
"""Seconds between two checks."""


class Pausing:
    """Pauses the training of one device."""

    def __init__(
        self, rules: Rules, read: Callable[[float], MachineState] | None = None, *, shows_reason: bool = True
    ) -> None:
        """Raises ConfigError if the machine lacks a sensor. `shows_reason`: send the reason to the server."""
        self._read = read or Sensors(rules)
        self._judge = RestRules(rules)
        self._says_why = shows_reason
        self._reason: str | None = None
        self._may = asyncio.Event()
        self._may.set()

    def facts(self) -> Facts:
        """Return the facts for the server: none while the device trains."""
        if self._reason is None:
            return {}
        return {"paused": self._reason if self._says_why else "for a reason of its own"}

    async def wait_permission(self) -> bool:
        """Wait until the device may train, and return whether it had to wait."""
        waits = not self._may.is_set()
        await self._may.wait()
        return waits

    async def watch(self, notify: Callable[[], Awaitable[None]]) -> None:
        """Check periodically until cancelled, and `notify` the server of each change."""
        since: float | None = None
        while True:
            await self.check()
            if self._reason is not None and since is None:
                since = time.monotonic()
                log.warning("paused: %s", self._reason)
                await notify()
            elif self._reason is None and since is not None:
                log.info("training resumes after a pause of %.0f s", time.monotonic() - since)
                since = None
                await notify()
            await asyncio.sleep(_EVERY)

    async def check(self) -> None:
        """Check once, in a separate thread, since D-Bus may block."""
        seen = await asyncio.to_thread(self._read, time.time())
        self._reason = self._judge(seen, time.monotonic())
        if self._reason is None:
            self._may.set()
        else:
            self._may.clear()

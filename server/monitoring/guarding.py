"""Runs the defence guard: computes trusted gradients off the event loop, and reports dropped devices."""

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from edgeflock.server.coordination import Push
from edgeflock.server.defence import Trusted
from edgeflock.server.engine import Accepted, Engine
from edgeflock.server.sessions import Writer

log = logging.getLogger(__name__)

ComputeTrusted = Callable[[int, NDArray[np.float32]], Trusted]
"""(version, theta) -> the gradient of the server's own samples."""

_CHECK_SECONDS = 0.2
"""Seconds between two checks of the version."""

_REST_RATIO = 9.0
"""Seconds of rest for each second that a gradient took: this bounds its part of the machine."""


class GuardRunner:
    """Runs the guard. Does nothing in a run without one."""

    def __init__(
        self,
        engine: Engine,
        writer: Writer,
        compute: ComputeTrusted | None,
        note: Callable[[int, str], None],
    ) -> None:
        """`note` is called with a device's number and what happened to it."""
        self._engine = engine
        self._writer = writer
        self._compute = compute
        self._note = note
        self._dropping: set[int] = set()
        """Devices whose last update was dropped."""

    def record(self, push: Push, accepted: Accepted) -> None:
        """Record that an update has made a version."""
        device, guard = push.device, self._engine.guard
        dropped = not accepted.share and not (guard is not None and guard.record(device).excused)
        if dropped == (device in self._dropping):
            return
        self._dropping ^= {device}
        if dropped:
            self._note(device, "the defence drops its updates; they do not change the model (defence.mode)")
        else:
            self._note(device, "its updates count again")

    async def run(self) -> None:
        """Compute trusted gradients, until cancelled."""
        guard, compute = self._engine.guard, self._compute
        if guard is None or compute is None:
            return
        while True:
            if not guard.needs_refresh(self._engine.published.version):
                await asyncio.sleep(_CHECK_SECONDS)
                continue
            models = await self._writer.call(self._engine.screening.models_to_trust)
            began = time.monotonic()
            for version, theta in models:
                try:
                    trusted = await asyncio.to_thread(compute, version, theta)
                except Exception:  # a user's module may raise anything; the last gradient stays in use
                    log.exception("the guard's gradient at version %d failed", version)
                else:
                    await self._writer.call(partial(guard.set_trusted, trusted))
            await asyncio.sleep(_CHECK_SECONDS + _REST_RATIO * (time.monotonic() - began))

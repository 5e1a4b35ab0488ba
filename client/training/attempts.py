"""Retries steps that fail, e.g. if an app raises or memory is short."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from edgeflock.client.data import Batches
from edgeflock.client.training.interfaces import Compute, WorkerProgress
from edgeflock.shared.errors import TrainingFailed
from edgeflock.shared.protocol.backoff import back_off

log = logging.getLogger(__name__)

MAX_FAILURES = 5
"""The device ends after this many consecutive failures."""


class RetryingCompute:
    """A `Compute` that retries a failed step after a delay, from the same samples."""

    def __init__(self, compute: Compute, batches: Batches, progress: WorkerProgress) -> None:
        self._compute, self._batches, self._progress = compute, batches, progress
        self.batches_per_step = 1
        """Batches that a step takes."""

    async def __call__(self, step: Callable[..., Any], *arguments: Any) -> Any:
        """Return the result of `step`. Raises TrainingFailed after MAX_FAILURES consecutive failures."""
        delays: Iterator[float] | None = None
        for failures in range(1, MAX_FAILURES + 1):
            try:
                return await self._compute(step, *arguments)
            except TrainingFailed as error:
                self._progress.failed += 1
                self._batches.take_back()
                if failures == MAX_FAILURES:
                    raise TrainingFailed(f"{failures} steps in a row failed: {error}") from error.__cause__
                delays = delays or back_off(Random())
                delay = next(delays)
                log.warning("a step failed: %s; trying again in %.1f s", error, delay)
                await asyncio.sleep(delay)
                await self._batches.ready(self.batches_per_step)
        raise AssertionError

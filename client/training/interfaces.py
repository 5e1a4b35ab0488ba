"""What a worker needs of its program; what it reports; and what the modes of a run share."""

import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from edgeflock.client.data import Batches
from edgeflock.client.training.conversation import ServerLink
from edgeflock.client.training.replica import Replica
from edgeflock.client.training.trainer import Trainer
from edgeflock.shared.errors import Diverged, Refused, ServerAtFault, Unauthorized
from edgeflock.shared.protocol.messages import Model, Welcome

log = logging.getLogger(__name__)

MAX_REFUSALS = 3
"""The device gives up after this many consecutive updates refused for their size."""


PermissionWait = Callable[[], Awaitable[bool]]
"""Wait until the device may train; return whether it had to wait, so that its model is old."""


async def permit_always() -> bool:
    """Return at once: training is always permitted."""
    return False


Compute = Callable[..., Awaitable[Any]]
"""compute(function, *arguments) returns its result without blocking the event loop."""


@dataclass(slots=True)
class WorkerProgress:
    """Counts of a worker's updates so far."""

    updates: int = 0
    samples: int = 0
    refused: int = 0
    duplicates: int = 0
    """Updates of tasks that another device computed first."""
    stopped: int = 0
    """Steps stopped because their round was over."""
    failed: int = 0
    """Steps in which training raised an error."""
    loss: float = 0.0
    too_large: int = field(default=0, repr=False)
    """Updates in a row that were refused for their size."""

    def count_late(self, late: Refused) -> None:
        """Count an update that was refused for its base."""
        self.refused += 1
        log.info("%s", late)

    def count_too_large(self, large: Refused) -> None:
        """Count an update that was refused for its size. Raises Diverged after MAX_REFUSALS in a row."""
        self.refused += 1
        self.too_large += 1
        if self.too_large == MAX_REFUSALS:
            raise Diverged(f"{MAX_REFUSALS} updates in a row were refused: {large}") from large
        log.warning("%s", large)


@dataclass(frozen=True, slots=True)
class DeviceRun:
    """A device in one run, as the participants of sums and of tasks use it."""

    welcome: Welcome
    server: ServerLink
    trainer: Trainer
    batches: Batches
    replica: Replica
    train: Compute
    """Computes steps, with retries."""
    compute: Compute
    """Computes all else that takes long."""
    progress: WorkerProgress
    wait_permission: PermissionWait

    async def pull(self) -> None:
        """Update the replica."""
        apply_model(self.replica, await self.server.pull(self.replica.version, self.replica.held))


def apply_model(replica: Replica, model: Model) -> None:
    """Apply `model` to `replica`. Raises ServerAtFault if it cannot be applied."""
    with as_server_fault("model"):
        replica.take(model)


@contextmanager
def as_server_fault(subject: str) -> Iterator[None]:
    """Convert Refused to ServerAtFault, since here the input is the server's.

    Unauthorized passes, since an unknown token is not the server's fault.
    """
    try:
        yield
    except Unauthorized:
        raise
    except Refused as error:
        raise ServerAtFault(f"the server's {subject} is not valid for this device: {error}") from error

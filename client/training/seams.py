"""What a worker works with: the server it asks, what trains for it, and the account it keeps."""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from edgeflock.client.training.encoding import LocalSteps
from edgeflock.client.training.replica import Replica
from edgeflock.shared.errors import Refused, ServerAtFault, Unauthorized
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.protocol.messages import Model, Receipt, Task, Update, Welcome

HOPELESS = 3
"""Updates in a row that were refused for their size, after which there is no use in going on."""


class ServerLink(Protocol):
    """The server as a worker sees it: transport.Link, or an emulated one."""

    async def join(self) -> Welcome: ...

    async def pull(self, base: int | None, held: int = 0, start: int = 0, stop: int = 0) -> Model: ...

    async def push(self, update: Update) -> Receipt: ...

    async def offer(self, update: Update) -> Task:
        """In a run of tasks: what came of `update`, and what to compute next."""

    async def task(self) -> Task | None:
        """What to compute next, after a pull, or after a Task without any; None: pull again."""

    async def over(self) -> None:
        """Return once the round is over in which the device computes."""

    def speak_as(self, layout: bytes) -> None: ...


class UpdateSpool(Protocol):
    """Where the update that is on its way outlasts the device (client/spool.py)."""

    fails: bool
    """Whether the last update could not be kept."""

    def keep(self, run: str, layout: bytes, update: Update) -> None: ...

    def find(self, run: str, layout: bytes, most: int) -> Update | None: ...

    def drop(self) -> None: ...


class Training(Protocol):
    """What makes the updates of one run: trainer.Trainer, or one that knows them already."""

    @property
    def layout(self) -> Layout: ...

    def step(
        self, theta: NDArray[np.float32], base: int, sequence: int, stopped: Callable[[], bool] = ...
    ) -> Update: ...

    def gradient(self, theta: NDArray[np.float32]) -> LocalSteps: ...

    def take_back(self) -> None: ...

    def take_fleet(self, moments: bytes, labels: bytes) -> None: ...

    def undo(self) -> None: ...

    def forget(self) -> None: ...


Permitted = Callable[[], Awaitable[bool]]
"""Return once the device may train; whether it had to wait, so that its model is of long ago."""


async def always() -> bool:
    """Nothing is in the way."""
    return False


Compute = Callable[..., Awaitable[Any]]
"""compute(function, *arguments): its result, without holding up the event loop."""


@dataclass(slots=True)
class WorkerProgress:
    """What a worker has done so far."""

    updates: int = 0
    samples: int = 0
    refused: int = 0
    duplicates: int = 0
    """Of tasks that another device had computed before."""
    stopped: int = 0
    """Steps that were given up because their round was over."""
    failed: int = 0
    """Steps in which what trains raised an error."""
    loss: float = 0.0


def take(replica: Replica, model: Model) -> None:
    """Have `replica` become `model`. Raises ServerAtFault if it cannot."""
    with of_the_server("model"):
        replica.take(model)


@contextmanager
def of_the_server(what: str) -> Iterator[None]:
    """Here the server is the peer whose input is refused: raises ServerAtFault then. A token that it does
    not know is no fault of it.
    """
    try:
        yield
    except Unauthorized:
        raise
    except Refused as error:
        raise ServerAtFault(f"the server's {what} is none for this device: {error}") from error

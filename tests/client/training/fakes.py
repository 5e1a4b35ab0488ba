"""A server and training engines made of lists, and a worker between them."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from edgeflock.client.backends.backend import Backend
from edgeflock.client.data.batcher import Batches, Shuffled
from edgeflock.client.training.conversation import ServerLink
from edgeflock.client.training.interfaces import Compute
from edgeflock.client.training.trainer import Trainer
from edgeflock.client.training.worker import Worker
from edgeflock.shared.codecs import sparse, values
from edgeflock.shared.data.datasets import Dataset
from edgeflock.shared.errors import RunOver
from edgeflock.shared.model.gradient import Gradient
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.protocol.messages import PROTOCOL, Model, Receipt, Task, Update, Welcome
from edgeflock.shared.selection import HORIZON

LAYOUT = Layout.from_shapes([("kernel", (2, 5)), ("bias", (4,))])
F32 = values.CODINGS["f32"].mode
HALVED = 0.5**HORIZON
"""As feedback, each version halves what was left out."""

NOTHING = np.zeros(0, np.float32)
"""The statistics of a model without running statistics."""

WELCOME = Welcome(
    protocol=PROTOCOL,
    run="run",
    model="package:Model",
    loss="mse",
    layout=list(LAYOUT.shapes()),
    start=None,
    version=3,
    sequence=40,
    batch=6,
    local_steps=1,
    local_rate=0.5,
    select=0.2,
    balance=1.0,
    threshold=0.0,
    feedback=0.0,
    indices=sparse.RAW,
    values=F32,
    frame_bytes=1 << 20,
    alpha=0.0,
    beta=0.0,
)

Reply = Exception | None
"""What a push meets: a refusal or the like, or None for a receipt."""


def theta_at(version: int) -> NDArray[np.float32]:
    """What this server's model is at a version."""
    return np.full(LAYOUT.size, version, np.float32)


def model_at(version: int) -> Model:
    return Model(version, None, sparse.DENSE, F32, LAYOUT.size, b"", theta_at(version).tobytes())


@dataclass
class FakeServer(ServerLink):
    """Answers pushes by a script, then says that the run is over. Each accepted update makes a version."""

    replies: list[Reply]
    welcome: Welcome = WELCOME
    asked: list[object] = field(default_factory=list)
    """What was asked, in order: "join", ("pull", base), ("speak as", digest), "task" or the Update."""
    handed: list[Task | None] = field(default_factory=list)
    """In a run of tasks: what is said after pulls and to updates, in order; then the run is over."""
    moments: bytes = b""
    """What receipts bring."""
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    """Set, it is told that the round is over."""

    def __post_init__(self) -> None:
        self.version = self.welcome.version

    @property
    def updates(self) -> list[Update]:
        return [question for question in self.asked if isinstance(question, Update)]

    async def join(self) -> Welcome:
        self.asked.append("join")
        return self.welcome

    async def pull(self, base: int | None, held: int = 0, start: int = 0, stop: int = 0) -> Model:
        self.asked.append(("pull", base))
        return model_at(self.version)

    async def push(self, update: Update) -> Receipt:
        self.asked.append(update)
        reply = self.replies.pop(0) if self.replies else RunOver("the run has its updates")
        if reply is not None:
            raise reply
        self.version += 1
        model = model_at(self.version) if update.pull else None
        return Receipt(update.sequence, self.version, model, self.moments)

    async def offer(self, update: Update) -> Task:
        self.asked.append(update)
        if self.replies and (reply := self.replies.pop(0)) is not None:
            raise reply
        task = self._next()
        assert task is not None, "an Update is answered"
        return task

    async def task(self) -> Task | None:
        self.asked.append("task")
        return self._next()

    def _next(self) -> Task | None:
        if not self.handed:
            raise RunOver("the run has its updates")
        return self.handed.pop(0)

    async def round_end(self) -> None:
        await self.ended.wait()

    def announce_layout(self, layout: bytes) -> None:
        self.asked.append(("speak as", layout))


@dataclass
class FakeBackend:
    """Computes the gradient theta + (0, 1, 2, ...), of alternating sign, or what is listed."""

    layout: Layout = LAYOUT
    name: str = "fake"
    gradients: Iterator[NDArray[np.float32]] | None = None
    seen: list[tuple[list[float], list[int]]] = field(default_factory=list)
    """theta and targets of each call."""

    def gradient(
        self, theta: NDArray[np.float32], x: NDArray[np.float32], y: NDArray[np.generic]
    ) -> Gradient:
        self.seen.append((theta.tolist(), y.tolist()))
        if self.gradients is not None:
            return Gradient(0.5, next(self.gradients), NOTHING)
        return Gradient(float(theta[0]) / 2, gradient_at(theta), NOTHING)


def gradient_at(theta: NDArray[np.float32]) -> NDArray[np.float32]:
    numbers = np.arange(LAYOUT.size, dtype=np.float32)
    return ((theta + numbers) * (1 - 2 * (numbers % 2))).astype(np.float32)


def training(
    backend: Backend | Callable[[Welcome], Backend], batches: Batches
) -> Callable[[Welcome], Awaitable[Trainer]]:
    """What a Worker makes its trainers with."""

    async def make(welcome: Welcome) -> Trainer:
        return Trainer(backend(welcome) if callable(backend) else backend, batches, welcome)

    return make


def worker(
    server: FakeServer,
    backend: Backend | Callable[[Welcome], Backend],
    samples: int = 50,
    leaving: Callable[[], bool] = lambda: False,
    compute: Compute = asyncio.to_thread,
) -> Worker:
    data = Dataset(np.zeros((samples, 1), np.float32), np.arange(samples))
    batches = Shuffled(data, np.random.default_rng(0))
    return Worker(server, training(backend, batches), batches, compute, is_leaving=leaving)


def sent(update: Update) -> dict[int, float]:
    """index -> value of a sparse update with raw indices and f32 values."""
    where = np.frombuffer(update.indices, "<u4").tolist()
    return dict(zip(where, np.frombuffer(update.values, "<f4").tolist(), strict=True))


def listed(*gradients: NDArray[np.float32]) -> FakeBackend:
    return FakeBackend(gradients=iter(gradients))


def falling(scale: float) -> NDArray[np.float32]:
    """scale * (14, 13, ... 1): c = 0.2 takes the entries 0, 1 and 10."""
    return np.arange(LAYOUT.size, 0, -1).astype(np.float32) * np.float32(scale)

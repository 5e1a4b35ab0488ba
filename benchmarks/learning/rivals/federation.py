"""What rivals share: a fleet's clients, traffic and time, counted until enough gradients were computed."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

import numpy as np
import torch

from benchmarks.learning.rivals.channel import Channel, Vector
from edgeflock.client.data import Shuffled
from edgeflock.devices.emulation.fleet import PreparedFleet, prepare
from edgeflock.devices.emulation.speed import DeviceSpeed
from edgeflock.results.sweep import Job
from edgeflock.server.hosting.weights import first_model
from edgeflock.shared.data.datasets import concatenate
from edgeflock.shared.model.torch_module import FlatModule
from edgeflock.shared.protocol.frames import Evaluation

STATISTICS = np.float32(0.1)
"""The part of a batch's own statistics that a step takes into BatchNorm's running ones, as torch has it."""


class Client:
    """Computes gradients of its share's batches, and knows how long they take."""

    def __init__(
        self, flat: FlatModule, batches: Shuffled, batch: int, pace: DeviceSpeed, random: np.random.Generator
    ) -> None:
        self._flat, self._batches, self._batch = flat, batches, batch
        self._pace, self._random = pace, random
        self.gradients = 0
        self._loss = 0.0

    @property
    def share(self) -> int:
        """Samples that it holds: n_k."""
        return len(self._batches.samples)

    def steps(self, steps: int, epochs: int) -> int:
        """How many those are of its share."""
        return steps or max(1, epochs * (self.share // self._batch))

    def gradient(self, theta: Vector) -> tuple[Vector, Vector]:
        """(gradient [P], statistics [B]) of the next batch, in arrays that the next call overwrites."""
        self.gradients += 1
        step = self._flat.gradient(theta, *self._batches.take(self._batch))
        self._loss += step.loss
        return step.gradient, step.statistics

    def descend(self, start: Vector, steps: int, move: Callable[[Vector, Vector], None]) -> Vector:
        """Return the parameters [P] after `steps` gradients from `start`.

        `move` changes the parameters in place by a gradient.
        """
        theta, size = start.copy(), self._flat.layout.parameters.size
        for _ in range(steps):
            gradient, statistics = self.gradient(theta)
            move(theta[:size], gradient)
            theta[size:] += STATISTICS * (statistics - theta[size:])
        return theta

    def seconds(self, steps: int) -> float:
        """How long so many gradients take."""
        return sum(self._pace.draw(self._random) for _ in range(steps))

    def reported(self, steps: int) -> tuple[float, int]:
        """(mean loss of the last `steps` gradients, their samples), which an update says."""
        loss, self._loss = self._loss / steps, 0.0
        return loss, steps * self._batch


@dataclass(slots=True)
class Federation:
    """Who takes part in a run, and what it has cost so far."""

    flat: FlatModule
    clients: Sequence[Client]
    channel: Channel
    theta: Vector
    """The first model, [P + B]."""
    random: np.random.Generator
    """Draws who takes part, and who crashes."""
    crash: float = 0.0
    """The probability that a client crashes after a gradient, once its message has arrived."""
    seconds: float = 0.0
    crashed: set[int] = field(default_factory=set)
    """Numbers of clients that will never come back."""

    @classmethod
    def of(cls, prepared: PreparedFleet, seed: int, coding: str = "f32", slow: frozenset[int] = frozenset(),
           slower: float = 1.0, central: bool = False, crash: float = 0.0) -> "Federation":  # fmt: skip
        """Return a federation with a fleet's shares, initial model and step times.

        With `central` all data are in one place. `slow` devices take `slower` times as long.
        """
        file = prepared.file
        flat = FlatModule(file.model.module, file.model.loss, seed, prepared.make)
        theta, _ = first_model(flat, file.model.weights, seed)
        shares = [concatenate(prepared.shares)] if central else prepared.shares
        kind = next(iter(file.classes.values()))
        fast = DeviceSpeed.from_class(kind, prepared.flops)
        late = DeviceSpeed.from_class(
            kind.model_copy(update={"step_ms": fast.step * 1e3 * slower, "spread": fast.spread}),
            prepared.flops,
        )
        clients = [
            Client(
                flat,
                Shuffled(share, np.random.default_rng([seed, 1, place])),
                file.local.batch,
                late if place in slow and not central else fast,
                np.random.default_rng([seed, 2, place]),
            )
            for place, share in enumerate(shares)
        ]
        random = np.random.default_rng([seed, 0])
        return cls(flat, clients, Channel(flat.layout, coding), theta, random, crash)

    @property
    def parameters(self) -> int:
        """P: what gradients move. Behind them in theta lie B running statistics."""
        return self.flat.layout.parameters.size

    @property
    def gradients(self) -> int:
        """Computed so far."""
        return sum(client.gradients for client in self.clients)

    @property
    def present(self) -> list[int]:
        """Numbers of the clients that have not crashed. The last one never does."""
        return [number for number in range(len(self.clients)) if number not in self.crashed]

    def draw_crash(self, number: int, gradients: int) -> bool:
        """Return whether a client crashes after a message of so many gradients."""
        others_remain = len(self.crashed) + 1 < len(self.clients)
        if self.crash and others_remain and self.random.random() < 1 - (1 - self.crash) ** gradients:
            self.crashed.add(number)
        return number in self.crashed


class Rival(Protocol):
    """An algorithm with its settings."""

    @property
    def values(self) -> str:
        """How its vectors are coded."""

    @property
    def central(self) -> bool:
        """Whether all data lie in one place."""

    def models(self, federation: Federation) -> Iterator[Vector]:
        """Yield theta after each of its steps, without end."""


@dataclass(frozen=True, slots=True)
class Averaged:
    """A rival's averaged model: average <- (1 - w) average + w theta, w = (eta + 1) / (t + eta).

    Of its t-th theta, as Edgeflock averages (O. Shamir and T. Zhang, ICML 2013). The rival itself goes on
    from theta.
    """

    rival: Rival
    eta: float

    @property
    def values(self) -> str:
        return self.rival.values

    @property
    def central(self) -> bool:
        return self.rival.central

    def models(self, federation: Federation) -> Iterator[Vector]:
        """Yield the average after each of the rival's steps."""
        average = federation.theta.copy()
        for count, theta in enumerate(self.rival.models(federation), 1):
            average += np.float32((self.eta + 1) / (count + self.eta)) * (theta - average)
            yield average


def simulate(
    rival: Rival,
    prepared: PreparedFleet,
    seed: int,
    gradients: int,
    every: int,
    progress: Callable[[Evaluation], None] = lambda _: None,
    stop: Callable[[Evaluation], object] = lambda _: False,
    seen: Callable[[Any, torch.Tensor], object] = lambda output, target: None,
    federation: Federation | None = None,
) -> dict[str, Any]:
    """Run until `gradients` were computed, or until `stop` is true of an evaluation. Return how it ended.

    There is an evaluation about every `every` gradients. Updates are clients' messages. `seen` gets outputs
    and targets of each evaluation.
    """
    run = federation or Federation.of(prepared, seed, rival.values, central=rival.central)
    models = rival.models(run)
    last, ended = 0, ""
    while not ended:
        with np.errstate(over="ignore", invalid="ignore"):  # a rate too high shows at the next evaluation
            theta = next(models)
        computed = run.gradients
        ended = "complete" if computed >= gradients else ""
        if ended or computed // every > last // every or not np.isfinite(theta).all():
            last = computed
            loss, accuracy = run.flat.evaluate(
                theta,
                prepared.test.x,
                prepared.test.y,
                on_batch=lambda output, target, right: seen(output, target),
            )
            known = loss if math.isfinite(loss) else None
            ended = "diverged" if known is None else ended
            channel = run.channel
            evaluation = Evaluation(
                channel.messages, run.seconds, known, accuracy, channel.ingress, channel.egress
            )
            progress(evaluation)
            ended = ended or ("stopped" if stop(evaluation) else "")
    updates = run.channel.messages
    return {
        "seed": seed,
        "ended": ended,
        "updates": updates,
        "gradients_per_update": round(run.gradients / max(1, updates)),
    }


@dataclass(frozen=True, slots=True)
class Simulation(Job):
    """A run of one of them, to be kept and swept as those of fleets are.

    Of its fleet file count the data, the model, the batch, and as end.updates the gradients.
    """

    how: Rival | None = None

    def settings(self) -> dict[str, Any]:
        return {**Job.settings(self), "federated": asdict(self.how)}  # type: ignore[call-overload]

    def play(self, progress: Callable[[Evaluation], None]) -> dict[str, Any]:
        torch.set_num_threads(1)
        assert self.how is not None, "a simulation has a rival"
        prepared, every = prepare(self.file), self.file.fleet.evaluate_every
        return simulate(
            self.how, prepared, self.seed, self.file.end.updates, every, progress, self.has_reached_target
        )

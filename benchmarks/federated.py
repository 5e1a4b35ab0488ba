"""FedAvg, FedProx, FedBuff, FedAsync and ASGD with momentum on a fleet's shares.

    FedAvg     (McMahan et al., 2017) in each round K clients drawn at random take E epochs of SGD from the
               model; the server adds the mean of their changes to it
    FedProx    (Li et al., 2020) FedAvg; every step also goes back to the model by mu times how far it is
    FedBuff    (Nguyen et al., 2022) a number of clients train at any time, each from the model that there was
               when it began. The server adds up what they come to, each weighted with 1 / sqrt(1 +
               staleness), and adds a K-th of the sum to the model whenever there are K. One that has ended
               makes room for another
    FedAsync   (Xie et al., 2019) as FedBuff with K = 1, and the model goes a part of the way, 1 / sqrt(1 +
               staleness) of the server's rate, to the client's
    momentum   every client computes a gradient at any time; each, divided by its staleness, goes into a
               velocity, which the server adds to the model (heavy ball; Polyak, 1964)

Training is torch's, the coding is Edgeflock's: every model and every change is a record of the protocol, of
which the values are really encoded and decoded, counted as a framed WebSocket message. Nothing else is
counted: no greetings, questions or receipts.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from edgeflock.client.data import Shuffled
from edgeflock.devices.emulation.fleet import Prepared, prepare
from edgeflock.devices.results.sweep import Job
from edgeflock.shared.codecs import sparse, values
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.model.torch_module import FlatModule
from edgeflock.shared.protocol import wire
from edgeflock.shared.protocol.frames import Evaluation
from edgeflock.shared.protocol.messages import Model, Update

Vector = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Federated:
    """How a run goes. Both papers' names: K, E, eta_l (rate), eta_g (server_rate)."""

    rate: float
    epochs: int = 1
    """E; 0: one gradient."""
    together: int = 10
    """K: changes that are applied at a time; of FedAvg, the clients of a round."""
    training: int = 0
    """Clients that train at any time, of FedBuff; 0: rounds, as FedAvg has them."""
    server_rate: float = 1.0
    momentum: float = 0.0
    """Part of the velocity that each gradient leaves; 0: no velocity."""
    proximal: float = 0.0
    """mu of FedProx."""
    mixing: bool = False
    """Whether the model goes towards a client's, as in FedAsync, instead of as far as the client went."""
    values: str = "f32"
    """Coding of what travels, both ways."""

    def steps(self, samples: int, batch: int) -> int:
        """Gradients that a client of so many samples computes for one message."""
        return max(1, self.epochs * (samples // batch))


class Channel:
    """What travels between the server and its clients, coded and counted.

    In float32 the whole model goes down. A coding of fewer bits is of differences from what the client
    holds, which is nothing at first. The server knows what each of them made of it: no error adds up.
    """

    def __init__(self, layout: Layout, coding: str) -> None:
        self.ingress = self.egress = self.messages = 0
        self._counts = layout.counts(None)
        self._coding = coding
        self._mode = values.CODINGS[coding].mode
        self._held: dict[int, tuple[int, Vector]] = {}

    def down(self, client: int, version: int, theta: Vector) -> Vector:
        """The model as `client` has it then."""
        base, held = self._held.get(client, (None, np.zeros_like(theta)))
        whole = values.CODINGS[self._coding].of_models
        octets, decoded = self._across(theta if whole else theta - held)
        record = Model(version, None if whole else base, sparse.DENSE, self._mode, theta.size, b"", octets)
        self.egress += wire.framed_size(wire.size(record), masked=False)
        if whole:
            return decoded
        self._held[client] = version, held + decoded
        return held + decoded

    def up(self, version: int, change: Vector, loss: float, samples: int) -> Vector:
        """A client's change of the model, from `version`, as the server has it then."""
        octets, decoded = self._across(change)
        self.messages += 1
        record = Update(
            self.messages, version, sparse.DENSE, self._mode, change.size, b"", octets, loss, samples, False
        )
        self.ingress += wire.framed_size(wire.size(record), masked=True)
        return decoded

    def _across(self, vector: Vector) -> tuple[bytes, Vector]:
        octets = values.encode(vector, self._counts, self._coding)
        return octets, values.decode(octets, self._counts, self._mode)


def simulate(
    how: Federated,
    prepared: Prepared,
    seed: int,
    gradients: int,
    every: int,
    progress: Callable[[Evaluation], None] = lambda _: None,
    stop: Callable[[Evaluation], object] = lambda _: False,
) -> dict[str, Any]:
    """Until `gradients` were computed, evaluated about every `every`, or until an evaluation of which `stop`
    is true; how it ended.

    Updates are clients' messages; there is no time in it.
    """
    file = prepared.file
    flat = FlatModule(file.model.module, file.model.loss, seed)
    channel = Channel(flat.layout, how.values)
    steps = how.steps(min(len(share) for share in prepared.shares), file.run.batch)
    clients = [
        Client(
            flat,
            Shuffled(share, np.random.default_rng([seed, 1, number])),
            file.run.batch,
            steps,
            how.rate,
            how.proximal,
        )
        for number, share in enumerate(prepared.shares)
    ]
    models = (_velocity if how.momentum else _buffered if how.training else _rounds)(
        how, clients, channel, flat.theta(), np.random.default_rng([seed, 0])
    )
    seen, ended = 0, ""
    while not ended:
        theta = next(models)
        computed = channel.messages * steps
        ended = "complete" if computed >= gradients else ""
        if ended or computed // every > seen // every or not np.isfinite(theta).all():
            seen = computed
            loss, accuracy = flat.evaluate(theta, prepared.test.x, prepared.test.y)
            known = loss if math.isfinite(loss) else None
            ended = "diverged" if known is None else ended
            evaluation = Evaluation(channel.messages, 0.0, known, accuracy, channel.ingress, channel.egress)
            progress(evaluation)
            ended = ended or ("stopped" if stop(evaluation) else "")
    return {"seed": seed, "ended": ended, "updates": channel.messages, "gradients_per_update": steps}


class Client:
    """Trains on its share."""

    def __init__(
        self,
        flat: FlatModule,
        batches: Shuffled,
        batch: int,
        steps: int,
        rate: float,
        proximal: float = 0.0,
    ) -> None:
        self._flat = flat
        self._batches = batches
        self._batch = batch
        self._steps = steps
        self._rate = np.float32(rate)
        self._proximal = np.float32(proximal)

    def train(self, start: Vector) -> tuple[Vector, float]:
        """(how its steps of SGD change the model, the mean loss of its batches)."""
        theta, losses = start.copy(), 0.0
        with np.errstate(over="ignore", invalid="ignore"):  # a rate too high shows at the next evaluation
            for _ in range(self._steps):
                loss, gradient, _, _, _ = self._flat.gradient(theta, *self._batches.take(self._batch))
                if self._proximal:
                    gradient = gradient + self._proximal * (theta - start)
                theta -= self._rate * gradient
                losses += loss
            return theta - start, losses / self._steps

    @property
    def samples(self) -> int:
        """Of one training."""
        return self._steps * self._batch


def _rounds(
    how: Federated, clients: list[Client], channel: Channel, theta: Vector, random: np.random.Generator
) -> Iterator[Vector]:
    """The model after each round of FedAvg."""
    version = 0
    while True:
        total = np.zeros_like(theta)
        for number in random.choice(len(clients), how.together, replace=False).tolist():
            change, loss = clients[number].train(channel.down(number, version, theta))
            total += channel.up(version, change, loss, clients[number].samples)
        theta = theta + np.float32(how.server_rate / how.together) * total
        version += 1
        yield theta


def _buffered(
    how: Federated, clients: list[Client], channel: Channel, theta: Vector, random: np.random.Generator
) -> Iterator[Vector]:
    """The model after each K changes of FedBuff. Times are exponential: any client may be next."""
    version = 0
    order = random.permutation(len(clients)).tolist()
    training = [(number, 0, channel.down(number, 0, theta)) for number in order[: how.training]]
    idle = order[how.training :]
    while True:
        total = np.zeros_like(theta)
        for missing in reversed(range(how.together)):
            number, base, start = training.pop(random.integers(len(training)))
            change, loss = clients[number].train(start)
            weight = 1 / math.sqrt(1 + version - base)
            arrived = channel.up(base, change, loss, clients[number].samples)
            total += np.float32(weight) * (start + arrived - theta if how.mixing else arrived)
            if not missing:
                theta = theta + np.float32(how.server_rate / how.together) * total
                version += 1
            idle.append(number)
            following = idle.pop(random.integers(len(idle)))
            training.append((following, version, channel.down(following, version, theta)))
        yield theta


def _velocity(
    how: Federated, clients: list[Client], channel: Channel, theta: Vector, random: np.random.Generator
) -> Iterator[Vector]:
    """The model after each gradient of ASGD with momentum. Times are exponential: any client may be next."""
    version, velocity = 0, np.zeros_like(theta)
    holds = [(0, channel.down(number, 0, theta)) for number in range(len(clients))]
    while True:
        number = int(random.integers(len(clients)))
        base, start = holds[number]
        change, loss = clients[number].train(start)
        arrived = channel.up(base, change, loss, clients[number].samples)
        velocity = np.float32(how.momentum) * velocity + np.float32(1 / max(1, version - base)) * arrived
        theta = theta + velocity
        version += 1
        yield theta
        holds[number] = version, channel.down(number, version, theta)


@dataclass(frozen=True, slots=True)
class Simulation(Job):
    """A run of one of them, to be kept and swept as those of fleets are.

    Of its fleet file count the data, the model, the batch, and as run.updates the gradients.
    """

    how: Federated = Federated(0.1)

    def settings(self) -> dict[str, Any]:
        return {**Job.settings(self), "federated": asdict(self.how)}

    def play(self, progress: Callable[[Evaluation], None]) -> dict[str, Any]:
        torch.set_num_threads(1)
        prepared, every = prepare(self.file), self.file.fleet.evaluate_every
        return simulate(self.how, prepared, self.seed, self.file.run.updates, every, progress, self.arrived)

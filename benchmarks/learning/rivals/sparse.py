"""Rounds of all clients that send the largest entries of single gradients: DGC and EF21."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from benchmarks.learning.rivals.channel import Vector
from benchmarks.learning.rivals.federation import STATISTICS, Federation

Send = Callable[[int, Vector], Vector]
"""(client's number, its gradient [P]) -> what it sends [P], 0 where it sends nothing."""


def sparse_rounds(
    federation: Federation, send: Send, move: Callable[[Vector, Vector], None]
) -> Iterator[Vector]:
    """Yield theta after each round. `move` changes the parameters [P] by the mean of what all have sent.

    A client gets what the others have sent, as in an all-gather, or the model in float32 where that is less.
    Running statistics are averaged.
    """
    clients, channel, size = federation.clients, federation.channel, federation.parameters
    theta, version = federation.theta.copy(), 0
    for number in range(len(clients)):
        channel.down(number, version, theta)
    while True:
        total, octets, present = np.zeros_like(theta), [0] * len(clients), federation.present
        for number in present:
            client = clients[number]
            gradient, statistics = client.gradient(theta)
            sent = send(number, gradient)
            octets[number] = message_bytes(sent) + 4 * statistics.size
            channel.received(version, bytes(octets[number]), *client.reported(1))
            total[:size] += sent
            total[size:] += statistics
        mean = total / np.float32(len(present))
        move(theta[:size], mean[:size])
        theta[size:] += STATISTICS * (mean[size:] - theta[size:])
        federation.seconds += max(clients[number].seconds(1) for number in present)
        version += 1
        for number in present:
            others = min(sum(octets) - octets[number], 4 * theta.size)
            channel.sent(version, version - 1, bytes(others))
            federation.draw_crash(number, 1)
        yield theta.copy()


@dataclass(frozen=True, slots=True)
class Dgc:
    """Deep gradient compression: momentum correction, and what is sent is forgotten.

    u <- momentum u + g; v <- v + u; send the largest of v; u and v <- 0 where they were sent.
    Y. Lin et al., "Deep gradient compression", ICLR 2018 (arXiv 1712.01887), algorithm 4, with its warm-up:
    25, 6.25, 1.56 and 0.4% of the entries in equal parts of the first `warm` rounds, then `share`. The norm
    of a gradient is at most `clip` / sqrt(n), its section 3.2; 0: any.
    """

    rate: float
    share: float = 0.001
    momentum: float = 0.9
    clip: float = 0.0
    warm: int = 40
    values: ClassVar[str] = "f32"
    central: ClassVar[bool] = False

    def models(self, federation: Federation) -> Iterator[Vector]:
        """Yield theta after each round."""
        size, n = federation.parameters, len(federation.clients)
        velocities, memories = np.zeros((n, size), np.float32), np.zeros((n, size), np.float32)
        rounds = [0] * n

        def send(number: int, gradient: Vector) -> Vector:
            if self.clip:
                norm = n**0.5 * float(np.linalg.norm(gradient))
                gradient = gradient * np.float32(min(1.0, self.clip / max(norm, 1e-30)))
            velocity, memory = velocities[number], memories[number]
            velocity *= np.float32(self.momentum)
            velocity += gradient
            memory += velocity
            phase = 4 * rounds[number] // self.warm if self.warm else 4
            rounds[number] += 1
            where = largest(memory, max(self.share, 0.25 ** (phase + 1)) if phase < 4 else self.share)
            sent: Vector = np.zeros_like(memory)
            sent[where] = memory[where]
            memory[where] = velocity[where] = 0
            return sent

        def move(theta: Vector, mean: Vector) -> None:
            theta -= np.float32(self.rate) * mean

        return sparse_rounds(federation, send, move)


@dataclass(frozen=True, slots=True)
class Ef21:
    """EF21 with the largest entries: each client's h follows its gradients by what it sends.

    c_k = top(g_k - h_k); h_k <- h_k + c_k; theta <- theta - rate mean h_k, with stochastic gradients.
    P. Richtarik, I. Sokolov and I. Fatkhullin, "EF21", NeurIPS 2021 (arXiv 2106.05203), algorithm 2. h
    begins at 0.
    """

    rate: float
    share: float = 0.01
    values: ClassVar[str] = "f32"
    central: ClassVar[bool] = False

    def models(self, federation: Federation) -> Iterator[Vector]:
        """Yield theta after each round."""
        size = federation.parameters
        followers = np.zeros((len(federation.clients), size), np.float32)
        mean_follower = np.zeros(size, np.float32)

        def send(number: int, gradient: Vector) -> Vector:
            difference = gradient - followers[number]
            where = largest(difference, self.share)
            sent: Vector = np.zeros_like(difference)
            sent[where] = difference[where]
            followers[number] += sent
            return sent

        def move(theta: Vector, mean: Vector) -> None:
            nonlocal mean_follower
            mean_follower = mean_follower + mean
            theta -= np.float32(self.rate) * mean_follower

        return sparse_rounds(federation, send, move)


def largest(vector: Vector, share: float) -> NDArray[np.intp]:
    """Where the largest entries by magnitude are: a share of all, one at least."""
    count = max(1, int(share * vector.size))
    return np.argpartition(np.abs(vector), vector.size - count)[vector.size - count :]


def message_bytes(sent: Vector) -> int:
    """Of a message: float32 values, and positions at their entropy; no more than all values."""
    count = int(np.count_nonzero(sent))
    share = count / sent.size
    if not 0 < share < 1:
        return 4 * count
    entropy = -(share * math.log2(share) + (1 - share) * math.log2(1 - share))
    return min(4 * sent.size, math.ceil(4 * count + entropy * sent.size / 8))

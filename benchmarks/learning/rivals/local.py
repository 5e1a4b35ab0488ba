"""Rounds of all clients, each with AdamW of its own: DiLoCo and SparseLoCo."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from benchmarks.learning.rivals.averaging import rounds
from benchmarks.learning.rivals.channel import Vector
from benchmarks.learning.rivals.federation import Client, Federation
from benchmarks.learning.rivals.moves import AdamState, Momentum

CHUNK = 4096
"""Entries of which SparseLoCo takes the largest, and numbers them in 12 bits."""


@dataclass(frozen=True, slots=True)
class DiLoCo:
    """DiLoCo: each client takes `steps` steps of AdamW, and keeps its state.

    The server moves theta by Nesterov's momentum along the mean of theta - theta_k.
    A. Douillard et al., "DiLoCo: distributed low-communication training of language models", 2023, algorithm
    1; its outer rate 0.7 and momentum 0.9.
    """

    rate: float
    steps: int = 20
    outer_rate: float = 0.7
    outer_momentum: float = 0.9
    decay: float = 0.0
    values: ClassVar[str] = "f32"
    central: ClassVar[bool] = False

    def models(self, federation: Federation) -> Iterator[Vector]:
        """Yield theta after each round."""
        inner = [AdamState(self.rate, decay=self.decay) for _ in federation.clients]

        def train(number: int, client: Client, start: Vector) -> Vector:
            return client.descend(start, self.steps, inner[number])

        outer = Momentum(self.outer_rate, self.outer_momentum, nesterov=True)
        return rounds(federation, len(federation.clients), lambda client: self.steps, train, outer)


@dataclass(frozen=True, slots=True)
class SparseLoCo:
    """SparseLoCo: client r takes `steps` steps of AdamW to theta_r, and sends Q(top-k(e)).

    Delta = theta - theta_r; e <- beta e + Delta; after sending, e <- e - Q(top-k(e)). The server:
    theta <- theta - outer_rate mean Q(top-k(e)).
    "Communication efficient LLM pre-training with SparseLoCo", arXiv 2508.15706, algorithm 1: beta 0.95, the
    largest of each chunk of 4,096, two bits a value, outer rate 1. A client gets what the others have sent,
    as in an all-gather, or the model in float32 where that is less. Running statistics are averaged.
    """

    rate: float
    steps: int = 20
    share: float = 0.02
    """Of the entries that are sent."""
    beta: float = 0.95
    outer_rate: float = 1.0
    decay: float = 0.0
    values: ClassVar[str] = "f32"
    central: ClassVar[bool] = False

    def models(self, federation: Federation) -> Iterator[Vector]:
        """Yield theta after each round."""
        clients, channel, size = federation.clients, federation.channel, federation.parameters
        inner = [AdamState(self.rate, decay=self.decay) for _ in clients]
        memories = [np.zeros(size, np.float32) for _ in clients]
        theta, version = federation.theta.copy(), 0
        for number in range(len(clients)):
            channel.down(number, version, theta)
        while True:
            total, octets, slowest = np.zeros_like(theta), [0] * len(clients), 0.0
            present = federation.present
            for number in present:
                client = clients[number]
                end = client.descend(theta, self.steps, inner[number])
                memory = np.float32(self.beta) * memories[number] + (theta - end)[:size]
                found, octets[number] = quantised(memory, self.share)
                memories[number] = memory - found
                total[:size] += found
                total[size:] += (end - theta)[size:]
                octets[number] += 4 * (theta.size - size)
                channel.received(version, bytes(octets[number]), *client.reported(self.steps))
                slowest = max(slowest, client.seconds(self.steps))
            mean = total / np.float32(len(present))
            theta[:size] -= np.float32(self.outer_rate) * mean[:size]
            theta[size:] += mean[size:]
            federation.seconds += slowest
            version += 1
            for number in present:
                others = min(sum(octets) - octets[number], 4 * theta.size)
                channel.sent(version, version - 1, bytes(others))
                federation.draw_crash(number, self.steps)
            yield theta.copy()


def quantised(vector: Vector, share: float) -> tuple[Vector, int]:
    """(the largest of each chunk in two bits a value, and 0 elsewhere; how many bytes that takes).

    Values are the sign and one of two sizes: the means of those below and above the middle of the chosen
    magnitudes. A chunk costs 12 + 2 bits an entry, and two float16 sizes.
    """
    found, bits = np.zeros_like(vector), 0
    for start in range(0, vector.size, CHUNK):
        chunk = vector[start : start + CHUNK]
        count = max(1, round(share * chunk.size))
        where = np.argpartition(np.abs(chunk), chunk.size - count)[chunk.size - count :]
        found[start + where] = _two_bits(chunk[where])
        bits += count * (12 + 2) + 2 * 16
    return found, (bits + 7) // 8


def _two_bits(values: Vector) -> NDArray[np.float32]:
    sizes = np.abs(values)
    large = sizes > (sizes.min() + sizes.max()) / 2
    levels = np.empty_like(values)
    for half in (large, ~large):
        if half.any():
            levels[half] = np.float32(np.float16(sizes[half].mean()))
    return np.sign(values) * levels

"""Rounds of a cohort whose changes travel as sparse signs, both ways: STC."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from benchmarks.learning.rivals.channel import Vector
from benchmarks.learning.rivals.federation import Federation
from benchmarks.learning.rivals.moves import Momentum


@dataclass(frozen=True, slots=True)
class Stc:
    """Sparse ternary compression (STC) both ways, with residuals r.

    Client k: d_k = SGD(W) - W; t_k = STC(r_k + d_k); r_k <- r_k + d_k - t_k. The server: d = r + mean t_k;
    t = STC(d); r <- d - t; W <- W + t.
    F. Sattler, S. Wiedemann, K.-R. Mueller and W. Samek, "Robust and communication-efficient federated
    learning from non-i.i.d. data", arXiv 1903.02891, algorithm 2. A client that missed s rounds downloads
    their sum, at the price of s messages, or the model in float32 where that is less (its section V-B).
    Running statistics are averaged, in float32.
    """

    rate: float
    share: float = 0.0025
    """p: of the entries that are sent, both ways; the paper's is 1/400."""
    steps: int = 1
    momentum: float = 0.0
    cohort: int = 10
    values: ClassVar[str] = "f32"
    central: ClassVar[bool] = False

    def models(self, federation: Federation) -> Iterator[Vector]:
        """Yield theta after each round."""
        clients, channel, size = federation.clients, federation.channel, federation.parameters
        theta, version = federation.theta.copy(), 0
        memories: dict[int, Vector] = {}
        lag = np.zeros(size, np.float32)
        seen: dict[int, int] = {}
        octets = message_bytes(size, self.share) + 4 * (theta.size - size)
        while True:
            present = federation.present
            drawn = federation.random.choice(present, min(self.cohort, len(present)), replace=False)
            total, slowest = np.zeros_like(theta), 0.0
            for number in drawn.tolist():
                client = clients[number]
                base = seen.get(number)
                missed = 4 * theta.size if base is None else min(4 * theta.size, (version - base) * octets)
                channel.sent(version, base, bytes(missed))
                seen[number] = version
                move = Momentum(self.rate, self.momentum)
                change = client.descend(theta, self.steps, move) - theta
                memory = memories.get(number, np.float32(0)) + change[:size]
                found = ternary(memory, self.share)
                memories[number] = memory - found
                channel.received(version, bytes(octets), *client.reported(self.steps))
                total[:size] += found
                total[size:] += change[size:]
                slowest = max(slowest, client.seconds(self.steps))
                federation.draw_crash(number, self.steps)
            mean = total / np.float32(drawn.size)
            lag += mean[:size]
            step = ternary(lag, self.share)
            lag -= step
            theta[:size] += step
            theta[size:] += mean[size:]
            federation.seconds += slowest
            version += 1
            yield theta.copy()


def ternary(vector: Vector, share: float) -> Vector:
    """The largest entries as their signs times their mean magnitude, 0 elsewhere: algorithm 1."""
    count = max(1, int(share * vector.size))
    where = np.argpartition(np.abs(vector), vector.size - count)[vector.size - count :]
    found = np.zeros_like(vector)
    found[where] = np.sign(vector[where]) * np.abs(vector[where]).mean()
    return found


def message_bytes(size: int, share: float) -> int:
    """Of one message: Golomb-coded distances and a sign for each entry, and the magnitude (equation 17)."""
    golden = (math.sqrt(5) + 1) / 2
    exponent = 1 + math.floor(math.log2(math.log(golden - 1) / math.log(1 - share)))
    position = exponent + 1 / (1 - (1 - share) ** 2**exponent)
    bits: float = max(1, int(share * size)) * (position + 1) + 32
    return math.ceil(bits / 8)

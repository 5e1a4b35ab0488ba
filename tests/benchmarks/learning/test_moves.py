"""Each rival's first step against its paper's formula, in plain numpy on a linear model of two features."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks.learning.rivals.asynchronous import FedAsync, FedBuff
from benchmarks.learning.rivals.averaging import FedAdam, FedAvg, FedAvgM
from benchmarks.learning.rivals.central import Adam, Sgd, SyncSgd
from benchmarks.learning.rivals.channel import Vector
from benchmarks.learning.rivals.federation import Federation, Rival
from benchmarks.learning.rivals.local import CHUNK, DiLoCo, SparseLoCo, quantised
from benchmarks.learning.rivals.scaffold import Scaffold
from edgeflock.devices.emulation.config import FleetFile
from edgeflock.devices.emulation.fleet import PreparedFleet, prepare

BATCH, CLIENTS = 10, 3
FILE = {
    "end": {"updates": 1},
    "local": {"batch": BATCH},
    "model": {"module": "edgeflock.client.zoo:DigitsLinear"},
    "fleet": {"devices": CLIENTS, "samples": CLIENTS * BATCH},
}


@pytest.fixture(scope="module")
def prepared() -> PreparedFleet:
    """Three clients with one batch each, so that every step of one is on all of its data."""
    return prepare(FleetFile.model_validate(FILE))


class Reference:
    """Softmax regression by hand: theta is W [10, 64] and b [10]."""

    def __init__(self, prepared: PreparedFleet) -> None:
        self._data = [(share.x.reshape(len(share), -1), share.y) for share in prepared.shares]
        self.start = Federation.of(prepared, 0).theta

    def gradient(self, theta: Vector, client: int) -> Vector:
        x, y = self._data[client]
        logits = x @ theta[:640].reshape(10, 64).T + theta[640:]
        logits -= logits.max(1, keepdims=True)
        chances = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
        chances[np.arange(len(y)), y] -= 1
        found = np.concatenate([(chances.T @ x).ravel(), chances.sum(0)]) / len(y)
        return np.asarray(found, np.float32)

    def sgd(self, theta: Vector, client: int, steps: int, rate: float) -> Vector:
        for _ in range(steps):
            theta = theta - np.float32(rate) * self.gradient(theta, client)
        return theta

    def adam(self, start: Vector, client: int, steps: int, rate: float) -> Vector:
        theta = start.astype(np.float64)
        m = v = np.zeros_like(theta)
        for step in range(1, steps + 1):
            g = self.gradient(theta.astype(np.float32), client)
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
            theta = theta - rate * (m / (1 - 0.9**step)) / (np.sqrt(v / (1 - 0.999**step)) + 1e-8)
        return theta.astype(np.float32)

    def mean_change(self, steps: int, rate: float) -> NDArray[np.float32]:
        ends = [self.sgd(self.start, client, steps, rate) for client in range(CLIENTS)]
        found: NDArray[np.float32] = np.mean([end - self.start for end in ends], 0)
        return found


def models(rival: Rival, prepared: PreparedFleet, slow: frozenset[int] = frozenset()) -> Iterator[Vector]:
    federation = Federation.of(prepared, 0, rival.values, slow, 1000.0, central=rival.central)
    return rival.models(federation)


def near(found: Vector, expected: NDArray[np.floating[Any]]) -> None:
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=3e-6)


def alone(prepared: PreparedFleet) -> PreparedFleet:
    return replace(prepared, shares=prepared.shares[:1])


def test_sgd_with_momentum(prepared: PreparedFleet) -> None:
    one = Reference(alone(prepared))
    found = models(Sgd(0.1, 0.9), alone(prepared))
    first = one.gradient(one.start, 0)
    theta = one.start - 0.1 * first
    near(next(found), theta)
    near(next(found), theta - 0.1 * (0.9 * first + one.gradient(theta, 0)))


def test_adam(prepared: PreparedFleet) -> None:
    one = Reference(alone(prepared))
    found = models(Adam(0.01), alone(prepared))
    for steps in (1, 2, 3):
        near(next(found), one.adam(one.start, 0, steps, 0.01))


def test_synchronous_sgd_steps_by_the_mean_gradient(prepared: PreparedFleet) -> None:
    one = Reference(prepared)
    mean = np.mean([one.gradient(one.start, client) for client in range(CLIENTS)], 0)
    near(next(models(SyncSgd(0.2, 0.9), prepared)), one.start - 0.2 * mean)


def test_fedavg_adds_the_mean_change(prepared: PreparedFleet) -> None:
    one = Reference(prepared)
    expected = one.start + 0.5 * one.mean_change(3, 0.1)
    near(next(models(FedAvg(0.1, steps=3, server_rate=0.5), prepared)), expected)


def test_fedavg_weights_clients_by_their_samples(prepared: PreparedFleet) -> None:
    first, second = prepared.shares[:2]
    less = replace(second, x=second.x[:5], y=second.y[:5])
    uneven = replace(prepared, shares=[first, less])
    one = Reference(uneven)
    ends = [one.sgd(one.start, client, 1, 0.1) for client in (0, 1)]
    near(next(models(FedAvg(0.1, steps=1), uneven)), (10 * ends[0] + 5 * ends[1]) / 15)


def test_fedavgm_keeps_a_velocity_of_the_changes(prepared: PreparedFleet) -> None:
    one = Reference(prepared)
    found = models(FedAvgM(0.1, steps=2, server_rate=0.3), prepared)
    first = one.mean_change(2, 0.1)
    theta = next(found)
    near(theta, one.start + 0.3 * first)
    ends = [one.sgd(theta, client, 2, 0.1) - theta for client in range(CLIENTS)]
    near(next(found), theta + 0.3 * (0.9 * first + np.mean(ends, 0)))


def test_fedadam_divides_by_the_root_and_tau(prepared: PreparedFleet) -> None:
    one = Reference(prepared)
    change = one.mean_change(2, 0.1)
    expected = one.start + 0.01 * 0.1 * change / (np.sqrt(0.01 * change**2) + 1e-3)
    near(next(models(FedAdam(0.1, steps=2, server_rate=0.01), prepared)), expected)


def test_scaffold_corrects_the_second_round(prepared: PreparedFleet) -> None:
    one = Reference(prepared)
    found = models(Scaffold(0.1, steps=2), prepared)
    theta = one.start + one.mean_change(2, 0.1)
    near(next(found), theta)  # all variates are 0
    own = [(one.start - one.sgd(one.start, client, 2, 0.1)) / (2 * 0.1) for client in range(CLIENTS)]
    shared = np.mean(own, 0)
    ends = []
    for client in range(CLIENTS):
        y = theta
        for _ in range(2):
            y = y - 0.1 * (one.gradient(y, client) - own[client] + shared)
        ends.append(y)
    np.testing.assert_allclose(next(found), np.mean(ends, 0), rtol=1e-3, atol=2e-5)


def test_diloco_moves_by_nesterov_along_the_mean_of_adams_changes(prepared: PreparedFleet) -> None:
    one = Reference(prepared)
    ends = [one.adam(one.start, client, 3, 0.01) for client in range(CLIENTS)]
    drawn = one.start - np.mean(ends, 0)
    near(next(models(DiLoCo(0.01, steps=3), prepared)), one.start - 0.7 * (drawn + 0.9 * drawn))


def test_sparseloco_sends_the_largest_and_remembers_the_rest(prepared: PreparedFleet) -> None:
    one = Reference(prepared)
    found = models(SparseLoCo(0.01, steps=2, share=0.1), prepared)
    changes = [one.start - one.adam(one.start, client, 2, 0.01) for client in range(CLIENTS)]
    sent = [quantised(change.astype(np.float32), 0.1)[0] for change in changes]
    near(next(found), one.start - np.mean(sent, 0))


def test_two_bits_are_signs_and_two_sizes() -> None:
    vector = np.zeros(CHUNK + 100, np.float32)
    vector[[3, 5, 7, 9]] = [4.0, -4.0, 1.0, -2.0]
    vector[CHUNK + 1] = 8.0
    found, octets = quantised(vector, 4 / CHUNK)
    assert found[[3, 5, 7, 9]].tolist() == [4.0, -4.0, 1.5, -1.5]
    assert found[CHUNK + 1] == 8.0
    assert np.count_nonzero(found) == 5
    assert octets == (4 * 14 + 32 + 1 * 14 + 32 + 7) // 8


def test_fedbuff_adds_a_part_of_each_change(prepared: PreparedFleet) -> None:
    one = Reference(prepared)
    theta = next(models(FedBuff(0.1, steps=2, buffer=2), prepared))
    assert any(np.abs(theta - both).max() < 1e-5 for both in buffered(one, range(CLIENTS), 2))


def buffered(one: Reference, clients: Iterable[int], steps: int) -> list[NDArray[np.floating[Any]]]:
    """What two changes from the first model may come to: who is first is drawn, twice the same or not."""
    changes = [one.sgd(one.start, client, steps, 0.1) - one.start for client in clients]
    return [one.start + (a + b) / np.float32(2) for a, b in combinations_with_replacement(changes, 2)]


def test_fedasync_goes_a_part_of_the_way(prepared: PreparedFleet) -> None:
    one = Reference(alone(prepared))
    expected = 0.4 * one.start + 0.6 * one.sgd(one.start, 0, 2, 0.1)
    near(next(models(FedAsync(0.1, steps=2, mixing=0.6), alone(prepared))), expected)


def test_a_slow_client_holds_rounds_up_and_arrives_last(prepared: PreparedFleet) -> None:
    slow = frozenset({1})
    spent = []
    for who in (frozenset[int](), slow):
        federation = Federation.of(prepared, 0, slow=who, slower=1000.0)
        next(FedAvg(0.1, steps=1).models(federation))
        spent.append(federation.seconds)
    assert spent[1] > 10 * spent[0]
    theta = next(models(FedBuff(0.1, steps=1, buffer=2), prepared, slow))
    one = Reference(prepared)
    assert any(np.abs(theta - both).max() < 1e-5 for both in buffered(one, (0, 2), 1))

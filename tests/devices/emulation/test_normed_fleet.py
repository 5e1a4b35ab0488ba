"""Models with running statistics in a fleet: as by BatchNorm on one machine, however many devices."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

from edgeflock.client.backends import Backend
from edgeflock.client.data.batcher import Shuffled
from edgeflock.devices.emulation.fleet import prepare, run_fleet
from edgeflock.server.monitoring.listeners import Callbacks
from edgeflock.shared.data import datasets
from edgeflock.shared.model.gradient import Gradient
from edgeflock.shared.model.torch_module import FlatModule
from edgeflock.shared.protocol.frames import Finding
from tests.devices.emulation.fleets import MIXED, ONE, Normed, fleet_of, run

NORMED = "model.module=tests.devices.emulation.fleets:Normed"
STATISTICS = 16
f32 = np.float32


def test_one_device_trains_as_one_machine_does() -> None:
    """Dense and exact: parameters as by SGD, statistics as by BatchNorm with a momentum of 0.1."""
    dense = ["compression.select=1", "compression.values=f32", "coordination.learning_rate=0.05"]
    file = fleet_of(ONE, NORMED, *dense, "end.updates=30")
    ran = run(file)
    (share,) = prepare(file).shares
    batches = Shuffled(share, np.random.default_rng([0, 1, 0]))
    first = torch.from_numpy(FlatModule(file.model.module, file.model.loss, 0).first_model(0)[0])
    module = Normed()
    nn.utils.vector_to_parameters(first, module.parameters())
    sgd = torch.optim.SGD(module.parameters(), 0.05)
    for _ in range(30):
        x, y = batches.take(file.local.batch)
        sgd.zero_grad()
        loss = functional.cross_entropy(module(torch.from_numpy(x)), torch.from_numpy(y))
        loss.backward()  # type: ignore[no-untyped-call]
        sgd.step()
    norm = module[1]
    assert isinstance(norm, nn.BatchNorm2d)
    assert norm.running_mean is not None
    assert norm.running_var is not None
    parameters = torch.cat([parameter.detach().flatten() for parameter in module.parameters()])
    _, theta = ran.server.engine.theta()
    np.testing.assert_allclose(theta[:-STATISTICS], parameters, atol=1e-5)
    # On the way they are half precision: 11 significant bits.
    statistics = torch.cat((norm.running_mean, norm.running_var))
    np.testing.assert_allclose(theta[-STATISTICS:], statistics, rtol=2**-10, atol=1e-4)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_fleet_s_statistics_make_its_model_right(seed: int) -> None:
    """Six devices. With the statistics that it began with the same model would be far off."""
    file = fleet_of(MIXED, NORMED, "end.updates=100", "compression.select=0.1")
    ran = run(file, seed=seed)
    last = ran.rows[-1]
    assert last.accuracy is not None
    assert last.loss is not None
    assert last.accuracy > 0.88
    flat, (_, theta) = FlatModule(file.model.module, file.model.loss), ran.server.engine.theta()
    assert np.abs(theta[-8:] / own_variances(flat, theta) - 1).max() < 0.5
    theta[-STATISTICS:] = np.repeat([0, 1], 8)
    test = datasets.load("digits:", "test")
    assert flat.evaluate(theta, test.x, test.y)[0] > 2 * last.loss


def own_variances(flat: FlatModule, theta: NDArray[np.float32]) -> NDArray[np.float32]:
    """The variances of all training data under this theta."""
    data = datasets.load("digits:", "train")
    _, _, statistics, _, _ = flat.gradient(theta, data.x, data.y)
    return statistics[-8:]


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_many_devices_setting_out_together_do_not_overshoot(seed: int) -> None:
    """Forty devices, five steps an update: variances fall from 1 to what they are, not beyond."""
    file = fleet_of(
        MIXED, NORMED, "fleet.devices=40", "local.steps=5", "end.updates=60", "fleet.evaluate_every=3"
    )
    ran = run(file, seed=seed)
    assert ran.result.ended == "complete"
    assert all(row.loss is not None for row in ran.rows)
    seen = [np.frombuffer(push.update.values, "<f2")[-8:] for push, _ in ran.server.accepted]
    lowest, variances = np.min(seen, axis=0), ran.server.engine.theta()[1][-8:]
    assert (lowest > 0).all()
    assert (variances >= lowest).all()
    assert (variances < 0.5).all()


def test_the_average_of_the_versions_is_evaluated() -> None:
    """With the statistics in it."""
    ran = run(fleet_of(MIXED, NORMED, "coordination.average=8", "end.updates=64"))
    _, average = ran.server.engine.result()
    _, theta = ran.server.engine.theta()
    assert average.size == theta.size
    assert (average[-STATISTICS:] != theta[-STATISTICS:]).any()
    assert ran.rows[-1].loss is not None


class Hostile:
    """A backend whose running statistics are not its batches'."""

    def __init__(self, backend: Backend, lie: Callable[[NDArray[np.float32]], NDArray[np.float32]]) -> None:
        self.layout = backend.layout
        self._backend, self._lie = backend, lie

    def gradient(
        self, theta: NDArray[np.float32], x: NDArray[np.float32], y: NDArray[np.generic]
    ) -> Gradient:
        return self._backend.gradient(theta, x, y)._replace(statistics=self._lie(theta[-STATISTICS:]))


TEN = ("fleet.devices=10", "devices.pi.step_ms=1000", "end.updates=600", "fleet.evaluate_every=100")
MEANS = np.arange(STATISTICS) < STATISTICS // 2
LIES: dict[str, tuple[Callable[[NDArray[np.float32]], NDArray[np.float32]], bool]] = {
    "huge variances": (lambda b: np.where(MEANS, b, f32(65504)), True),
    "huge means": (lambda b: np.where(MEANS, f32(-65504), b), True),
    "one huge mean": (lambda b: np.where(np.arange(STATISTICS) == 3, f32(65504), b), True),
    "variances of nothing": (lambda b: np.where(MEANS, b, f32(0)), False),
    "a slow drift": (lambda b: np.concatenate([b[:8] + 3 * np.sqrt(b[8:]), 2 * b[8:]]), False),
}
"""Name -> (what it says, knowing the server's; whether it is named: what goes no further than honest ones may
is not)."""


def of_ten(directory: Path, backend_of: Callable[[int, Backend], Backend]) -> tuple[float, list[Finding]]:
    """What ten devices with these backends come to: the last accuracy, and what was found of them."""
    accuracies, found = [0.0], list[Finding]()
    run_fleet(
        prepare(fleet_of(ONE, NORMED, *TEN)),
        1,
        Callbacks(on_evaluated=lambda seen: accuracies.append(seen.accuracy or 0.0), on_finding=found.append),
        backend_of=backend_of,
    )
    return accuracies[-1], found


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> float:
    """The accuracy of ten honest devices, of whom nothing is found."""
    accuracy, found = of_ten(tmp_path_factory.mktemp("honest"), lambda number, backend: backend)
    assert found == []
    assert accuracy > 0.9
    return accuracy


@pytest.mark.slow
@pytest.mark.parametrize("name", LIES)
def test_one_hostile_device_of_ten_spoils_nothing(name: str, honest: float, tmp_path: Path) -> None:
    """With what counts of its statistics the model is as right as without it; only the sender is named."""
    lie, is_named = LIES[name]
    accuracy, found = of_ten(
        tmp_path, lambda number, backend: Hostile(backend, lie) if number == 4 else backend
    )
    assert accuracy > honest - 0.03
    assert {(one.kind, (one.device or "").split("-")[-1]) for one in found} == (
        {("statistics", "4")} if is_named else set()
    )

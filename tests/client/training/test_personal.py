"""Layers of a device's own: trained here, and never part of an update."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from edgeflock.client.data.batcher import Shuffled
from edgeflock.client.training.personal import PersonalBackend
from edgeflock.client.training.terms import layout_of
from edgeflock.client.training.trainer import Trainer
from edgeflock.shared.data.datasets import Dataset
from edgeflock.shared.errors import ConfigError, ServerAtFault, TrainingFailed
from edgeflock.shared.model.gradient import Gradient
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.model.personal import Personal, SplitLayout
from edgeflock.shared.model.start import CONSTANT, Filling, Start
from tests.client.training.fakes import NOTHING, WELCOME

WHOLE = Layout.from_shapes([("head", (2,)), ("body", (3,))])
SPLIT = SplitLayout(WHOLE, ["head"])
OWN = Personal(list(SPLIT.personal.shapes()), Start(1, (Filling(CONSTANT, 1.0, 0.0),)))
PERSONAL = replace(WELCOME, layout=list(SPLIT.shared.shapes()), personal=OWN, select=1.0, local_rate=0.5)


class Slope:
    """The gradient of the whole model is theta itself, unless it is `broken`."""

    name, layout = "slope", WHOLE
    broken = False
    failing: tuple[int, ...] = ()
    """The calls that fail, from 1 on."""
    calls = 0

    def gradient(self, theta: NDArray[np.float32], x: Any, y: Any) -> Gradient:
        self.calls += 1
        if self.calls in self.failing:
            raise MemoryError("no room")
        return Gradient(0.0, np.full_like(theta, np.nan) if self.broken else theta.copy(), NOTHING)

    def predictor(self, theta: NDArray[np.float32]) -> Any:
        return lambda x: (np.tile(theta, (len(x), 1)),)

    def evaluate(self, theta: NDArray[np.float32], x: Any, y: Any) -> tuple[float, float | None]:
        return float(theta.sum()), 0.25


def data(count: int = 20) -> Dataset:
    return Dataset(np.zeros((count, 1), np.float32), np.arange(count))


BODY = np.array([2, 4, 6], np.float32)


def test_an_update_has_the_shared_layers_alone_and_the_own_ones_take_a_step() -> None:
    backend = PersonalBackend(Slope(), PERSONAL)
    assert backend.theta.tolist() == [1, 1]
    trainer = Trainer(backend, Shuffled(data(), np.random.default_rng(0)), PERSONAL)
    update = trainer.step(BODY, 3, 1)
    assert update.count == 3
    assert np.frombuffer(update.values, "<f4").tolist() == [2, 4, 6]
    assert backend.theta.tolist() == [0.5, 0.5]
    trainer.step(BODY, 4, 2)
    assert backend.theta.tolist() == [0.25, 0.25]


def test_each_local_step_trains_them() -> None:
    welcome = replace(PERSONAL, local_steps=3)
    backend = PersonalBackend(Slope(), welcome)
    Trainer(backend, Shuffled(data(), np.random.default_rng(0)), welcome).step(BODY, 3, 1)
    assert backend.theta.tolist() == [0.125, 0.125]


@pytest.mark.parametrize("decay", [0.0, 0.99])
def test_a_failed_step_leaves_them_and_the_next_attempt_trains_them_once(decay: float) -> None:
    welcome = replace(PERSONAL, local_steps=3, adafactor=decay, select=1.0)

    def tried(*failing: int) -> tuple[list[float], bytes, list[list[float]]]:
        slope, noted = Slope(), list[list[float]]()
        slope.failing = failing
        backend = PersonalBackend(slope, welcome, on_step=lambda theta: noted.append(theta.tolist()))
        batches = Shuffled(data(), np.random.default_rng(0))
        trainer = Trainer(backend, batches, welcome)
        for sequence in (1, 2):
            try:
                update = trainer.step(BODY, 3, sequence)
            except TrainingFailed:
                batches.take_back()
                update = trainer.step(BODY, 3, sequence)
            batches.settle()
        return backend.theta.tolist(), update.values, noted

    theta, values, noted = tried(3, 9)
    assert (theta, values) == tried()[:2]
    assert noted[-1] == theta


def test_adafactor_trains_them_if_the_run_uses_it() -> None:
    welcome = replace(PERSONAL, adafactor=0.99)
    backend = PersonalBackend(Slope(), welcome, np.array([8, 16], np.float32))
    Trainer(backend, Shuffled(data(), np.random.default_rng(0)), welcome).step(BODY, 3, 1)
    assert (backend.theta < [8, 16]).all()
    assert (backend.theta > [7, 15]).all()


def test_a_trial_and_a_broken_gradient_leave_them() -> None:
    slope = Slope()
    backend = PersonalBackend(slope, PERSONAL)
    backend.gradient(BODY, None, np.zeros(1))
    assert backend.theta.tolist() == [1, 1]
    slope.broken = True
    backend.gradient(BODY, None, np.zeros(1))
    backend.step()
    assert backend.theta.tolist() == [1, 1]


def test_stored_ones_go_on_and_each_step_is_reported() -> None:
    seen: list[list[float]] = []
    stored = np.array([8, 16], np.float32)
    backend = PersonalBackend(Slope(), PERSONAL, stored, lambda theta: seen.append(theta.tolist()))
    backend.gradient(BODY, None, np.zeros(1))
    backend.step()
    assert seen == [[4, 8]]
    assert stored.tolist() == [8, 16]
    assert PersonalBackend(Slope(), PERSONAL, np.zeros(9, np.float32)).theta.tolist() == [1, 1]


def test_other_code_on_the_device_is_refused() -> None:
    other = replace(PERSONAL, personal=OWN._replace(shapes=[["head", [3]]]))
    with pytest.raises(ConfigError, match=r"other layers here than the server's model\.personal"):
        PersonalBackend(Slope(), other)


def test_the_device_evaluates_with_its_own_layers() -> None:
    welcome = replace(PERSONAL, evaluate=2)
    backend = PersonalBackend(Slope(), welcome)
    batches = Shuffled(data(), np.random.default_rng(0), hold_out=0.1)
    batches.begin(welcome, backend)
    trainer = Trainer(backend, batches, welcome)
    trainer.step(BODY, 3, 1)
    assert batches.telemetry() == {}
    trainer.step(BODY, 4, 2)  # before it, one step has halved the own layers
    assert batches.telemetry() == {"eval.num-examples": 2, "eval.loss": 13.0, "eval.accuracy": 0.25}
    (output,) = backend.predictor(BODY)(np.zeros((1, 1), np.float32))
    assert output.tolist() == [[0.25, 0.25, 2, 4, 6]]


@pytest.mark.parametrize(
    "wrong",
    [
        {"personal": OWN._replace(shapes=[["body", [2]]])},
        {"personal": OWN._replace(shapes=[["head", [2], True]])},
        {"personal": OWN._replace(shapes=[["head", [2]], ["head2", [2]]])},
        {"personal": OWN._replace(shapes=["head"])},
        {"personal": OWN._replace(shapes=[["head", [1 << 40]]])},
        {  # rows and columns of which there are more than entries
            "adafactor": 0.99,
            "personal": Personal(
                [["head", [2]], ["wide", [0, 1 << 30]]], Start(1, (Filling(CONSTANT, 1.0, 0.0),) * 2)
            ),
        },
        {"elastic": 0.1},
        {"tasks": True},
        {"evaluate": 1 << 63},
    ],
)
def test_a_hostile_welcome_is_the_servers_fault(wrong: dict[str, Any]) -> None:
    assert layout_of(PERSONAL, 1 << 20) == SPLIT.shared
    with pytest.raises(ServerAtFault):
        layout_of(replace(PERSONAL, **wrong), 1 << 20)


def test_a_step_that_is_not_finite_is_not_taken() -> None:
    backend = PersonalBackend(Slope(), replace(PERSONAL, local_rate=1e30), np.full(2, 1e20, np.float32))
    backend.gradient(BODY, None, np.zeros(1))
    backend.step()
    assert backend.theta.tolist() == pytest.approx([1e20, 1e20])

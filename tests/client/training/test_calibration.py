"""The labels of a device against those of the fleet."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from edgeflock.client.backends.torch import TorchBackend
from edgeflock.client.data.batcher import Shuffled
from edgeflock.client.training.calibration import Calibration
from edgeflock.client.training.trainer import Trainer
from edgeflock.shared.codecs import labels
from edgeflock.shared.data.datasets import Dataset
from edgeflock.shared.errors import WrongDtype
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.model.torch_module import FlatModule
from tests.client.training.fakes import WELCOME, FakeBackend

LAYOUT = Layout.from_shapes([("hidden.weight", (4, 5), False), ("hidden.bias", (4,), False),
                    ("out.weight", (3, 4), False), ("out.bias", (3,), False)])  # fmt: skip
BIAS = slice(LAYOUT.size - 3, LAYOUT.size)


def gradient(y: NDArray[Any], logits: NDArray[Any]) -> NDArray[Any]:
    """Of a cross entropy whose logits are the same for all samples; elsewhere some numbers."""
    found = np.random.default_rng(len(y)).standard_normal(LAYOUT.size).astype(np.float32)
    softmax = np.exp(logits) / np.exp(logits).sum()
    found[BIAS] = softmax - np.bincount(y, minlength=3) / len(y)
    return found


def taught(y: list[int], batches: int = 2) -> Calibration:
    calibration, of = Calibration(LAYOUT), np.array(y)
    for _ in range(batches):
        calibration.observe(gradient(of, np.array([0.1, 0.0, -0.2])), of)
    return calibration


THETA = np.zeros(LAYOUT.size, np.float32)
DIGITS = "edgeflock.client.zoo:DigitsCNN"


def trainer(balances: bool) -> Trainer:
    """Of a device whose samples are all of class 2. It sends all of its gradient."""
    of = np.full(8, 2)
    backend = FakeBackend(LAYOUT, gradients=iter([gradient(of, np.zeros(3))] * 3))
    batches = Shuffled(Dataset(np.zeros((8, 1), np.float32), of), np.random.default_rng(0))
    return Trainer(backend, batches, replace(WELCOME, select=1.0, balances=balances))


def receipt(fleet: list[float], lately: list[float]) -> bytes:
    return labels.encode(np.array([fleet, lately]))


def test_gradients_tell_which_tensor_is_the_output_bias() -> None:
    calibration = taught([0, 0, 1, 2])
    assert labels.decode(calibration.report(0))[0] == pytest.approx([0.5, 0.25, 0.25], abs=1e-3)
    calibration.take(receipt([1 / 3] * 3, [1 / 3] * 3))
    theta = np.zeros(LAYOUT.size, np.float32)
    moved = np.flatnonzero(calibration.shift(theta))
    assert set(moved) <= set(range(BIAS.start, BIAS.stop))
    assert moved.size
    assert not theta.any()


def test_nothing_is_reported_or_moved_before_the_bias_is_known() -> None:
    calibration = taught([0, 1, 2], batches=1)
    calibration.take(receipt([0.5, 0.3, 0.2], [0.5, 0.3, 0.2]))
    theta = np.zeros(LAYOUT.size, np.float32)
    assert calibration.report(0) == b""
    assert calibration.shift(theta) is theta


def test_a_loss_that_is_no_cross_entropy_is_left_alone() -> None:
    calibration, y = Calibration(LAYOUT), np.array([0, 1, 2])
    for seed in range(20):
        calibration.observe(np.random.default_rng(seed).standard_normal(LAYOUT.size).astype(np.float32), y)
    for _ in range(20):
        calibration.observe(np.zeros(LAYOUT.size, np.float32), y)
    assert all(calibration.report(0) == b"" for _ in range(32))


def test_targets_that_are_numbers_are_left_alone() -> None:
    calibration = Calibration(LAYOUT)
    for _ in range(5):
        calibration.observe(gradient(np.array([0, 1]), np.zeros(3)), np.array([0.5, 1.5], np.float32))
    assert calibration.report(0) == b""


def test_a_device_like_the_fleet_trains_as_it_is() -> None:
    calibration = taught([0, 0, 1, 2], batches=400)
    calibration.take(receipt([0.5, 0.25, 0.25], [0.5, 0.25, 0.25]))
    theta = np.ones(LAYOUT.size, np.float32)
    assert calibration.shift(theta) == pytest.approx(theta, abs=2e-3)
    assert calibration.importance == pytest.approx(1, abs=2e-3)


def test_a_class_that_a_device_lacks_is_not_pushed_down() -> None:
    """Logits are adjusted by log p / q, so a class without samples counts as one that is not likely."""
    calibration = taught([0, 1], batches=1000)
    calibration.take(receipt([0.45, 0.45, 0.1], [0.45, 0.45, 0.1]))
    shift = calibration.shift(np.zeros(LAYOUT.size, np.float32))[BIAS]
    assert shift[2] == pytest.approx(np.log(0.01), abs=0.4)
    assert shift[0] == pytest.approx(np.log(1 / 0.9), abs=0.02)


@pytest.mark.parametrize(("lately", "importance"), [(0.1, 2), (0.04, 5), (0.0, 10), (1e-7, 10)])
def test_classes_of_too_few_updates_count_more(lately: float, importance: float) -> None:
    calibration = taught([2], batches=3000)
    calibration.take(receipt([0.4, 0.4, 0.2], [0.5 - lately / 2, 0.5 - lately / 2, lately]))
    assert calibration.importance == pytest.approx(importance, rel=0.01)


def with_batches_of(batch: int, y: list[int], fleet: list[float]) -> Calibration:
    """Of a device that has seen these labels often, in such a fleet."""
    calibration, of = Calibration(LAYOUT, batch), np.array(y)
    for _ in range(3000):
        calibration.observe(gradient(of, np.array([0.1, 0.0, -0.2])), of)
    calibration.take(receipt(fleet, fleet))
    return calibration


@pytest.mark.parametrize(("batch", "swing"), [(1, 0), (10, 0), (21, 0.5), (32, 1), (64, 1)])
def test_large_batches_of_few_classes_make_shorter_steps(batch: int, swing: float) -> None:
    """By 1 / (1 + 2 s^2), and with a fifth of the labels in common s = 0.6 at most."""
    calibration = with_batches_of(batch, [2], [0.4, 0.4, 0.2])
    assert calibration.importance == pytest.approx(1 / (1 + 2 * (0.6 * swing) ** 2), rel=0.01)


def test_steps_are_whole_where_half_of_the_labels_are_common() -> None:
    assert with_batches_of(32, [1, 2], [0.5, 0.25, 0.25]).importance == pytest.approx(1, rel=0.01)


def test_rare_classes_keep_their_weight() -> None:
    calibration, of = Calibration(LAYOUT, 32), np.array([2])
    for _ in range(3000):
        calibration.observe(gradient(of, np.array([0.1, 0.0, -0.2])), of)
    calibration.take(receipt([0.4, 0.4, 0.2], [0.475, 0.475, 0.05]))
    assert calibration.importance == pytest.approx(4, rel=0.01)


def test_what_a_server_says_of_other_classes_changes_nothing() -> None:
    calibration = taught([0, 1, 2])
    calibration.take(receipt([0.25] * 4, [0.25] * 4))
    theta = np.zeros(LAYOUT.size, np.float32)
    assert calibration.shift(theta) is theta
    assert calibration.importance == 1


@pytest.mark.parametrize("loss", ["cross_entropy", "cross_entropy(label_smoothing=0.05)"])
def test_gradients_of_a_network_tell_its_output_bias(loss: str) -> None:
    backend = TorchBackend("edgeflock.client.zoo:DigitsCNN", loss)
    calibration, theta = Calibration(backend.layout.parameters), FlatModule(DIGITS, loss).theta()
    random, labelled = np.random.default_rng(0), np.repeat(np.arange(10), 3)
    for _ in range(2):
        x = random.random((30, 1, 8, 8), np.float32)
        calibration.observe(backend.gradient(theta, x, labelled).gradient, labelled)
    (shares,) = labels.decode(calibration.report(0))
    assert shares == pytest.approx([0.1] * 10, abs=1e-3)


def test_a_trainer_s_update_counts_as_many_times_as_its_classes_are_rare() -> None:
    made, alike = (trainer(balances) for balances in (True, False))
    for sequence in (1, 2):
        update = made.step(THETA, 7, sequence)
        alike.step(THETA, 7, sequence)
    assert labels.decode(update.labels)[0].tolist() == [0, 0, 1]
    made.store_fleet(b"", receipt([0.4, 0.4, 0.2], [0.48, 0.48, 0.04]))
    once, more = (np.frombuffer(one.step(THETA, 8, 3).values, "<f4") for one in (alike, made))
    ratios = more[once != 0] / once[once != 0]
    assert ratios == pytest.approx(ratios[0])
    assert 2 < ratios[0] < 5


@pytest.mark.parametrize(
    "octets",
    [
        b"1",
        bytes(12),
        labels.encode(np.array([[np.nan] * 3, [1, 0, 0]])),
        receipt([2, -1, 0], [1, 0, 0]),
        bytes(1 << 20),
    ],
)
def test_a_hostile_server_is_refused(octets: bytes) -> None:
    with pytest.raises(WrongDtype, match="shares of classes"):
        taught([0, 1, 2]).take(octets)

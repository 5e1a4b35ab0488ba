"""Adafactor on a device: its formula by hand, what it keeps, and what it cannot be broken by."""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from edgeflock.client.data.batcher import Shuffled
from edgeflock.client.training.local_optimizer import MIN_SCALE, Adafactor
from edgeflock.client.training.terms import layout_of
from edgeflock.client.training.trainer import Trainer
from edgeflock.shared.codecs import moments
from edgeflock.shared.data.datasets import Dataset
from edgeflock.shared.errors import ServerAtFault, WrongDtype
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.model.start import CONSTANT, UNIFORM, Filling, Start
from tests.client.training.fakes import LAYOUT, WELCOME, FakeBackend

KERNEL, BIAS = slice(0, 10), slice(10, 14)
"""The tensors of LAYOUT."""
THETA: NDArray[np.float32] = np.random.default_rng(1).standard_normal(LAYOUT.size).astype(np.float32)
DECAY = 0.9
Squares = NDArray[np.float64]


def gradients(count: int) -> NDArray[np.float32]:
    drawn = np.random.default_rng(2).standard_normal((count, LAYOUT.size))
    return (drawn * np.logspace(-3, 3, LAYOUT.size)).astype(np.float32)


def by_hand(theta: NDArray[np.float32], gradient: NDArray[np.float32], squares: Squares) -> Squares:
    """d, where `squares` [P] are the means of the squares of the gradients."""
    direction = np.zeros(LAYOUT.size)
    for tensor, shape in ((KERNEL, (2, 5)), (BIAS, (1, 4))):
        usual = squares[tensor].reshape(shape)
        rows, columns = usual.mean(1), usual.mean(0)
        u = gradient[tensor] / np.sqrt(np.outer(rows, columns) / rows.mean()).ravel()
        scale = max(MIN_SCALE, np.sqrt(np.mean(np.square(theta[tensor], dtype=np.float64))))
        direction[tensor] = scale * u / max(1, np.sqrt(np.mean(u**2)) / 1.5)
    return direction


def test_a_direction_is_the_gradient_over_its_usual_size_times_the_size_of_its_tensor() -> None:
    theta = THETA.copy()
    theta[BIAS] = 0
    optimizer, seen = Adafactor(LAYOUT, DECAY), gradients(5)
    for gradient in seen:
        direction = optimizer.direction(theta, gradient)
    weights = DECAY ** np.arange(4, -1, -1.0)
    squares = (weights[:, None] * np.square(seen, dtype=np.float64)).sum(0) / weights.sum()
    np.testing.assert_allclose(direction, by_hand(theta, seen[-1], squares), rtol=1e-4)


def test_the_fleet_s_moments_count_half_once_they_are_there() -> None:
    optimizer, gradient = Adafactor(LAYOUT, DECAY), np.ones(LAYOUT.size, np.float32)
    optimizer.direction(THETA, gradient)
    squares = np.full(LAYOUT.size, 4.0, np.float32)
    squares[BIAS] = 16.0
    optimizer.take(moments.encode(moments.factor(squares, LAYOUT)))
    optimizer.take(b"")  # a receipt that brings none changes nothing
    np.testing.assert_allclose(
        optimizer.direction(THETA, gradient),
        by_hand(THETA, gradient, (1 + squares.astype(np.float64)) / 2),
        rtol=1e-6,
    )


def test_the_size_of_a_tensor_counts_as_at_most_half_as_much_again_as_in_the_first_model() -> None:
    """By how that is made, or else by the first model that is seen."""
    gradient = np.ones(LAYOUT.size, np.float32)
    start = Start(0, (Filling(UNIFORM, -0.6, 0.6), Filling(CONSTANT, 0, 0)))
    received, seen = Adafactor(LAYOUT, DECAY, start), Adafactor(LAYOUT, DECAY)
    seen.direction(np.full(LAYOUT.size, 0.25, np.float32), gradient)
    large = 4 * gradient
    expected = np.repeat([1.5 * 0.6 / 3**0.5, 1.5 * MIN_SCALE], [10, 4])
    np.testing.assert_allclose(received.direction(large, gradient), expected, rtol=1e-5)
    np.testing.assert_allclose(seen.direction(large, gradient), 0.375, rtol=1e-5)
    np.testing.assert_allclose(seen.direction(large / np.float32(16), gradient), 0.25, rtol=1e-5)


@pytest.mark.parametrize(("overlap", "part"), [(1.0, 0.5), (0.5, 0.125), (0.0, 0.0)])
def test_the_own_moments_count_less_where_labels_differ(overlap: float, part: float) -> None:
    optimizer, gradient = Adafactor(LAYOUT, DECAY), np.ones(LAYOUT.size, np.float32)
    optimizer.direction(THETA, gradient)
    optimizer.take(moments.encode(moments.factor(np.full(LAYOUT.size, 4.0, np.float32), LAYOUT)), overlap)
    np.testing.assert_allclose(
        optimizer.direction(THETA, gradient),
        by_hand(THETA, gradient, np.full(LAYOUT.size, part + (1 - part) * 4)),
        rtol=1e-6,
    )


def test_no_step_is_much_longer_than_usual_whatever_a_server_says() -> None:
    optimizer, gradient = Adafactor(LAYOUT, DECAY), gradients(1)[0]
    for level in (0.0, 1e-30, 1e-12, 1e30):
        optimizer.take(moments.encode(np.full(LAYOUT.lines[-1], level, np.float32)))
        direction = optimizer.direction(THETA, gradient)
        for tensor in (KERNEL, BIAS):
            scale = np.sqrt(np.mean(np.square(THETA[tensor])))
            assert np.sqrt(np.mean(np.square(direction[tensor]))) <= 1.501 * scale


def test_moments_of_another_model_are_refused() -> None:
    with pytest.raises(WrongDtype, match="12 bytes"):
        Adafactor(LAYOUT, DECAY).take(moments.encode(np.ones(10, np.float32)))


@pytest.mark.parametrize(
    ("devices", "expected"),
    [
        (4, [1, 2, 4, 8, 16, 32, 64, 104]),
        (10, [1, 2, 4, 8, 16, 32, 48, 64, 80, 96, 112]),
        (50, range(4, 113, 4)),
    ],
)
def test_a_device_reports_often_at_first_and_then_by_versions(devices: int, expected: Iterable[int]) -> None:
    """A device of a fleet of so many that are alike in speed."""
    optimizer = Adafactor(LAYOUT, DECAY)
    optimizer.direction(THETA, gradients(1)[0])
    reported = [update for update in range(1, 113) if optimizer.report(devices * (update - 1))]
    assert reported == sorted({1, 2, *expected})


def test_a_report_is_of_the_device_s_own_means() -> None:
    optimizer, gradient = Adafactor(LAYOUT, DECAY), np.full(LAYOUT.size, 0.5, np.float32)
    optimizer.take(moments.encode(np.ones(LAYOUT.lines[-1], np.float32)))
    for _ in range(3):
        optimizer.direction(THETA, gradient)
    np.testing.assert_allclose(moments.decode(optimizer.report(7), LAYOUT), 0.25)


def test_it_does_not_depend_on_the_scale_of_the_loss() -> None:
    small, large = Adafactor(LAYOUT, DECAY), Adafactor(LAYOUT, DECAY)
    for gradient in gradients(10):
        np.testing.assert_allclose(
            small.direction(THETA, gradient), large.direction(THETA, gradient * 1024), rtol=1e-3, atol=1e-6
        )


def test_what_it_is_given_stays_as_it_is() -> None:
    theta, gradient = THETA.copy(), gradients(1)[0]
    before = gradient.tobytes()
    first = Adafactor(LAYOUT, DECAY).direction(theta, gradient)
    assert (theta.tobytes(), gradient.tobytes()) == (THETA.tobytes(), before)
    assert not np.shares_memory(first, gradient)


def test_zeros_stay_zeros_and_empty_tensors_are_passed_over() -> None:
    layout = Layout.from_shapes([("none", (0,)), ("some", (3,))])
    direction = Adafactor(layout, DECAY).direction(np.ones(3, np.float32), np.zeros(3, np.float32))
    assert direction.tolist() == [0, 0, 0]


@pytest.mark.parametrize(("before", "after"), [(0, 2000), (11, 50)])
def test_an_enormous_gradient_does_not_silence_an_entry_for_long(before: int, after: int) -> None:
    """It counts as ten times the usual one, if that is known."""
    optimizer = Adafactor(LAYOUT, DECAY)
    for _ in range(before):
        optimizer.direction(THETA, np.ones(LAYOUT.size, np.float32))
    optimizer.direction(THETA, np.full(LAYOUT.size, 3e38, np.float32))
    for _ in range(after):
        direction = optimizer.direction(THETA, np.ones(LAYOUT.size, np.float32))
    assert np.abs(direction[KERNEL]).min() > 0.9 * np.sqrt(np.mean(np.square(THETA[KERNEL])))


def trainer(local_steps: int = 1) -> Trainer:
    backend = FakeBackend(gradients=iter(gradients(40)))
    data = Dataset(np.zeros((8, 1), np.float32), np.zeros(8, np.int64))
    batches = Shuffled(data, np.random.default_rng(0))
    return Trainer(backend, batches, replace(WELCOME, adafactor=DECAY, select=1.0, local_steps=local_steps))


def test_a_trainer_keeps_the_mean_from_update_to_update() -> None:
    made = trainer()
    expected = Adafactor(LAYOUT, DECAY)
    for sequence, gradient in zip((1, 2, 3), gradients(3), strict=True):
        update = made.step(THETA, 7, sequence)
        assert np.frombuffer(update.values, "<f4").tobytes() == expected.direction(THETA, gradient).tobytes()


def test_a_trainer_sends_its_moments_and_goes_by_the_fleet_s() -> None:
    made, expected = trainer(), Adafactor(LAYOUT, DECAY)
    first, second = gradients(2)
    update = made.step(THETA, 7, 1)
    expected.direction(THETA, first)
    assert update.moments == expected.report(7)
    fleet = moments.encode(np.full(LAYOUT.lines[-1], 4.0, np.float32))
    made.store_fleet(fleet, b"")
    expected.take(fleet)
    sent = made.step(THETA, 8, 2)
    assert np.frombuffer(sent.values, "<f4").tobytes() == expected.direction(THETA, second).tobytes()


def test_local_steps_go_by_it() -> None:
    made = trainer(local_steps=2)
    update = made.step(THETA, 7, 1)
    expected, seen = Adafactor(LAYOUT, DECAY), gradients(2)
    first = expected.direction(THETA, seen[0])
    second = expected.direction(THETA - np.float32(0.5) * first, seen[1])
    np.testing.assert_allclose(np.frombuffer(update.values, "<f4"), first + second, rtol=1e-6)


@pytest.mark.parametrize("decay", [1.0, -0.1, float("nan")])
def test_a_decay_that_cannot_be_is_refused(decay: float) -> None:
    with pytest.raises(ServerAtFault, match="adafactor"):
        layout_of(replace(WELCOME, adafactor=decay), 1 << 30)


def test_its_memory_counts_before_a_device_joins() -> None:
    memory = 30 * LAYOUT.size
    assert layout_of(WELCOME, memory) == LAYOUT
    with pytest.raises(ServerAtFault, match="memory is too small"):
        layout_of(replace(WELCOME, adafactor=DECAY), memory)


@pytest.mark.parametrize("shape", [[0, 1 << 40], [0, 1 << 40, 1 << 40]])
@pytest.mark.parametrize("decay", [0.0, DECAY])
def test_an_empty_tensor_of_endless_rows_is_refused(shape: list[int], decay: float) -> None:
    welcome = replace(WELCOME, adafactor=decay, layout=[["none", shape], *WELCOME.layout])
    with pytest.raises(ServerAtFault, match="rows and columns, for which this device's memory is too small"):
        layout_of(welcome, 1 << 30)

"""What a device adds to a sum with differential privacy: its norm after rounding never exceeds the clip."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgeflock.shared.model.layout import Layout
from edgeflock.shared.secure_sum.bounded import BoundedQuantiser, quantiser_of
from edgeflock.shared.secure_sum.messages import SumAbandoned
from edgeflock.shared.secure_sum.quantiser import Contribution, Quantiser

LAYOUT = Layout.from_shapes([("kernel", (30, 40)), ("bias", (800,))])


def decoded(coder: BoundedQuantiser, values: np.ndarray, seed: int = 0) -> np.ndarray:
    """What one device adds, as the server reads it."""
    one = Contribution(values.astype(np.float32), 7, 3)
    vector = coder.quantise(one, coder.ranges, np.random.default_rng(seed))
    return coder.decode(vector, 1, coder.ranges).values.astype(np.float64)


@settings(max_examples=300, deadline=None)
@given(
    st.integers(1, 2000),
    st.integers(2, 16),
    st.sampled_from([1e-6, 0.3, 1.0, 250.0]),
    st.sampled_from([1e-9, 0.01, 0.9, 0.999999, 1.0, 1.001, 50.0, 1e25]),
    st.sampled_from(["normal", "equal", "half", "spike"]),
    st.integers(0, 1 << 32),
)
def test_no_contribution_is_longer_than_the_clip(
    entries: int, bits: int, clip: float, scale: float, shape: str, seed: int
) -> None:
    """`half`: all entries lie between two steps, where rounding adds most."""
    random = np.random.default_rng(seed)
    coder = BoundedQuantiser(LAYOUT, np.arange(entries), bits, 5, clip)
    step = clip / (2 * math.sqrt(entries))
    values = {
        "normal": random.standard_normal(entries),
        "equal": np.ones(entries),
        "half": step * (random.integers(-3, 3, entries) + 0.5),
        "spike": np.eye(1, entries)[0],
    }[shape]
    if shape != "half":
        values = values * clip * scale / np.linalg.norm(values)
    assert np.linalg.norm(decoded(coder, values, seed)) <= clip


@pytest.mark.parametrize("broken", [np.nan, np.inf, -np.inf])
def test_a_gradient_that_is_no_number_adds_nothing(broken: float) -> None:
    coder = BoundedQuantiser(LAYOUT, np.arange(40), 8, 5, 1.0)
    values = np.ones(40)
    values[3] = broken
    assert not decoded(coder, values).any()


def test_rounding_has_no_bias_and_keeps_nearly_all_of_a_gradient() -> None:
    coder = BoundedQuantiser(LAYOUT, np.arange(1000), 6, 5, 1.0)
    values = np.random.default_rng(1).standard_normal(1000)
    values *= 0.9 / np.linalg.norm(values)
    mean = np.mean([decoded(coder, values, seed) for seed in range(400)], axis=0)
    assert np.linalg.norm(mean - values) < 0.02  # 400 roundings of norm 0.2
    long = np.mean([decoded(coder, values * 10, seed) for seed in range(400)], axis=0)
    assert 0.96 < np.linalg.norm(long) < 1
    assert long @ values / np.linalg.norm(long) / np.linalg.norm(values) > 0.999


@settings(max_examples=50, deadline=None)
@given(st.integers(2, 16), st.integers(1, 60), st.integers(0, 1 << 32))
def test_the_sum_is_the_sum_of_what_devices_add(bits: int, devices: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    coder = quantiser_of(LAYOUT, np.arange(50), bits, devices, 2.0)
    assert isinstance(coder, BoundedQuantiser)
    vectors = [
        coder.quantise(Contribution(np.full(50, sign * 9, np.float32), 1, 0), coder.ranges, random)
        for sign in random.choice([-1, 1], devices)
    ]
    total = coder.shape.reduce(sum(vectors, np.zeros(50, np.uint32)))
    each = [coder.decode(one, 1, coder.ranges).values for one in vectors]
    np.testing.assert_allclose(
        coder.decode(total, devices, coder.ranges).values, np.sum(each, axis=0), atol=1e-5
    )


@settings(max_examples=200, deadline=None)
@given(st.integers(2, 8), st.integers(1, 9), st.integers(-2, 2), st.integers(0, 4), st.integers(0, 1 << 32))
def test_no_device_makes_another_one_change_a_sum_by_more_than_its_clip(
    bits: int, devices: int, beside: int, quarter: int, seed: int
) -> None:
    """Whatever hostile devices add, as next to the place where the modulus turns the sign."""
    random = np.random.default_rng(seed)
    coder = BoundedQuantiser(LAYOUT, np.arange(60), bits, devices, 1.0)
    one = Contribution(random.standard_normal(60).astype(np.float32), 1, 0)
    added = coder.quantise(one, coder.ranges, random)
    hostile = np.full(60, (quarter << coder.shape.width >> 2) + beside, np.int64).astype(np.uint32)
    without, with_it = (coder.shape.reduce(vector) for vector in (hostile.copy(), hostile + added))
    first, second = (coder.decode(total, devices, coder.ranges).values for total in (without, with_it))
    assert np.linalg.norm(second.astype(np.float64) - first) <= 1.0 + 1e-5


def test_a_device_takes_no_other_ranges_than_those_of_the_clip() -> None:
    """Ranges of 0 would say that the round was for the ranges alone, so that the gradient counts again."""
    coder = BoundedQuantiser(LAYOUT, np.arange(40), 4, 5, 1.0)
    for ranges in (np.zeros(2, np.float32), 2 * coder.ranges):
        with pytest.raises(SumAbandoned, match="do not follow from the clip"):
            coder.quantise(Contribution(np.ones(40, np.float32), 1, 0), ranges, np.random.default_rng(0))
    assert isinstance(quantiser_of(LAYOUT, np.arange(40), 4, 5, 0.0), Quantiser)

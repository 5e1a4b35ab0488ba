"""The parts of secure sums: shares, masks, vectors on the wire, integers, and the choice of entries."""

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgeflock.shared.errors import Malformed
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.secure_sum import keys, shamir
from edgeflock.shared.secure_sum.coordinates import Coordinates, rotate
from edgeflock.shared.secure_sum.masks import VectorShape, centre
from edgeflock.shared.secure_sum.messages import Roster
from edgeflock.shared.secure_sum.quantiser import Contribution, Quantiser

LAYOUT = Layout.from_shapes([("a", (6, 5)), ("nothing", (0,)), ("b", (10,))])


def test_shares_are_those_of_shamir_s_example() -> None:
    """Secret 1234, coefficients 166 and 94, modulo 1613 (Wikipedia, "Shamir's secret sharing")."""
    found = shamir.split(1234, 6, 3, _drawing(166, 94), 1613)
    assert found == [1494, 329, 965, 176, 1188, 775]
    for places in itertools.combinations(range(1, 7), 3):
        assert shamir.combine({place: found[place - 1] for place in places}, 1613) == 1234


def _drawing(*numbers: int) -> Any:
    rest = iter(numbers)
    return lambda limit: next(rest)


@pytest.mark.parametrize(("shares", "threshold"), [(2, 2), (5, 3), (33, 23)])
def test_any_threshold_of_shares_is_enough_and_one_less_is_not(shares: int, threshold: int) -> None:
    random = np.random.default_rng(0)
    secret = int.from_bytes(random.bytes(32), "big")
    found = shamir.split(
        secret, shares, threshold, lambda limit: int.from_bytes(random.bytes(48), "big") % limit
    )
    for size in range(threshold, shares + 1):
        chosen = random.permutation(shares)[:size]
        assert shamir.combine({int(place) + 1: found[place] for place in chosen}) == secret
    chosen = random.permutation(shares)[: threshold - 1]
    assert shamir.combine({int(place) + 1: found[place] for place in chosen}) != secret


def test_the_prime_is_one() -> None:
    """Miller and Rabin, with the first twenty primes as bases."""
    odd, twos = shamir.PRIME - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for base in (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71):
        powers = [pow(base, odd * 2**k, shamir.PRIME) for k in range(twos)]
        assert powers[0] == 1 or shamir.PRIME - 1 in powers


def test_a_mask_is_the_stream_of_rfc_8439() -> None:
    """Appendix A.1, test vector 1: a key of zeros, nonce 0, counter 0."""
    octets = bytes.fromhex("76b8e0ada0f13d90405d6ae55386bd28")
    wide, narrow = VectorShape(4, 32, 0), VectorShape(8, 16, 0)
    assert wide.mask(bytes(32)).astype("<u4").tobytes() == octets
    assert narrow.mask(bytes(32)).astype("<u2").tobytes() == octets


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 32), st.integers(0, 40), st.integers(0, 5), st.integers(0, 1 << 32))
def test_a_vector_comes_back_from_the_wire(width: int, entries: int, counts: int, seed: int) -> None:
    shape = VectorShape(entries, width, counts)
    vector = np.random.default_rng(seed).integers(0, 1 << 32, shape.size, np.uint32)
    octets = shape.pack(shape.reduce(vector))
    assert len(octets) == shape.octets
    np.testing.assert_array_equal(shape.unpack(octets), vector)


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 16), st.integers(1, 50), st.integers(0, 1 << 32))
def test_the_mean_is_within_a_step_of_the_devices_mean(bits: int, devices: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    positions, ranges = np.arange(40), np.array([2.0, 0.0, 0.5], np.float32)
    coder = Quantiser(LAYOUT, positions, bits, devices)
    bound = ranges[[0] * 30 + [2] * 10]
    values = [(random.uniform(-1, 1, 40) * bound).astype(np.float32) for _ in range(devices)]
    vectors = [coder.quantise(Contribution(one, 7, -16), ranges, random) for one in values]
    total = coder.shape.reduce(sum(vectors, np.zeros(coder.shape.size, np.uint32)))
    mean = coder.decode(total, devices, ranges)
    step = bound / ((1 << (bits - 1)) - 1)
    assert (np.abs(mean.values - np.mean(values, axis=0)) <= step * 1.001).all()
    assert (mean.samples, mean.loss_level) == (7 * devices, -16)


def test_rounding_has_no_bias_and_clips() -> None:
    coder = Quantiser(LAYOUT, np.arange(40), 4, 1)
    ranges, random = np.ones(3, np.float32), np.random.default_rng(1)
    values = np.full(40, 0.31, np.float32)
    values[:2] = 5, -5
    found = [coder.quantise(Contribution(values, 1, 0), ranges, random)[:40] for _ in range(400)]
    whole = centre(np.stack(found), coder.shape.width)
    assert set(whole[:, 0]) | set(whole[:, 1]) == {7, -7}
    assert abs(whole[:, 2:].mean() - 7 * 0.31) < 0.02


def test_the_first_sum_finds_the_ranges_and_later_ones_follow_slowly() -> None:
    coder, random = Quantiser(LAYOUT, np.arange(40), 4, 2), np.random.default_rng(0)
    values = np.repeat(np.array([0.25, 8], np.float32), [30, 10])
    unknown = np.zeros(3, np.float32)

    def mean_of(values: Any, ranges: Any) -> Any:
        vectors = [coder.quantise(Contribution(values, 1, 0), ranges, random) for _ in range(2)]
        return coder.decode(coder.shape.reduce(vectors[0] + vectors[1]), 2, ranges)

    first = mean_of(values, unknown)
    assert not first.values.any()
    np.testing.assert_allclose(first.ranges, [1, 0, 32])
    later = mean_of(values * np.float32(1e6), first.ranges)
    np.testing.assert_allclose(later.ranges, [4, 0, 128])  # two octaves at a time


def test_every_entry_has_its_turn() -> None:
    seen = np.concatenate([rotate("run", version, 103, 10) for version in range(10)])
    assert sorted(seen) == list(range(103))
    again = np.concatenate([rotate("run", version, 103, 10) for version in range(10, 20)])
    assert sorted(again) == list(range(103))
    assert not np.array_equal(seen, again)


def test_half_of_the_entries_had_the_largest_means() -> None:
    coordinates = Coordinates("run", 100, 0.2)
    coordinates.record(np.arange(100), np.zeros(100, np.float32))
    coordinates.record(np.arange(10, 20), np.full(10, -3, np.float32))
    chosen = coordinates.choose(5)
    assert set(range(10, 20)) <= set(chosen)
    assert 15 <= chosen.size <= 20
    assert np.array_equal(Coordinates("run", 7, 1.0).choose(3), np.arange(7))


@pytest.mark.parametrize("size", [0, 3, 40, 100])
def test_a_roster_of_another_size_is_refused(size: int) -> None:
    with pytest.raises(Malformed):
        Roster.decode(bytes(size), 40, 3)


def test_weak_keys_agree_on_nothing() -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        keys.mask_seed(bytes(range(32)), bytes(32), bytes(32))

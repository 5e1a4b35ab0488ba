"""How long a device waits before it tries again."""

from itertools import islice
from random import Random

import pytest

from edgeflock.client.transport import back_off


@pytest.mark.parametrize(
    ("first", "longest", "bounds"),
    [
        (0.5, 30.0, [0.5, 1, 2, 4, 8, 16, 30, 30, 30]),
        (1.0, 4.0, [1, 2, 4, 4, 4]),
        (2.0, 3.0, [2, 3, 3]),
    ],
)
def test_waits_double_up_to_the_longest_with_full_jitter(
    first: float, longest: float, bounds: list[float]
) -> None:
    """Each wait is uniform between zero and its bound: over many devices it fills that range."""
    waits = [list(islice(back_off(Random(seed), first, longest), len(bounds))) for seed in range(400)]
    for place, bound in enumerate(bounds):
        drawn = sorted(wait[place] for wait in waits)
        assert 0 <= drawn[0] < 0.05 * bound
        assert 0.95 * bound < drawn[-1] <= bound
        assert abs(drawn[200] - bound / 2) < 0.1 * bound


def test_the_defaults_are_half_a_second_to_half_a_minute() -> None:
    waits = [list(islice(back_off(Random(seed)), 12)) for seed in range(100)]
    assert max(wait[0] for wait in waits) <= 0.5
    assert 15 < max(max(wait) for wait in waits) <= 30


def test_the_same_randomness_gives_the_same_waits() -> None:
    assert list(islice(back_off(Random(7)), 50)) == list(islice(back_off(Random(7)), 50))
    assert list(islice(back_off(Random(7)), 50)) != list(islice(back_off(Random(8)), 50))

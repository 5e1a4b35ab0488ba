"""sigma per parameter against a count of AdaComp's equation (3)."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from edgeflock.server.descent.staleness import Staleness
from edgeflock.server.descent.step import Index

WINDOWS = [2, 5, 8, 9, 255, 256, 257, 4096]


class Counted:
    """A Staleness, and beside it the plain history that equation (3) sums over."""

    def __init__(self, size: int, window: int, start: int = 0) -> None:
        self.staleness = Staleness(size, window, start)
        self.size = size
        self.start = start
        self.history: list[NDArray[np.bool_]] = []

    @property
    def version(self) -> int:
        return self.start + len(self.history)

    @property
    def oldest(self) -> int:
        return max(self.start, self.version - self.staleness.window + 1)

    def touch(self, where: Index, delta: NDArray[np.float32]) -> None:
        changed = np.zeros(self.size, np.bool_)
        changed[where] = delta != 0
        self.history.append(changed)
        self.staleness.touch(where, delta)

    def check(self, base: int, where: Index = slice(None)) -> None:
        """sigma_k(i) = sum_{u=j}^{i-1} 1[delta_k(u) != 0]."""
        counts = np.zeros(self.size, np.int64)
        for changed in self.history[base - self.start :]:
            counts += changed
        sigma = self.staleness.sigma(where, base)
        assert sigma.astype(np.int64).tolist() == counts[where].tolist()
        one = np.float32(1)
        weighed = self.staleness.weigh(where, np.ones(sigma.size, np.float32), base, one)
        assert weighed.tolist() == (one / np.maximum(counts[where], 1).astype(np.float32)).tolist()

    def check_all(self) -> None:
        assert self.staleness.version == self.version
        assert self.staleness.oldest == self.oldest
        for base in range(self.oldest, self.version + 1):
            self.check(base)


entry_values = st.sampled_from([0.0, -0.0, 1.0, -2.5, 1e-45, 3e38])


@st.composite
def interleavings(draw: st.DrawFn) -> tuple[Counted, list[tuple[Index, NDArray[np.float32]]]]:
    """A Staleness and updates for it, sparse and dense mixed, with zeros among their entries."""
    size = draw(st.integers(1, 5))
    counted = Counted(size, draw(st.integers(2, 20)), draw(st.integers(0, 1000)))
    updates: list[tuple[Index, NDArray[np.float32]]] = []
    for chosen in draw(st.lists(st.none() | st.sets(st.integers(0, size - 1)), max_size=45)):
        count = size if chosen is None else len(chosen)
        delta = draw(st.lists(entry_values, min_size=count, max_size=count))
        where = slice(None) if chosen is None else np.array(sorted(chosen), np.int64)
        updates.append((where, np.array(delta, np.float32)))
    return counted, updates


@given(interleaving=interleavings())
def test_every_base_after_every_update(
    interleaving: tuple[Counted, list[tuple[Index, NDArray[np.float32]]]],
) -> None:
    counted, updates = interleaving
    counted.check_all()
    for where, delta in updates:
        counted.touch(where, delta)
        counted.check_all()


def random_update(random: np.random.Generator, size: int) -> tuple[Index, NDArray[np.float32]]:
    """Parameter 0 always changes, parameter 1 never does; the others by chance, some by zero."""
    if random.random() < 0.3:
        where: Index = slice(None)
        delta = random.integers(-1, 2, size).astype(np.float32)
        delta[:2] = 1, 0
    else:
        where = np.concatenate(([0], 2 + np.flatnonzero(random.random(size - 2) < 0.5)))
        delta = random.integers(-1, 2, where.size).astype(np.float32)
        delta[0] = -1
    return where, delta


@pytest.mark.parametrize("start", [0, 3, 100_001])
@pytest.mark.parametrize("window", WINDOWS)
def test_long_runs_turn_the_ring_and_the_counters_over(window: int, start: int) -> None:
    """At least two turns of the ring of blocks, and 256 several times over for the uint8 counters."""
    random = np.random.default_rng(window + start)
    counted = Counted(9, window, start)
    updates = max(2 * window + 150, 1100)
    # Around block edges and near the end everything is looked at; elsewhere, now and then.
    every = 1 if window < 50 else 29 if window < 300 else 401
    for number in range(updates):
        counted.touch(*random_update(random, counted.size))
        if number % every == 0 or number == updates - 1:
            span = counted.version - counted.oldest
            for lag in {0, 1, span, span // 2, *random.integers(0, span + 1, 3).tolist()}:
                counted.check(counted.version - lag)
                counted.check(counted.version - lag, np.array([0, 1, 4, 8]))


@pytest.mark.parametrize("window", [w for w in WINDOWS if w < 4096])
def test_the_widest_count_a_window_admits(window: int) -> None:
    """A parameter that every update changes has sigma = delay, up to window - 1."""
    staleness = Staleness(2, window)
    for version in range(1, 3 * window + 70):
        staleness.touch(np.array([1]), np.array([7], np.float32))
        for delay in (0, 1, min(version, window - 1)):
            assert staleness.sigma(np.array([0, 1]), version - delay).tolist() == [0, delay]
            assert staleness.sigma(slice(None), version - delay).tolist() == [0, delay]


def test_empty_updates_make_versions_that_touch_nothing() -> None:
    counted = Counted(3, 5)
    nothing = np.zeros(0, np.int64), np.zeros(0, np.float32)
    for _ in range(12):
        counted.touch(*nothing)
        counted.check_all()
    assert counted.staleness.sigma(np.zeros(0, np.int64), 12).size == 0


@pytest.mark.parametrize("start", [0, 77])
@pytest.mark.parametrize("window", [2, 8, 256, 257])
def test_bases_beyond_the_window_are_errors(window: int, start: int) -> None:
    staleness = Staleness(4, window, start)
    where, delta = np.array([2]), np.ones(1, np.float32)
    for version in range(start, start + 2 * window):
        oldest = max(start, version - window + 1)
        assert staleness.oldest == oldest
        for base in (oldest - 1, version + 1):
            with pytest.raises(ValueError, match=f"base {base} is outside {oldest}..{version}"):
                staleness.sigma(where, base)
        staleness.touch(where, delta)


@pytest.mark.parametrize("window", [-1, 0, 1, 65537])
def test_windows_that_cannot_be(window: int) -> None:
    with pytest.raises(ValueError, match="2 to 65536"):
        Staleness(1, window)


def test_the_largest_window() -> None:
    staleness = Staleness(1, 65536)
    for _ in range(65536 + 100):
        staleness.touch(slice(None), np.ones(1, np.float32))
    assert staleness.sigma(slice(None), staleness.oldest).tolist() == [65535]
    assert staleness.sigma(slice(None), staleness.version - 300).tolist() == [300]


@pytest.mark.parametrize(("window", "octets"), [(256, 67), (4096, 652)])
def test_memory_per_parameter(window: int, octets: int) -> None:
    assert Staleness(1000, window).nbytes == 1000 * octets


def test_slices_of_the_parameters_need_nothing_of_each_other() -> None:
    """Two halves with a Staleness each count as one for all."""
    random = np.random.default_rng(5)
    whole, left, right = Staleness(10, 9), Staleness(4, 9), Staleness(6, 9)
    for _ in range(40):
        where = np.flatnonzero(random.random(10) < 0.4)
        delta = random.integers(-1, 2, where.size).astype(np.float32)
        for staleness, start, stop in ((whole, 0, 10), (left, 0, 4), (right, 4, 10)):
            inside = (start <= where) & (where < stop)
            staleness.touch(where[inside] - start, delta[inside])
        for base in range(whole.oldest, whole.version + 1):
            halves = [*left.sigma(slice(None), base), *right.sigma(slice(None), base)]
            assert whole.sigma(slice(None), base).tolist() == halves

"""Second moments: their factors by hand, their bytes, and what is refused."""

import zlib

import numpy as np
import pytest

from edgeflock.shared.codecs import moments
from edgeflock.shared.errors import WrongDtype
from edgeflock.shared.model.layout import Layout

LAYOUT = Layout.from_shapes([("w", (2, 3)), ("empty", (0, 3)), ("b", (4,)), ("one", ())])
"""Rows and columns: 2 + 3, 0 + 3, 1 + 4, 1 + 1."""


def roots(means: moments.Vector, layout: Layout) -> moments.Vector:
    """sqrt(V) of all entries, each of which is in one part."""
    whole, found = np.full(layout.size, np.nan, np.float32), 0
    for place, part in moments.roots(means, layout):
        assert place.start == found
        whole[place], found = part, place.stop
    assert found == layout.size
    return whole


def test_factors_are_the_means_of_rows_and_columns() -> None:
    squares = np.array([1, 2, 3, 5, 6, 7, 1, 3, 5, 7, 9], np.float32)
    means = moments.factor(squares, LAYOUT)
    assert means.tolist() == [2, 6, 3, 4, 5, 0, 0, 0, 4, 1, 3, 5, 7, 9, 9]
    assert moments.energies(means, LAYOUT).tolist() == [4, 0, 4, 9]
    kernel = np.sqrt(np.outer([2, 6], [3, 4, 5]) / 4).ravel()
    np.testing.assert_allclose(roots(means, LAYOUT), [*kernel, 1, 3**0.5, 5**0.5, 7**0.5, 3], rtol=1e-6)


def test_a_product_and_a_vector_are_kept_as_they_are() -> None:
    layout = Layout.from_shapes([("w", (4, 2, 3)), ("b", (5,))])
    random = np.random.default_rng(0)
    product = np.outer(random.random(4), random.random(6)).ravel()
    squares = np.concatenate([product, random.random(5)]).astype(np.float32)
    np.testing.assert_allclose(roots(moments.factor(squares, layout), layout) ** 2, squares, rtol=1e-5)


def test_parts_of_large_matrices_hold_whole_rows() -> None:
    """A matrix of several parts, one whose row is longer than a part, and small tensors between."""
    layout = Layout.from_shapes([("a", (3,)), ("w", (70, 1000)), ("b", (5,)), ("long", (2, 40_000))])
    means = moments.factor(np.random.default_rng(0).random(layout.size, np.float32), layout)
    expected = []
    for line, (rows, columns) in zip(layout.lines, layout.grids, strict=False):
        row, column = means[line : line + rows], means[line + rows : line + rows + columns]
        expected.append(np.outer(np.sqrt(row / row.mean()), np.sqrt(column)).ravel())
    assert np.array_equal(roots(means, layout), np.concatenate(expected))
    assert len(list(moments.roots(means, layout))) == 5


def test_nothing_stays_nothing() -> None:
    means = moments.factor(np.zeros(LAYOUT.size, np.float32), LAYOUT)
    assert not roots(moments.decode(moments.encode(means), LAYOUT), LAYOUT).any()


def test_they_travel_as_the_nearest_powers_of_two() -> None:
    layout = Layout.from_shapes([("b", (7,))])
    means = np.array([1, 0, 1.4, 1.42, 2.8, 2.9, 1e-38, 3e38], np.float32)
    known = moments.decode(moments.encode(means), layout)
    assert known.tolist() == [1, 0, 1, 2, 2, 4, 2.0**-126, 2.0**127]


@pytest.mark.parametrize(
    "octets",
    [
        b"no stream",
        zlib.compress(bytes(14)),
        zlib.compress(bytes(16)),
        zlib.compress(bytes(100_000_000)),
        zlib.compress(bytes(15)) + b"more",
        zlib.compress(bytes(15))[:-1],
    ],
)
def test_what_is_not_of_this_model_is_refused(octets: bytes) -> None:
    with pytest.raises(WrongDtype, match="second moments"):
        moments.decode(octets, LAYOUT)

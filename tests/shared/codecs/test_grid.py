"""Indices and signs in one stream: both builds of the coder obey the laws, and it is worth its trouble."""

import runpy
import sys
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from types import FunctionType
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from edgeflock.shared.codecs import activity, grid, sparse
from edgeflock.shared.codecs.activity import Activity
from edgeflock.shared.errors import IndexMalformed, IndexOutOfRange, Refused
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.selection import select_largest
from tests.laws import Indices

Flags = grid.Flags


@dataclass(frozen=True, slots=True)
class Build:
    """The coder as the server runs it, or as a device without numba does."""

    encode: Callable[[Indices, Flags, Layout, Activity | None], bytes | None]
    decode: Callable[[bytes, int, Layout, Activity | None], tuple[Indices, Flags]]


def plain() -> Build:
    with patch.dict(sys.modules, {"numba": None}):
        for module in ("compiled", "decisions"):
            sys.modules.pop(f"edgeflock.shared.codecs.{module}")
        names = runpy.run_path(grid.__file__)
    assert isinstance(names["code"], FunctionType)
    return Build(names["encode"], names["decode"])


COMPILED, PLAIN = Build(grid.encode, grid.decode), plain()

SHAPES: list[tuple[int, ...]] = [
    (), (0,), (3, 0), (0, 4), (1,), (1, 1), (7,), (1, 60), (60, 1), (4, 5), (16, 24), (6, 2, 3, 3)
]  # fmt: skip

shapes = st.lists(st.sampled_from(SHAPES), min_size=1, max_size=5).filter(
    lambda chosen: any(0 not in shape for shape in chosen)
)


def layout_of(*shapes: tuple[int, ...]) -> Layout:
    return Layout.from_shapes((str(t), shape) for t, shape in enumerate(shapes))


@st.composite
def updates(draw: st.DrawFn) -> tuple[Layout, Indices, Flags]:
    """(layout, indices, signs): none, all, one of each tensor, anything; any signs, runs, or all plus."""
    layout = layout_of(*draw(shapes))
    random = np.random.default_rng(draw(st.integers(0, 1 << 20)))
    kind = draw(st.sampled_from(["any", "crowded", "none", "all", "one of each"]))
    chosen = random.random(layout.size) < draw(st.sampled_from([0.02, 0.2, 0.7]))
    if kind == "crowded":
        chosen &= random.random(layout.size // 5 + 1).repeat(5)[: layout.size] < 0.3
    if kind in ("none", "all"):
        chosen[:] = kind == "all"
    if kind == "one of each":
        chosen = np.isin(np.arange(layout.size), layout.bounds[:-1])
    where = np.flatnonzero(chosen)
    signs = draw(st.sampled_from(["any", "runs", "plus"]))
    negative = random.random(where.size) < {"any": 0.5, "runs": 0.1, "plus": 0.0}[signs]
    return layout, where, np.logical_xor.accumulate(negative) if signs == "runs" else negative


def an_activity(layout: Layout, seed: int) -> Activity | None:
    """After some steps; of none if `seed` is 0, and rarely of all rows and columns."""
    if not seed:
        return None
    random, known = np.random.default_rng(seed), activity.initial(layout)
    for _ in range(seed % 4):
        known = activity.follow(known, np.flatnonzero(random.random(layout.size) < 0.05), layout)
    return known


def same(one: tuple[Indices, Flags], other: tuple[Indices, Flags]) -> bool:
    return all(a.dtype == b.dtype and a.tolist() == b.tolist() for a, b in zip(one, other, strict=True))


@given(update=updates(), seed=st.integers(0, 1000))
def test_entries_come_back_from_both_builds(update: tuple[Layout, Indices, Flags], seed: int) -> None:
    layout, where, negative = update
    known = an_activity(layout, seed)
    stream = COMPILED.encode(where, negative, layout, known)
    assert PLAIN.encode(where, negative, layout, known) == stream
    if stream is None:  # less than a bit for each: which do, tests/integration/test_protocol_document.py says
        return
    for build in (COMPILED, PLAIN):
        assert same(build.decode(stream, where.size, layout, known), (where, negative))


def outcome(
    build: Build, octets: bytes, count: int, layout: Layout, known: Activity | None
) -> tuple[Indices, Flags] | type[Refused]:
    try:
        return build.decode(octets, count, layout, known)
    except Refused as refusal:
        return type(refusal)


def refused_or_canonical(octets: bytes, count: int, layout: Layout, known: Activity | None = None) -> None:
    """What a decoder takes is what an encoder writes; the builds agree on it."""
    results = [outcome(build, octets, count, layout, known) for build in (COMPILED, PLAIN)]
    if isinstance(results[0], type):
        assert results[0] is results[1]
        assert results[0] in (IndexMalformed, IndexOutOfRange)
        return
    assert not isinstance(results[1], type)
    assert same(results[0], results[1])
    where, negative = results[0]
    assert where.size == count
    assert count == 0 or (0 <= where[0] and where[-1] < layout.size)
    assert (np.diff(where) > 0).all()
    assert COMPILED.encode(where, negative, layout, known) == octets


@given(octets=st.binary(max_size=40), count=st.one_of(st.integers(0, 60), st.integers(0, 1 << 63)), of=shapes)
@example(octets=b"", count=0, of=[(0,), (1,)])
@example(octets=b"\0", count=0, of=[(4, 5)])
def test_garbage_is_refused_or_canonical(octets: bytes, count: int, of: list[tuple[int, ...]]) -> None:
    refused_or_canonical(octets, count, layout_of(*of))


def test_nothing_takes_no_bytes() -> None:
    nothing = np.zeros(0, np.int64), np.zeros(0, np.bool_)
    for build in (COMPILED, PLAIN):
        assert build.encode(*nothing, layout_of((4, 5)), None) == b""
        assert same(build.decode(b"", 0, layout_of((4, 5)), None), nothing)


@given(update=updates(), seed=st.integers(0, 1000), data=st.data())
def test_a_damaged_stream_is_refused_or_canonical(
    update: tuple[Layout, Indices, Flags], seed: int, data: st.DataObject
) -> None:
    layout, where, negative = update
    known = an_activity(layout, seed)
    stream = COMPILED.encode(where, negative, layout, known)
    assume(stream)
    assert stream
    damaged = bytearray(stream)
    damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    refused_or_canonical(bytes(damaged), where.size, layout, known)
    refused_or_canonical(stream[: data.draw(st.integers(0, len(stream) - 1))], where.size, layout, known)
    for count in {max(0, where.size - 1), where.size + 1}:
        refused_or_canonical(stream, count, layout)
    for addition in (b"\x80", b"\xff\xff"):
        refused_or_canonical(stream + addition, where.size, layout)
    with pytest.raises(IndexMalformed):  # reads the same, for what is missing counts as zeros
        COMPILED.decode(stream + b"\0", where.size, layout, None)


def test_announced_counts_are_held_against_stream_and_model() -> None:
    layout = layout_of((3, 4))
    with pytest.raises(IndexMalformed, match="2 bytes do not hold 17 entries"):
        grid.decode(b"\1\2", 17, layout)
    with pytest.raises(IndexMalformed, match="73 bytes do not hold 1 entries"):
        grid.decode(bytes(73), 1, layout)
    with pytest.raises(IndexOutOfRange):
        grid.decode(b"\1\2", 13, layout)


def test_a_stream_is_always_these_bytes() -> None:
    """They are what other clients read and what journals hold: divided as whole numbers, or as floats."""
    layout = layout_of((16, 24), (40,), (64, 300))
    places = np.arange(layout.size)
    where = np.flatnonzero((places // 300 % 5 < 2) & (places * places % 11 < 3))
    for build in (COMPILED, PLAIN):
        stream = build.encode(where, where // 300 % 3 == 0, layout, None)
        assert stream is not None
        assert (where.size, len(stream)) == (2160, 740)
        assert sha256(stream).hexdigest().startswith("27b2bc147fbbeac74750d4400b55f9f7")


def test_scattered_entries_are_left_to_golomb() -> None:
    """100 entries in 100 rows and 100 columns: more than 64 places for each."""
    layout = layout_of((400, 500))
    where = np.arange(100) * 4 * 500 + np.arange(100) * 5
    assert grid.encode(where, np.zeros(100, np.bool_), layout) is None
    # In as many rows, but a tenth of the columns.
    where = np.arange(100) * 4 * 500 + np.arange(100) // 10 * 5
    assert grid.encode(where, np.zeros(100, np.bool_), layout) is not None


def outer_products(random: np.random.Generator, rows: int, columns: int) -> NDArray[np.float32]:
    """The sum of ten outer products of sparse errors and rectified, sparse inputs: a layer's gradient.

    Few of the ten samples are still wrong by much.
    """
    errors = random.standard_normal((rows, 10)) * (random.random((rows, 10)) < 0.3)
    errors *= random.exponential(1, 10) ** 2
    inputs = np.abs(random.standard_normal((10, columns))) * (random.random((10, columns)) < 0.15)
    gradient: NDArray[np.float32] = (errors @ inputs).astype(np.float32)
    return gradient


@pytest.mark.parametrize("fraction", [0.001, 0.003, 0.01])
def test_a_gradient_takes_two_thirds_of_golomb_and_sign_bits_at_most(fraction: float) -> None:
    random = np.random.default_rng(11)
    layout = layout_of((128, 1568), (128,), (10, 128), (10,))
    grid_bytes = plain_bytes = 0
    for _ in range(10):
        parts = [outer_products(random, 128, 1568), outer_products(random, 1, 128)]
        parts += [outer_products(random, 10, 128), outer_products(random, 1, 10)]
        gradient = np.concatenate([part.ravel() for part in parts])
        where = select_largest(gradient, layout, fraction)
        stream = grid.encode(where, gradient[where] < 0, layout)
        assert stream is not None
        assert PLAIN.encode(where, gradient[where] < 0, layout, None) == stream
        grid_bytes += len(stream)
        plain_bytes += len(sparse.encode(where, layout.size)) + (where.size + 7) // 8
    print(f"{fraction}: {grid_bytes / 10} bytes for {plain_bytes / 10}")
    assert 1.5 * grid_bytes <= plain_bytes

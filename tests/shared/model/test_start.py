"""The first model from a seed: the same bits everywhere, and only what can be generated."""

import struct
from collections.abc import Iterator

import numpy as np
import pytest

from edgeflock.shared.errors import Malformed
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.model.start import CONSTANT, NORMAL, UNIFORM, Filling, Start, generate

LAYOUT = Layout.from_shapes([("w", (5, 4)), ("b", (3,)), ("e", (0, 7)), ("g", ()), ("mean", (2,), True)])
START = Start(
    7,
    (
        Filling(UNIFORM, -0.25, 0.5),
        Filling(NORMAL, 0.125, 0.75),
        Filling(UNIFORM, 0.0, 1.0),
        Filling(NORMAL, 0.0, 1.0),
        Filling(CONSTANT, 0.5, 0.0),
    ),
)
MASK = (1 << 64) - 1


def words(seed: int, tensor: int) -> Iterator[int]:
    """Philox4x64-10, after the paper; the first block has the counter 1."""
    counter = 0
    while True:
        counter += 1
        c, k = [counter, 0, 0, 0], [seed, tensor]
        for _ in range(10):
            p, q = 0xD2E7470EE14C6C93 * c[0], 0xCA5A826395121157 * c[2]
            c = [(q >> 64) ^ c[1] ^ k[0], q & MASK, (p >> 64) ^ c[3] ^ k[1], p & MASK]
            k = [(k[0] + 0x9E3779B97F4A7C15) & MASK, (k[1] + 0xBB67AE8584CAA73B) & MASK]
        yield from c


def single(number: float) -> float:
    rounded: float = struct.unpack("<f", struct.pack("<f", number))[0]
    return rounded


def by_hand(start: Start, layout: Layout) -> list[float]:
    """The same in Python's integers and floats, rounding where float32 does."""
    theta = []
    for number, ((kind, a, b), tensor) in enumerate(zip(start.tensors, layout.tensors, strict=True)):
        a, b, raw = single(a), single(b), words(start.seed, number)
        for _ in range(tensor.stop - tensor.start):
            if kind == CONSTANT:
                theta.append(single(a))
            elif kind == UNIFORM:
                theta.append(single(a + single(single(b - a) * (next(raw) >> 40) / 2**24)))
            else:
                three = [next(raw), next(raw), next(raw)]
                fields = [word >> shift & 0xFFFF for word in three for shift in (0, 16, 32, 48)]
                theta.append(single(a + single(b * (sum(fields) - 393210) / 65536)))
    return theta


def test_the_bits_are_these_for_ever() -> None:
    theta = generate(START, LAYOUT)
    assert theta.dtype == np.float32
    assert theta.size == LAYOUT.size
    assert theta[[0, 1, 19, 20, 22, 23, 24]].astype(">f4").tobytes().hex(" ", 4) == GOLDEN


GOLDEN = "3ecee04e bce94680 3da4b2d0 3e9a5700 3e9b3f80 3eb75400 3f000000"


@pytest.mark.parametrize("seed", [0, 7, (1 << 63) - 1])
def test_any_language_can_make_it(seed: int) -> None:
    start = START._replace(seed=seed)
    assert generate(start, LAYOUT).tolist() == by_hand(start, LAYOUT)


@pytest.mark.slow
def test_long_tensors_are_made_in_parts_that_fit() -> None:
    layout = Layout.from_shapes([("u", (70_000,)), ("n", (70_000,))])
    start = Start(3, (Filling(UNIFORM, -0.1, 0.3), Filling(NORMAL, -0.1, 0.3)))
    theta = generate(start, layout)
    some = [0, 65_535, 65_536, 69_999]
    assert theta[some].tolist() == [by_hand_at(start, layout, 0, k) for k in some]
    assert theta[[70_000 + k for k in some]].tolist() == [by_hand_at(start, layout, 1, k) for k in some]


def by_hand_at(start: Start, layout: Layout, tensor: int, entry: int) -> float:
    size = entry + 1
    shapes = [(t.name, (size if number == tensor else 0,)) for number, t in enumerate(layout.tensors)]
    return by_hand(start, Layout.from_shapes(shapes))[-1]


def test_tensors_and_seeds_have_numbers_of_their_own() -> None:
    layout = Layout.from_shapes([("a", (1000,)), ("b", (1000,))])
    first = generate(Start(1, (Filling(UNIFORM, 0, 1),) * 2), layout)
    second = generate(Start(2, (Filling(UNIFORM, 0, 1),) * 2), layout)
    vectors = [first[:1000], first[1000:], second[:1000], second[1000:]]
    assert np.abs(np.corrcoef(vectors) - np.eye(4)).max() < 0.15


def test_values_are_distributed_as_they_should() -> None:
    layout = Layout.from_shapes([("u", (100_000,)), ("n", (100_000,))])
    theta = generate(Start(5, (Filling(UNIFORM, -1, 3), Filling(NORMAL, -1, 3))), layout)
    u, n = np.sort(theta[:100_000]), np.sort(theta[100_000:])
    assert np.abs((u + 1) / 4 - np.linspace(0, 1, u.size)).max() < 0.006
    assert n.mean() == pytest.approx(-1, abs=0.04)
    assert n.std() == pytest.approx(3, abs=0.03)
    inside = [np.mean(np.abs(n + 1) < 3 * z) for z in (1, 2, 3)]
    assert inside == pytest.approx([0.6827, 0.9545, 0.9973], abs=0.01)


def test_what_the_wire_brings_becomes_the_same_start() -> None:
    assert Start.from_msgpack([START.seed, [list(filling) for filling in START.tensors]]) == START
    rounded = Start.from_msgpack([0, [[UNIFORM, -0.1, 1]]]).tensors[0]
    assert rounded == (UNIFORM, single(-0.1), 1.0), "to float32"


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (None, "must be"),
        ([7], "must be"),
        ([7, [[0, 1, 0]], 0], "must be"),
        ({7: []}, "must be"),
        ([7, {}], "must be"),
        ([True, []], "seed"),
        ([-1, []], "seed"),
        ([1 << 63, []], "seed"),
        ([7.0, []], "seed"),
        ([7, [0]], r"start\[0\] must be"),
        ([7, [[0, 1, 0], [0, 1]]], r"start\[1\] must be"),
        ([7, [[False, 1, 0]]], "must be"),
        ([7, [[3, 1, 2]]], "kind 3"),
        ([7, [[-1, 1, 2]]], "kind -1"),
        ([7, [[1, "0", 1]]], "numbers"),
        ([7, [[1, 0, True]]], "numbers"),
        ([7, [[1, 0, float("nan")]]], "finite"),
        ([7, [[2, float("-inf"), 1]]], "finite"),
        ([7, [[1, 0, 1e39]]], "finite float32"),
        ([7, [[0, 1, 2]]], "b must be 0"),
        ([7, [[1, 2, 1]]], "which is less"),
        ([7, [[2, 0, -1]]], "below 0"),
    ],
)
def test_a_start_that_is_none_is_refused(value: object, why: str) -> None:
    with pytest.raises(Malformed, match=why):
        Start.from_msgpack(value)


def test_a_start_that_does_not_fit_is_refused() -> None:
    with pytest.raises(Malformed, match="4 tensors and the layout 5"):
        generate(START._replace(tensors=START.tensors[1:]), LAYOUT)
    for huge in (Filling(UNIFORM, -3e38, 3e38), Filling(NORMAL, 0, 3e38), Filling(NORMAL, 3e38, 1e38)):
        with pytest.raises(Malformed, match="overflows"):
            generate(START._replace(tensors=(huge, *START.tensors[1:])), LAYOUT)

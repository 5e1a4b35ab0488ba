"""A device finds the server's held-out rows among its own by their hashes, and only if it has them."""

from typing import Any

import msgpack
import numpy as np
import pytest

from edgeflock.shared.data.columns import features
from edgeflock.shared.data.fitting import scale_targets
from edgeflock.shared.errors import Malformed
from edgeflock.shared.model.description import Description
from edgeflock.shared.model.fields import Fields
from edgeflock.shared.model.held_out import HASHES, Overlap, Sketch, hashes_of, sketch_of
from tests.integration.foreign_client import held_out_hash, inputs_of, target_of

RANDOM = np.random.default_rng(0)
X, Y = RANDOM.standard_normal((1000, 5)).astype(np.float32), RANDOM.integers(0, 3, 1000)
MINE, LABELS = RANDOM.standard_normal((5000, 5)).astype(np.float32), RANDOM.integers(0, 3, 5000)


def overlap_of(x: Any, y: Any, held_out: Any = X, targets: Any = Y) -> int:
    sketch = sketch_of("run", held_out, targets)
    assert sketch is not None
    overlap = Overlap("run", sketch)
    overlap.add_stored(x, y)
    return overlap.rows


def test_all_held_out_rows_are_found_and_no_others() -> None:
    assert overlap_of(X, Y) == 1000
    assert overlap_of(np.concatenate([MINE, X]), np.concatenate([LABELS, Y])) == 1000
    assert overlap_of(MINE, LABELS) == 0
    assert overlap_of(X, Y + 1) == 0, "the target is part of a row"


def test_a_part_of_them_is_estimated() -> None:
    some = np.flatnonzero(RANDOM.random(1000) < 0.3)
    found = overlap_of(np.concatenate([MINE, X[some]]), np.concatenate([LABELS, Y[some]]))
    # The standard deviation of a share p of k rows that are drawn is the root of p (1 - p) / k.
    assert abs(found / 1000 - 0.3) < 4 * np.sqrt(0.3 * 0.7 / HASHES)


def test_readings_that_repeat_are_no_sign() -> None:
    coarse, more = RANDOM.integers(0, 6, (1000, 3)), RANDOM.integers(0, 6, (20_000, 3))
    assert overlap_of(more.astype(np.float32), more[:, 0], coarse.astype(np.float32), coarse[:, 0]) == 0


def test_a_few_rows_are_enough() -> None:
    assert overlap_of(X[:20], Y[:20], X[:20], Y[:20]) == 20
    assert overlap_of(X[:1], Y[:1], X[:1], Y[:1]) == 0, "of one row nothing can be said"


def test_a_stream_is_compared_sample_by_sample() -> None:
    sketch = sketch_of("run", X, Y)
    assert sketch is not None
    overlap = Overlap("run", sketch)
    for at in range(0, 1000, 7):
        overlap.add(X[at : at + 7], Y[at : at + 7])
    assert overlap.rows == 1000


def test_no_more_are_told_of_than_the_device_has() -> None:
    """An estimate by 64 hashes may be a tenth off."""
    sketch = sketch_of("run", X, Y)
    assert sketch is not None
    kept = np.array([one in sketch.hashes for one in hashes_of("run", X, Y)])
    own = np.concatenate([np.flatnonzero(kept), np.flatnonzero(~kept)[:100]])
    stored, streamed = Overlap("run", sketch), Overlap("run", sketch)
    stored.add_stored(X[own], Y[own])
    streamed.add(X[own], Y[own])
    assert stored.rows == streamed.rows == len(own)


def test_rounding_in_the_last_bits_makes_no_other_row() -> None:
    nearby = np.nextafter(X, np.float32(np.inf))
    same = [a == b for a, b in zip(hashes_of("run", X, Y), hashes_of("run", nearby, Y), strict=True)]
    assert np.mean(same) > 0.99
    zeros = np.zeros((1, 2), np.float32)
    assert hashes_of("run", zeros, Y[:1]) == hashes_of("run", -zeros, Y[:1])


def test_what_is_known_of_a_sketch_is_for_one_run() -> None:
    assert not set(hashes_of("run", X, Y)) & set(hashes_of("another", X, Y))


def test_a_foreign_client_comes_to_the_same_hashes_and_numbers() -> None:
    """docs/protocol.md says all that there is to know of them."""
    numbers = RANDOM.standard_normal(1000).astype(np.float32)
    for y, classes in ((Y, True), (numbers, False)):
        theirs = [
            held_out_hash("run", row, target, classes)
            for row, target in zip(X.tolist(), y.tolist(), strict=True)
        ]
        assert theirs == hashes_of("run", X, y)
    described = Description(
        ("warm", "mode"), (20.0, 0.0), (2.0, 1.0), (), True, (100.0, 50.0), ((), ("auto", "off"))
    )
    x = features(np.array([[24.0, np.nan]]), {1: np.array([1])}, described)
    assert inputs_of(described.fields, {"warm": 24.0, "mode": "off"}) == x[0].tolist() == [2, 0, 1]
    y = scale_targets(np.array([150.0]), described)
    assert target_of(described.fields, 150.0) == y[0] == 1


def test_several_fields_are_one_row() -> None:
    fields = Fields({"image": X, "words": np.arange(1000).reshape(-1, 1)})
    assert overlap_of(fields, Y, fields, Y) == 1000


def test_a_sketch_is_bounded_and_travels() -> None:
    sketch = sketch_of("run", X, Y)
    assert sketch is not None
    assert len(sketch.hashes) == 8 * HASHES
    assert sketch.hashes == b"".join(sorted(hashes_of("run", X, Y))[:HASHES])
    assert Sketch.from_msgpack(msgpack.unpackb(msgpack.packb(sketch))) == sketch


@pytest.mark.parametrize(
    "value",
    [
        None,
        [1, 0],
        [0, 0, b""],
        [2, 3, b""],
        [-1, 0, b""],
        [3, 0, b"1234567"],
        [3, 0, b"12345678" * 2],
        [3, 0, b"22345678" + b"12345678"],
        [3, 0, bytes(range(8 * (HASHES + 1) % 256)) * 99],
        [True, 0, b""],
    ],
)
def test_what_is_none_is_refused(value: Any) -> None:
    with pytest.raises(Malformed):
        Sketch.from_msgpack(value)

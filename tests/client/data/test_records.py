"""Messages of brokers, decoded, and what is fit for training."""

import json
import logging
import struct

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeflock.client.data.records import RECORD_BYTES, Broken, Checks, Chunk, Skipped, decode, gather

floats = st.floats(-1e6, 1e6, width=32)


@given(x=st.lists(floats, min_size=1, max_size=12), y=st.integers(-5, 1 << 40) | floats)
def test_a_sample_survives_every_way_of_writing_it(x: list[float], y: float) -> None:
    octets = struct.pack(f"<{len(x)}f", *x)
    ways = [
        msgpack.packb({"x": octets, "y": y}),
        msgpack.packb({"x": octets, "shape": [len(x)], "y": y, "device": "pi"}),
        msgpack.packb({"x": x, "y": y}),
        json.dumps({"x": x, "y": y}).encode(),
        b"\n " + json.dumps({"y": y, "x": [x], "shape": [len(x)]}).encode(),
    ]
    for record in ways:
        got_x, got_y = decode(record)
        assert got_x.dtype == np.float32
        assert got_x.tolist() == x
        assert got_y.dtype == (np.int64 if isinstance(y, int) else np.float32)
        assert got_y == y


def test_the_documented_bytes() -> None:
    x, y = decode(bytes.fromhex("82 a1 78 c4 08 0000003f 0000803f a1 79 00"))
    assert (x.tolist(), y.tolist()) == ([0.5, 1], 0)


def test_shapes_and_targets_of_several_positions() -> None:
    x, y = decode(msgpack.packb({"x": struct.pack("<6f", *range(6)), "shape": [2, 3], "y": [1, 0]}))
    assert x.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert y.tolist() == [1, 0]


PACKED = msgpack.packb


@pytest.mark.parametrize(
    ("record", "kind"),
    [
        (b"", "unreadable"),
        (b"{", "unreadable"),
        (b"{" * 100_000, "unreadable"),
        (b"\xc1", "unreadable"),
        (b"[" * 3, "unreadable"),
        (PACKED({"x": [1], "y": 1}) + b"\0", "unreadable"),
        (PACKED({1: 2}), "unreadable"),
        (PACKED([1, 2]), "incomplete"),
        (b'{"x": [1]}', "incomplete"),
        (b'{"x": [1, "2"], "y": 0}', "not numbers"),
        (b'{"x": "12", "y": 0}', "not numbers"),
        (b'{"x": [[1], [1, 2]], "y": 0}', "not numbers"),
        (b'{"x": [true], "y": 0}', "not numbers"),
        (b'{"x": [1], "y": null}', "not numbers"),
        (b'{"x": [1], "y": 99999999999999999999}', "not numbers"),
        (b'{"x": [1], "y": 9223372036854775808}', "not numbers"),
        (PACKED({"x": b"123", "y": 0}), "not numbers"),
        (PACKED({"x": [1], "y": b"\0\0\0\0"}), "not numbers"),
        (PACKED({"x": b"1234", "shape": [2], "y": 0}), "of a wrong shape"),
        (PACKED({"x": b"1234", "shape": [-1], "y": 0}), "of a wrong shape"),
        (PACKED({"x": b"1234", "shape": [1] * 17, "y": 0}), "of a wrong shape"),
        (PACKED({"x": b"1234", "shape": "1", "y": 0}), "of a wrong shape"),
        (PACKED({"x": bytes(RECORD_BYTES), "y": 0}), "too large"),
    ],
)
def test_broken_records_have_a_kind(record: bytes, kind: str) -> None:
    with pytest.raises(Broken) as caught:
        decode(record)
    assert caught.value.kind == kind


@given(record=st.binary(max_size=60) | st.binary(max_size=60).map(lambda rest: b"\x82\xa1x" + rest))
def test_no_bytes_do_worse_than_break(record: bytes) -> None:
    try:
        x, y = decode(record)
    except Broken:
        return
    assert x.dtype == np.float32
    assert y.dtype in (np.int64, np.float32)


def test_neighbours_gather_in_order_and_broken_ones_are_counted_and_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    tally = Skipped()
    records = [b'{"x": [1, 2], "y": 0}', b"?", b'{"x": [3, 4], "y": 1}', b"!", b'{"x": [5], "y": 1}']
    with caplog.at_level(logging.WARNING):
        chunks = gather([*records, b'{"x": [7], "y": 1.5}'], tally)
    assert [(chunk.x.tolist(), chunk.y.tolist()) for chunk in chunks] == [
        ([[1, 2], [3, 4]], [0, 1]),
        ([[5]], [1]),
        ([[7]], [1.5]),
    ]
    assert tally.counts == {"incomplete": 2}
    assert tally.total == 2
    assert len(caplog.records) == 1


def chunk(x: object, y: object) -> Chunk:
    targets = np.array(y)
    samples = np.array(x, np.float32)
    if targets.dtype.kind == "f":
        return Chunk(samples, targets.astype(np.float32))
    return Chunk(samples, targets.astype(np.int64))


def test_what_is_not_finite_is_left_out() -> None:
    tally = Skipped()
    good = Checks().admit(chunk([[1, 2], [np.nan, 2], [3, np.inf], [4, 5]], [1, 2, 3, 4]), tally)
    assert (good.x.tolist(), good.y.tolist()) == ([[1, 2], [4, 5]], [1, 4])
    assert tally.counts == {"not finite": 2}


def test_the_first_good_sample_settles_the_shape() -> None:
    checks, tally = Checks(), Skipped()
    assert len(checks.admit(chunk([[np.nan]], [0]), tally)) == 0
    assert len(checks.admit(chunk([[1, 2]], [0]), tally)) == 1
    assert len(checks.admit(chunk([[1, 2, 3]] * 3, [0] * 3), tally)) == 0
    assert len(checks.admit(chunk([[1, 2]], [[0, 1]]), tally)) == 0
    assert tally.counts == {"not finite": 1, "of another shape": 4}


def test_a_shape_may_be_demanded() -> None:
    checks, tally = Checks(shape=(3,)), Skipped()
    assert len(checks.admit(chunk([[1, 2]], [0]), tally)) == 0
    assert len(checks.admit(chunk([[1, 2, 3]], [0]), tally)) == 1


def test_classes_are_whole_and_below_their_number() -> None:
    tally = Skipped()
    good = Checks(classes=3).admit(chunk([[0]] * 5, [0.0, 2.0, 3.0, -1.0, 0.5]), tally)
    assert good.y.dtype == np.int64
    assert good.y.tolist() == [0, 2]
    assert tally.counts == {"of another target": 3}


def test_numbers_may_be_whole() -> None:
    checks, tally = Checks(targets="numbers"), Skipped()
    assert checks.admit(chunk([[0]], [3]), tally).y.dtype == np.float32
    assert checks.admit(chunk([[0]], [3.5]), tally).y.tolist() == [3.5]
    assert tally.total == 0

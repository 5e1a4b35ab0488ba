"""Messages of sensors, decoded, as their URI's options say."""

import json
import logging
import struct

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from edgeflock.client.data import messages as joining
from edgeflock.client.data.messages import FieldPaths, Target, decode
from edgeflock.client.data.reading import MessageReader
from edgeflock.client.data.records import RECORD_BYTES, Broken, Skipped
from edgeflock.client.data.uri import Uri

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
        got_x, got_y = both(record)
        assert got_x.dtype == np.float32
        assert got_x.tolist() == x
        assert got_y.dtype == (np.int64 if isinstance(y, int) else np.float32)
        assert got_y == y


def test_the_documented_bytes() -> None:
    x, y = both(bytes.fromhex("82 a1 78 c4 08 0000003f 0000803f a1 79 00"))
    assert (x.tolist(), y.tolist()) == ([0.5, 1], 0)


def test_shapes_and_targets_of_several_positions() -> None:
    x, y = both(msgpack.packb({"x": struct.pack("<6f", *range(6)), "shape": [2, 3], "y": [1, 0]}))
    assert x.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert y.tolist() == [1, 0]


PACKED = msgpack.packb


@pytest.mark.parametrize(
    ("record", "kind"),
    [
        (b"", "unreadable"),
        (b"{", "unreadable"),
        (b"{" * 100_000, "unreadable"),
        (b"\x81\xa1x\xdd\x00\x08\x00\x00" + b"\x90" * (1 << 19), "unreadable"),  # 30 MB of lists
        (b"\xc1", "unreadable"),
        (b"[" * 3, "unreadable"),
        (PACKED({"x": [1], "y": 1}) + b"\0", "unreadable"),
        (PACKED({1: 2}), "unreadable"),
        (b"{}", "incomplete: there is no x and no y"),
        (PACKED([1, 2]), "incomplete"),
        (b"[1,2,3]", "incomplete: a record is a map with x and y"),
        (
            b'{"temperature": 21, "shaking": 0.3, "state": "idle"}',
            "incomplete: there is no x and no y; it has temperature, shaking, state: choose with x= and y=, "
            "as in ?x=temperature,shaking&y=state",
        ),
        (
            b'{"data": {"a": 1}}',
            "incomplete: there is no x and no y; it has data: choose with x= and y=, as in ?x=a.b&y=a.c",
        ),
        (b"not json", "unreadable: the text is no JSON from character 1 on: 'not json'"),
        (b'{"x": 1 "y": 0}', "unreadable: the text is no JSON from character 9 on: '\"y\": 0}'"),
        (b'{"\xff', "unreadable: the text is no JSON from character 1 on: '{\"\ufffd'"),
        (b'{"x": [1, "2"], "y": 0}', "not numbers"),
        (b'{"x": "12", "y": 0}', "not numbers"),
        (b'{"x": [[1], [1, 2]], "y": 0}', "not numbers"),
        (b'{"x": [true], "y": 0}', "not numbers"),
        (b'{"x": [1], "y": "idle"}', "not numbers"),
        (b'{"x": [1], "y": 0, "key": [1]}', "of a wrong key"),
        (b'{"x": [1], "y": 0, "key": 1.5}', "of a wrong key"),
        (b'{"x": [1], "y": 0, "key": "' + b"k" * 201 + b'"}', "of a wrong key"),
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
        both(record)
    assert kind in (caught.value.kind, str(caught.value))


@given(record=st.binary(max_size=60) | st.binary(max_size=60).map(lambda rest: b"\x82\xa1x" + rest))
def test_no_bytes_do_worse_than_break(record: bytes) -> None:
    try:
        x, y = both(record)
    except Broken:
        return
    assert x.dtype == np.float32
    assert y.dtype in (np.int64, np.float32)


def both(record: bytes) -> tuple[NDArray[np.float32], Target]:
    """x and y of a message that has both."""
    said = decode(record, FieldPaths())
    assert said.x is not None
    assert said.y is not None
    return said.x, said.y


class Reading:
    """A Reader of a source with these options, by a clock that the test sets."""

    def __init__(self, options: str = "") -> None:
        self.now = 0.0
        self.tally = Skipped()
        self._reader = MessageReader(Uri.parse(f"some:?{options}"), self.tally, lambda: self.now)

    def read(self, *messages: bytes, at: str | None = None) -> list[tuple[object, object, object]]:
        chunks = self._reader.chunks((message, at) for message in messages)
        return [
            sample
            for chunk in chunks
            for sample in zip(chunk.x.tolist(), chunk.y.tolist(), chunk.keys, strict=True)
        ]


def test_neighbours_gather_in_order_and_broken_ones_are_counted_and_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    tally = Skipped()
    records = [b'{"x": [1, 2], "y": 0}', b"?", b'{"x": [3, 4], "y": 1}', b"!", b'{"x": [5], "y": 1}']
    with caplog.at_level(logging.WARNING):
        reader = MessageReader(Uri.parse("some:"), tally)
        chunks = reader.chunks((record, None) for record in [*records, b'{"x": [7], "y": 1.5}'])
    assert [(chunk.x.tolist(), chunk.y.tolist()) for chunk in chunks] == [
        ([[1, 2], [3, 4]], [0, 1]),
        ([[5]], [1]),
        ([[7]], [1.5]),
    ]
    assert tally.counts == {"unreadable": 2}
    assert tally.total == 2
    assert len(caplog.records) == 1


def test_devices_that_speak_otherwise_are_read_by_the_names_of_their_fields() -> None:
    reading = Reading("x=temperature,air.humidity&y=state&key=id&names=idle,running")
    message = {"temperature": 21.5, "air": {"humidity": 40}, "state": "running", "id": 7, "shape": "round"}
    dotted = {"temperature": 1, "air.humidity": 2, "state": 0}
    assert reading.read(json.dumps(message).encode(), json.dumps(dotted).encode()) == [
        ([21.5, 40], 1, "7"),
        ([1, 2], 0, None),
    ]
    for wrong in ({"temperature": 1, "state": 0}, {**message, "state": "asleep"}, {**message, "air": 3}):
        assert reading.read(json.dumps(wrong).encode()) == []
    assert reading.tally.counts == {"incomplete": 2, "of another target": 1}


def test_what_a_sample_is_called_at_its_source_counts_if_it_has_no_key_of_its_own() -> None:
    reading = Reading()
    assert reading.read(b'{"x": 1, "y": 0}', at="power/0@17") == [(1, 0, "power/0@17")]
    assert reading.read(b'{"x": 1, "y": 0, "key": "a"}', at="power/0@18") == [(1, 0, "a")]


# Targets that come later


def x(key: int, value: float = 1) -> bytes:
    return json.dumps({"key": key, "x": value}).encode()


def y(key: int, value: int = 0) -> bytes:
    return json.dumps({"key": key, "y": value}).encode()


def test_a_target_joins_its_sample_by_key_in_whatever_order_they_come() -> None:
    reading = Reading("join=60")
    assert reading.read(x(1, 10), x(2, 20), y(3, 3)) == []
    reading.now = 59
    assert reading.read(y(2, 2), x(3, 30), b'{"x": 5, "y": 5}') == [(20, 2, "2"), (30, 3, "3"), (5, 5, None)]
    reading.now = 60
    assert reading.read(y(1, 1)) == [(10, 1, "1")]
    assert reading.tally.total == 0


def test_a_half_waits_as_long_as_it_may_and_no_longer() -> None:
    reading = Reading("join=60")
    reading.read(x(1), y(2))
    reading.now = 60.5
    assert reading.read() == []
    assert reading.tally.counts == {"without its y": 1, "without its x": 1}
    assert reading.read(y(1)) == []


def test_of_a_half_that_came_twice_the_later_one_counts() -> None:
    reading = Reading("join=60")
    assert reading.read(x(1, 10), x(1, 11), y(1, 4)) == [(11, 4, "1")]
    assert reading.tally.counts == {"of a key in use": 1}


def test_halves_need_a_key_and_somebody_who_wants_them_joined() -> None:
    reading = Reading("join=60")
    assert reading.read(b'{"x": 1}', b'{"y": 1}', b'{"key": 1}') == []
    assert reading.tally.counts == {"incomplete": 3}
    apart = Reading()
    assert apart.read(x(1), y(1)) == []
    assert apart.tally.counts == {"incomplete": 2}
    # A place at the source is no key that the other half could have.
    assert Reading("join=60").read(b'{"x": 1}', b'{"y": 1}', at="p@1") == []


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 400), st.integers(0, 5)), max_size=300))
def test_halves_wait_in_bounded_memory_and_none_is_lost_uncounted(
    events: list[tuple[bool, int, int]],
) -> None:
    joiner = joining.Joining(10, tally := Skipped())
    bound = 8 * joining.OVERHEAD
    now, whole = 0.0, 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(joining, "JOIN_BYTES", bound)
        for is_x, key, pause in events:
            now += pause
            whole += len(joiner.join([decode(x(key) if is_x else y(key), FieldPaths())], now))
            assert joiner.octets <= bound
            assert joiner.octets >= joining.OVERHEAD * len(joiner)
    assert len(events) == 2 * whole + tally.total + len(joiner)

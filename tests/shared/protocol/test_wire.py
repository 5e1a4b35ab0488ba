"""Bytes <-> records: what is written comes back, and what is not known is refused."""

import math
from dataclasses import replace

import msgpack
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from edgeflock.shared.errors import Malformed, UnknownRecord
from edgeflock.shared.model.start import CONSTANT, NORMAL, UNIFORM, Filling, Start, Weights
from edgeflock.shared.protocol import wire
from edgeflock.shared.protocol.messages import (
    TAGS,
    Challenge,
    Credential,
    Goodbye,
    Hello,
    Model,
    Over,
    Pull,
    Receipt,
    Record,
    Refusal,
    Samples,
    SecureSum,
    Stop,
    Task,
    Telemetry,
    Update,
    Welcome,
)
from edgeflock.shared.protocol.wire import MAX_LEVEL, loss_of

whole_numbers = st.integers(0, (1 << 63) - 1)
single = st.floats(width=32, allow_nan=False)
texts = st.text(max_size=20)
octets = st.binary(max_size=40)
finite = st.floats(width=32, allow_nan=False, allow_infinity=False)
facts = st.dictionaries(texts, texts | st.integers(-(1 << 63), (1 << 64) - 1) | finite, max_size=5)
layouts = st.lists(st.tuples(texts, st.lists(whole_numbers, max_size=3)).map(list), max_size=3)
fillings = st.one_of(
    st.builds(Filling, st.just(CONSTANT), finite, st.just(0.0)),
    st.tuples(finite, finite).map(lambda ends: Filling(UNIFORM, min(ends), max(ends))),
    st.builds(Filling, st.just(NORMAL), finite, finite.map(abs)),
)
starts = st.builds(Start, whole_numbers, st.lists(fillings, max_size=3).map(tuple))
weights = st.builds(Weights, st.binary(min_size=32, max_size=32), whole_numbers, whole_numbers, st.booleans())

losses = st.integers(-MAX_LEVEL, MAX_LEVEL).map(loss_of)


@st.composite
def models(draw: st.DrawFn, least: int = 0) -> Model:
    """Of a version of `least` or above."""
    version = draw(st.integers(least, (1 << 63) - 1))
    base = draw(st.integers(0, version) | st.none())
    modes = draw(st.tuples(whole_numbers, whole_numbers) | st.just((3, 5)))
    return Model(version, base, *modes, draw(whole_numbers), draw(octets), draw(octets), draw(st.booleans()))


@st.composite
def receipts(draw: st.DrawFn) -> Receipt:
    version = draw(whole_numbers)
    return Receipt(draw(whole_numbers), version, draw(models(version) | st.none()), draw(octets))


records: st.SearchStrategy[Record] = st.one_of(
    st.builds(Hello, whole_numbers, texts, octets, facts, st.booleans()),
    st.builds(
        Welcome,
        protocol=whole_numbers,
        run=texts,
        model=texts,
        loss=texts,
        layout=layouts,
        start=starts | st.none(),
        weights=weights | st.none(),
        version=whole_numbers,
        sequence=whole_numbers,
        batch=whole_numbers,
        local_steps=whole_numbers,
        local_rate=single,
        select=single,
        balance=single,
        threshold=single,
        feedback=single,
        indices=whole_numbers,
        values=whole_numbers,
        frame_bytes=whole_numbers,
        alpha=single,
        beta=single,
        input=st.lists(whole_numbers, max_size=8).map(tuple) | st.none(),
    ),
    st.builds(Pull, whole_numbers | st.none(), whole_numbers),
    models(),
    st.builds(
        Update,
        sequence=whole_numbers,
        base=whole_numbers,
        index_mode=whole_numbers,
        value_mode=whole_numbers,
        count=whole_numbers,
        indices=octets,
        values=octets,
        loss=losses,
        samples=whole_numbers,
        pull=st.booleans(),
        facts=facts | st.none(),
        held=whole_numbers,
    ),
    receipts(),
    st.builds(Refusal, texts, texts, whole_numbers | st.none()),
    st.builds(Stop, texts),
    st.builds(Telemetry, facts=facts),
    st.builds(Goodbye, st.text(max_size=200)),
    st.builds(Credential, st.text(max_size=200)),
    st.builds(Challenge, octets, st.booleans()),
    st.builds(SecureSum, step=whole_numbers, round=octets, body=octets),
    st.builds(Samples, count=whole_numbers, octets=st.booleans(), x=octets, labels=st.booleans(), y=octets),
)


@given(record=records)
def test_every_record_comes_back(record: Record) -> None:
    assert wire.decode(wire.encode(record)) == record


def test_every_record_has_a_tag_of_its_own() -> None:
    assert list(TAGS) == [
        Hello, Welcome, Pull, Model, Update, Receipt, Refusal, Stop, Samples, Task, Over, Telemetry,
        Goodbye, Credential, Challenge, SecureSum,
    ]  # fmt: skip
    assert list(TAGS.values()) == list(range(1, 17))


def test_an_update_byte_by_byte() -> None:
    update = Update(300, 7, 3, 5, 2, b"ab", b"xyz", 0.5, 10, True)
    expected = b"\x98\x05\xcd\x01\x2c\x07\x02\xc4\x02ab\xc4\x03xyz\xf0\x0a"
    assert wire.encode(update) == expected
    assert wire.encode(replace(update, held=7)) == b"\x99" + expected[1:] + b"\x07"
    other = replace(update, index_mode=2, value_mode=3, pull=False)
    assert wire.encode(other) == b"\x9d" + expected[1:] + b"\x00\x02\x03\xc0\xc2"


def test_last_fields_that_say_nothing_are_left_out_and_may_be_written() -> None:
    plain = [5, 1, 1, 1, b"", b"", 0, 1]
    update = Update(1, 1, 3, 5, 1, b"", b"", 1.0, 1, True)
    for last in ([], [0], [0, 3], [0, 3, 5], [0, 3, 5, None], [0, 3, 5, None, True]):
        assert wire.decode(msgpack.packb([*plain, *last])) == update
    assert len(msgpack.unpackb(wire.encode(update))) == 8
    assert msgpack.unpackb(wire.encode(replace(update, held=7))) == [*plain, 7]
    assert msgpack.unpackb(wire.encode(replace(update, facts={"a": 1}))) == [*plain, 0, 3, 5, {"a": 1}]
    model = [4, 9, 2]
    for more in ([], [0, b""], [0, b"", b"", True, 3, 5]):
        assert wire.decode(msgpack.packb([*model, *more])) == Model(9, 7, 3, 5, 0, b"", b"", True)
    assert wire.decode(msgpack.packb([6, 1, 2, None])) == wire.decode(msgpack.packb([6, 1, 2]))


def test_a_receipt_holds_its_model_as_a_record() -> None:
    receipt = Receipt(1, 2, Model(2, None, 0, 0, 1, b"", b"abcd"))
    assert wire.encode(receipt) == b"\x94\x06\x01\x02\x98\x00\xc0\x01\xc4\x00\xc4\x04abcd\xc2\x00\x00"
    nothing_new = Receipt(1, 200, Model(203, 198, 3, 5, 0, b"", b"", True))
    assert wire.encode(nothing_new) == b"\x94\x06\x01\xcc\xc8\x92\x03\x05"
    assert wire.decode(wire.encode(nothing_new)) == nothing_new
    assert wire.encode(Receipt(1, 2, None)) == b"\x93\x06\x01\x02"


@pytest.mark.parametrize(
    ("loss", "level"),
    [(1.0, 0), (2.0, 16), (0.5, -16), (0.25, -32), (2.3, 19), (0.0, -2400), (-1.0, -2400), (1e300, 2400)],
)
def test_a_loss_travels_in_sixteenths_of_an_octave(loss: float, level: int) -> None:
    update = Update(1, 1, 3, 5, 1, b"", b"", loss, 1, True)
    assert msgpack.unpackb(wire.encode(update))[6] == level
    decoded = wire.decode(wire.encode(update))
    assert isinstance(decoded, Update)
    if abs(level) < MAX_LEVEL:
        assert abs(decoded.loss / loss - 1) < 0.0219


@pytest.mark.parametrize("loss", [float("nan"), float("inf")])
def test_a_loss_that_is_no_number_is_none(loss: float) -> None:
    octets = wire.encode(Update(1, 1, 3, 5, 1, b"", b"", loss, 1, True))
    assert msgpack.unpackb(octets)[6] is None
    decoded = wire.decode(octets)
    assert isinstance(decoded, Update)
    assert math.isnan(decoded.loss)


def assert_record_or_refusal(octets: bytes) -> None:
    try:
        record = wire.decode(octets)
    except (Malformed, UnknownRecord):
        return
    assert type(record) in TAGS


@given(octets=st.binary(max_size=80))
@example(octets=b"")
@example(octets=b"\xc1")
@example(octets=b"\x91\xd6\xff\x00\x00\x00\x00")  # a timestamp
@example(octets=b"\x91\xc7\x00\x05")  # an extension
@example(octets=b"\xdd\xff\xff\xff\xff")  # announces 4 G elements
@example(octets=b"\xc6\xff\xff\xff\xff\x00")  # announces 4 GB
@example(octets=b"\x81\x91\x01\x02")  # a map with a list for a key
@example(octets=b"\x92\x08\xa1\xff")  # not UTF-8
def test_any_bytes(octets: bytes) -> None:
    assert_record_or_refusal(octets)


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.floats()
    | st.binary(max_size=5)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=12,
)


@given(tag=st.integers(-1, 10), fields=st.lists(plain, max_size=12))
def test_any_fields(tag: int, fields: list[object]) -> None:
    assert_record_or_refusal(msgpack.packb([tag, *fields]))


@given(record=records, data=st.data())
def test_any_other_field(record: Record, data: st.DataObject) -> None:
    """A record with one field replaced, dropped or repeated."""
    array = msgpack.unpackb(wire.encode(record))
    at = data.draw(st.integers(0, len(array) - 1))
    replacement = data.draw(st.lists(plain, max_size=2))
    array[at : at + 1] = replacement
    assert_record_or_refusal(msgpack.packb(array))


@given(record=records, data=st.data())
def test_a_part_of_a_record_is_refused(record: Record, data: st.DataObject) -> None:
    whole = wire.encode(record)
    for octets in (whole[: data.draw(st.integers(0, len(whole) - 1))], whole + b"\x00"):
        with pytest.raises(Malformed):
            wire.decode(octets)


@pytest.mark.parametrize("depth", [3, 100, 300, 500, 1000, 1024, 5000])
@pytest.mark.parametrize(
    ("head", "tail"),
    [(b"\x94\x06\x00\x00", b"\xc0"), (b"\x91", b"\x00"), (b"\x92\x03\x91", b"\x00"), (b"\x81\xa1a", b"\x00")],
    ids=["receipts in receipts", "lists", "pulls of lists", "maps"],
)
def test_records_nested_too_deep_are_refused(head: bytes, tail: bytes, depth: int) -> None:
    with pytest.raises(Malformed):
        wire.decode(head * depth + tail)


@pytest.mark.parametrize("depth", [3, 100, 300, 500, 900, 1020])
@pytest.mark.parametrize("tag", [3, 5, 8])
def test_a_field_nested_too_deep_is_refused(tag: int, depth: int) -> None:
    fields = {3: 1, 5: 7, 8: 1}[tag]
    with pytest.raises(Malformed):
        wire.decode(bytes([0x90 + fields + 1, tag]) + b"\x91" * depth + b"\x00" + b"\x00" * (fields - 1))


@pytest.mark.parametrize(
    ("array", "message"),
    [
        ([3], "Pull has 4 fields, not 0"),
        ([3, 1, 2, 0, 0, 0], "Pull has 4 fields, not 5"),
        ([3, -1], "Pull.base must be an integer"),
        ([3, 1 << 63], "Pull.base must be an integer"),
        ([3, True], "Pull.base must be an integer"),
        ([3, 1.0], "Pull.base must be an integer"),
        ([3, "1"], "Pull.base must be an integer"),
        ([8, b"text"], "Stop.reason must be str, not bytes"),
        ([8, None], "Stop.reason must be str, not NoneType"),
        ([1, 1, "a", "digest", {}], "Hello.layout must be bytes, not str"),
        ([1, 1, "a", b"", {"a": None}], "Hello.facts must map names"),
        ([1, 1, "a", b"", {"a": [1]}], "Hello.facts must map names"),
        ([1, 1, "a", b"", {"a": True}], "Hello.facts must map names"),
        ([1, 1, "a", b"", {"a": float("inf")}], "Hello.facts must map names"),
        ([1, 1, "a", b"", {"a": float("nan")}], "Hello.facts must map names"),
        ([1, 1, "a", b"", []], "Hello.facts must map names"),
        ([1, 1, "a", b"", {str(n): n for n in range(33)}], "Hello.facts has at most 32 entries"),
        ([1, 1, "a", b"", {"a" * 101: 1}], "Hello.facts has at most .* of at most 100 characters"),
        ([1, 1, "a", b"", {"a": "b" * 101}], "Hello.facts has at most .* of at most 100 characters"),
        ([6, 1, 1, 5], "Receipt.model must be the fields of a Model or nil, not 5"),
        ([6, 1, 1, []], "Receipt.model.version must be an integer"),
        ([6, 1, 1, [None, 0]], "Receipt.model.version must be an integer"),
        ([6, 1, 1, [-1, 0]], "Receipt.model.version must be an integer"),
        ([6, 1, 1, [4]], "Model has 8 fields, not 1"),
        ([6, 1, 1, [4, 6]], "Model.behind must be at most its version, 5, not 6"),
        ([6, 1, (1 << 63) - 1, [1, 0]], "Model.version must be an integer"),
        ([4, 1, 2], "Model.behind must be at most its version, 1, not 2"),
        ([5, 1, 1, 1, b"", b"", "x", 1], "Update.loss must be an integer of -2400 to 2400 or nil"),
        ([5, 1, 1, 1, b"", b"", 0.5, 1], "Update.loss must be an integer of -2400 to 2400 or nil"),
        ([5, 1, 1, 1, b"", b"", 2401, 1], "Update.loss must be an integer of -2400 to 2400 or nil"),
        ([5, 1, 1, 1, b"", b"", 1, 1, 0, 3, 5, None, 1], "Update.pull must be bool, not int"),
        ([], "a record is a msgpack array that begins with its type tag"),
        (["Pull", 1], "a record is a msgpack array that begins with its type tag"),
        ([True, 1], "a record is a msgpack array that begins with its type tag"),
        ({"a": 1}, "a record is a msgpack array that begins with its type tag"),
        (7, "a record is a msgpack array that begins with its type tag"),
        ([1, 1, "a", b"", {str(n): n for n in range(65)}], "is not one whole msgpack object"),
    ],
)
def test_the_refusal_says_what_is_wrong(array: object, message: str) -> None:
    with pytest.raises(Malformed, match=message):
        wire.decode(msgpack.packb(array))


@pytest.mark.parametrize(
    ("start", "message"),
    [
        ([], "Welcome.start must be"),
        ([1, [[3, 0.0, 0.0]]], r"Welcome.start\[0\] is of kind 3"),
        ([1, [[0, 0.0, 0.0], [2, 0.0, float("inf")]]], r"Welcome.start\[1\] must have finite"),
        ([1, [[1, 0.5, 0.25]]], r"Welcome.start\[0\] is uniform from 0.5 up to 0.25"),
    ],
)
def test_a_welcome_with_a_start_that_is_none(start: object, message: str) -> None:
    array = [2, 2, "run", "model", "mse", [], start, *[1] * 4, *[0.5] * 5, *[1] * 3, 0.5, 0.5]
    assert len(array) == 21
    with pytest.raises(Malformed, match=message):
        wire.decode(msgpack.packb(array))
    assert isinstance(wire.decode(msgpack.packb([*array[:6], None, *array[7:]])), Welcome)


@pytest.mark.parametrize(
    "weights",
    [[], [bytes(32), 1, 0], ["a" * 32, 1, 0, True], [bytes(31), 1, 0, True], [bytes(32), -1, 0, True],
     [bytes(32), 1, 0, 1], [bytes(32), True, 0, True], 5],
)  # fmt: skip
def test_a_welcome_with_weights_that_are_none(weights: object) -> None:
    array: list[object] = [2, 2, "run", "model", "mse", [], None, *[1] * 4, *[0.5] * 5, *[1] * 3, 0.5, 0.5]
    with pytest.raises(Malformed, match="Welcome.weights must"):
        wire.decode(msgpack.packb([*array, weights]))
    good = Weights(bytes(32), 1, 0, load=True)
    for whole, read in (([*array, list(good)], good), ([*array, None], None), (array, None)):
        welcome = wire.decode(msgpack.packb(whole))
        assert isinstance(welcome, Welcome)
        assert welcome.weights == read


@pytest.mark.parametrize("shape", ["28", {"a": 1}, [1, "2"], [-1], [True], [[3]], [2.0], 5])
def test_a_welcome_with_an_input_that_is_none(shape: object) -> None:
    array: list[object] = [2, 2, "run", "model", "mse", [], None, *[1] * 4, *[0.5] * 5, *[1] * 3, 0.5, 0.5]
    array += [None, b"", False, None, False, 0.0, 0, 0.0]
    with pytest.raises(Malformed, match="Welcome.input must be"):
        wire.decode(msgpack.packb([*array, shape]))
    welcome = wire.decode(msgpack.packb([*array, [3, 32, 32]]))
    assert isinstance(welcome, Welcome)
    assert welcome.input == (3, 32, 32)


@pytest.mark.parametrize("tag", [-1, 0, 17, 1 << 40])
def test_an_unknown_record(tag: int) -> None:
    with pytest.raises(UnknownRecord, match=f"record type {tag} is unknown"):
        wire.decode(msgpack.packb([tag, 1]))


@pytest.mark.parametrize(
    ("payload", "framed"),
    [(0, 2), (125, 127), (126, 130), (65535, 65539), (65536, 65546), (1 << 20, (1 << 20) + 10)],
)
def test_framed_size_is_that_of_rfc_6455(payload: int, framed: int) -> None:
    assert wire.framed_size(payload, masked=False) == framed
    assert wire.framed_size(payload, masked=True) == framed + 4


@given(record=records)
def test_the_size_is_that_of_the_encoding(record: Record) -> None:
    assert wire.size(record) == len(wire.encode(record))


# msgpack's length of a byte string takes 1, 2 or 4 bytes more; past 65,535 the values are not encoded.
LENGTHS = [0, 255, 256, (1 << 16) - 1, 1 << 16, (1 << 16) + 1, 4 * 38_282, (1 << 20) + 3]


@pytest.mark.parametrize("length", LENGTHS)
def test_the_size_of_what_is_large(length: int) -> None:
    values = bytes(length)
    model = Model(1 << 40, None, 0, 0, length, b"", values)
    difference = Model(1 << 41, 6, 2, 0, length, bytes(length // 8), values)
    update = Update(1, 2, 0, 0, length, b"", values, 0.5, 10, True)
    for record in (model, difference, Receipt(1, 2, model), Receipt(1, 2, difference), update):
        assert wire.size(record) == len(wire.encode(record))

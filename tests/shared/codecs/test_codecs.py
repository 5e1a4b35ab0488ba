"""The battery of tests/laws.py over every index coding and every value coding."""

import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from edgeflock.shared.codecs import compiled_golomb, golomb, grid, sparse, values
from edgeflock.shared.codecs.compiled_entries import SCALE_MODE
from edgeflock.shared.errors import IndexMalformed, IndexRepeated, IndexUnsorted, WrongDtype
from edgeflock.shared.model.layout import Layout
from tests import laws
from tests.laws import INDEX_CODINGS, VALUE_CODINGS, Counts, IndexCoding, Indices, ValueCoding, Values

every_index_coding = pytest.mark.parametrize("coding", INDEX_CODINGS.values(), ids=INDEX_CODINGS.keys())
every_value_coding = pytest.mark.parametrize("coding", VALUE_CODINGS.values(), ids=VALUE_CODINGS.keys())


@st.composite
def index_sets(draw: st.DrawFn) -> tuple[Indices, int]:
    """(strictly increasing indices, size): few of many, many of few, none, all, and runs at either end."""
    size = draw(st.one_of(st.integers(1, 300), st.integers(1, (1 << 32) - 1)))
    chosen = draw(
        st.one_of(
            st.sets(st.integers(0, size - 1), max_size=50),
            st.integers(0, min(size, 300)).map(lambda count: set(range(count))),
            st.integers(0, min(size, 300)).map(lambda count: set(range(size - count, size))),
        )
    )
    return np.array(sorted(chosen), np.int64), size


magnitudes = st.one_of(
    st.sampled_from([0.0, 1.0, 65504.0, 65520.0]), st.floats(2**-16, 2**16, width=32), st.floats(1e-30, 1e30)
)
signed = st.builds(math.copysign, magnitudes, st.sampled_from([1, -1]))


@st.composite
def tensors(draw: st.DrawFn) -> tuple[Values, Counts]:
    """(finite values, how many each tensor has): tensors with none, one or several."""
    parts = draw(st.lists(st.lists(signed, max_size=12), min_size=1, max_size=5))
    numbers = np.array([number for part in parts for number in part], np.float32)
    return numbers, np.array([len(part) for part in parts], np.int64)


@every_index_coding
@given(given_set=index_sets())
@example(given_set=(np.zeros(0, np.int64), 1))
@example(given_set=(np.zeros(1, np.int64), 1))
@example(given_set=(np.array([(1 << 31) - 1]), 1 << 31))
@example(given_set=(np.array([(1 << 32) - 2]), (1 << 32) - 1))
@example(given_set=(np.arange(1000), 1000))
def test_index_laws(coding: IndexCoding, given_set: tuple[Indices, int]) -> None:
    indices, size = given_set
    laws.indices_come_back(coding, indices, size)
    laws.last_index_is_held_against_the_size(coding, indices, size)


@every_index_coding
@given(given_set=index_sets())
@example(given_set=(np.zeros(0, np.int64), 7))
def test_no_part_of_an_index_stream_passes(coding: IndexCoding, given_set: tuple[Indices, int]) -> None:
    laws.no_part_of_a_stream_passes(coding, *given_set)


garbage = st.one_of(
    st.binary(max_size=60),
    # A small Golomb parameter first, so that more than the first byte gets read.
    st.builds(lambda head, tail: bytes([head]) + tail, st.integers(1, 127), st.binary(max_size=60)),
)
sizes = st.sampled_from([1, 100, 1 << 20, (1 << 63) - 1])


@every_index_coding
@given(octets=garbage, count=st.one_of(st.integers(0, 100), st.integers(0, (1 << 63) - 1)), size=sizes)
def test_garbage_is_refused_or_valid(coding: IndexCoding, octets: bytes, count: int, size: int) -> None:
    laws.assert_refused_or_valid(coding, octets, count, size)


def truthful_count(octets: bytes) -> int:
    """How many indices a stream with one-byte planes could hold: the ones after its first byte."""
    return sum(octet.bit_count() for octet in octets[1:])


@given(octets=garbage, count=st.integers(0, 40), size=sizes)
@example(octets=b"\x01\x00", count=0, size=1)
@example(octets=b"\x02\x00\x80", count=1, size=1)
def test_the_golomb_decoders_agree_on_garbage(octets: bytes, count: int, size: int) -> None:
    numpy, compiled = INDEX_CODINGS["golomb-numpy"], INDEX_CODINGS["golomb-compiled"]
    for announced in (count, truthful_count(octets)):
        assert laws.outcome(numpy, octets, announced, size) == laws.outcome(compiled, octets, announced, size)


@given(given_set=index_sets())
@example(given_set=(np.zeros(0, np.int64), 1))
@example(given_set=(np.array([(1 << 32) - 2]), (1 << 32) - 1))
def test_the_golomb_encoders_agree(given_set: tuple[Indices, int]) -> None:
    assert golomb.encode_compiled(compiled_golomb, *given_set) == golomb.encode_numpy(*given_set)


@pytest.mark.parametrize("share", [0.9, 0.5, 0.2, 0.05, 0.007])
@pytest.mark.parametrize("clustered", [False, True])
def test_long_golomb_streams_have_the_octets_of_numpy(share: float, clustered: bool) -> None:
    size, chances = 300_000, np.random.default_rng(0).random(300_000)
    if clustered:
        chances *= np.linspace(0.1, 8, size) ** 2
    indices = np.flatnonzero(chances < share)
    octets = golomb.encode(indices, size)
    assert octets == golomb.encode_numpy(indices, size)
    for decode in (golomb.decode, golomb.decode_numpy):
        assert np.array_equal(decode(octets, indices.size), indices)
    with pytest.raises(IndexMalformed, match=r"cut short|unary plane"):
        golomb.decode(octets[:-1], indices.size)


@pytest.mark.parametrize("indices", [[1, 0], [5, 3, 4], [-1, 2], [0, 0]])
def test_the_compiled_golomb_encoder_refuses_what_does_not_increase(indices: list[int]) -> None:
    with pytest.raises(ValueError, match="strictly increasing"):
        golomb.encode_compiled(compiled_golomb, np.array(indices), 9)


def test_golomb_loads_no_compiler() -> None:
    """A device has no use for numba: loading it stops its event loop for seconds."""
    script = """
import sys, numpy
from edgeflock.shared.codecs import golomb
octets = golomb.encode(numpy.arange(0, 9000, 3), 9000)
golomb.decode(octets, 3000)
assert "numba" not in sys.modules and golomb.kernels is None
"""
    subprocess.run([sys.executable, "-c", script], check=True)


@given(given_set=index_sets(), data=st.data())
def test_the_golomb_decoders_agree_on_damaged_streams(
    given_set: tuple[Indices, int], data: st.DataObject
) -> None:
    indices, size = given_set
    damaged = bytearray(sparse.encode(indices, size))
    at = data.draw(st.integers(0, len(damaged) - 1))
    damaged[at] ^= 1 << data.draw(st.integers(0, 7))
    outcomes = [
        laws.outcome(INDEX_CODINGS[name], bytes(damaged), indices.size, size)
        for name in ("golomb-numpy", "golomb-compiled")
    ]
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("share", [0.1, 0.01, 0.001])
@pytest.mark.parametrize("size", [211_690, 10_000_000])
def test_golomb_is_within_two_percent_of_the_entropy(size: int, share: float) -> None:
    count = round(share * size)
    chosen = np.sort(np.random.default_rng(0).choice(size, count, replace=False, shuffle=False))
    choices = math.lgamma(size + 1) - math.lgamma(count + 1) - math.lgamma(size - count + 1)  # ln C(P, k)
    bound = choices / math.log(2)
    stream = sparse.encode(chosen, size)
    assert 8 * len(stream) <= 1.02 * bound
    assert np.array_equal(INDEX_CODINGS["golomb-compiled"].decode(stream, count, size), chosen)


@pytest.mark.parametrize("parameter", [1, 2, 3, 4, 5, 8, 1000, 1 << 31])
def test_golomb_stream_as_documented(parameter: int) -> None:
    """A stream written bit by bit from the module's description decodes with both decoders."""
    gaps = [0, parameter - 1, parameter, 2 * parameter + parameter // 2]
    octets = golomb_by_hand(gaps, parameter)
    expected = [sum(gaps[: i + 1]) + i for i in range(len(gaps))]
    for name in ("golomb-numpy", "golomb-compiled"):
        assert INDEX_CODINGS[name].decode(octets, len(gaps), 1 << 40).tolist() == expected


def golomb_by_hand(gaps: list[int], parameter: int) -> bytes:
    """The planes of shared/codecs/golomb.py's docstring, as strings of bits."""
    width = (parameter - 1).bit_length()
    cutoff = (1 << width) - parameter
    prefix = extra = unary = ""
    for quotient, remainder in (divmod(gap, parameter) for gap in gaps):
        if width:
            short = remainder < cutoff
            field = remainder if short else (remainder + cutoff) >> 1
            prefix += f"{field:0{width - 1}b}" if width > 1 else ""
            extra += "" if short else str((remainder + cutoff) & 1)
        unary += "0" * quotient + "1"
    head = b""
    while parameter > 127:
        head += bytes([parameter & 127 | 128])
        parameter >>= 7
    return head + bytes([parameter]) + b"".join(plane_bytes(plane) for plane in (prefix, extra, unary))


def plane_bytes(plane: str) -> bytes:
    size = (len(plane) + 7) // 8
    return int(plane.ljust(8 * size, "0") or "0", 2).to_bytes(size, "big")


def test_raw_indices_are_little_endian_words() -> None:
    assert sparse.encode(np.array([1, 258]), 300, sparse.RAW) == b"\x01\x00\x00\x00\x02\x01\x00\x00"


@pytest.mark.parametrize(
    ("octets", "count", "mode", "refusal"),
    [
        (b"\x01\x00\x00\x00\x01\x00\x00\x00", 2, sparse.RAW, IndexRepeated),
        (b"\x02\x00\x00\x00\x01\x00\x00\x00", 2, sparse.RAW, IndexUnsorted),
        (b"\x02\x00\x00\x00", 2, sparse.RAW, WrongDtype),
        (b"", 0, 3, WrongDtype),
        (b"", 0, sparse.GOLOMB, IndexMalformed),
        (b"\x00", 0, sparse.GOLOMB, IndexMalformed),
        (b"\x80\x80\x80\x80\x80\x01", 0, sparse.GOLOMB, IndexMalformed),
        (b"\xff\xff\xff\xff\x0f\x80", 1, sparse.GOLOMB, IndexMalformed),
        (b"\x01\x80", 1 << 62, sparse.GOLOMB, IndexMalformed),
    ],
)
def test_bad_index_streams(octets: bytes, count: int, mode: int, refusal: type[Exception]) -> None:
    with pytest.raises(refusal):
        sparse.decode(octets, count, 1 << 40, mode)
    if mode == sparse.GOLOMB:
        with pytest.raises(refusal):
            INDEX_CODINGS["golomb-compiled"].decode(octets, count, 1 << 40)


@every_value_coding
@given(tensor_values=tensors())
@example(tensor_values=(np.zeros(0, np.float32), np.zeros(1, np.int64)))
@example(tensor_values=(np.zeros(3, np.float32), np.array([1, 0, 2])))
def test_value_laws(coding: ValueCoding, tensor_values: tuple[Values, Counts]) -> None:
    numbers, counts = tensor_values
    laws.size_is_as_announced(coding, numbers, counts)
    laws.values_come_back(coding, numbers, counts)
    laws.coding_again_changes_nothing(coding, numbers, counts)
    laws.only_the_announced_length_passes(coding, numbers, counts)


@pytest.mark.parametrize("mode", [coding.mode for coding in values.CODINGS.values()], ids=values.CODINGS)
@given(data=st.data(), counts=st.lists(st.integers(0, 9), min_size=1, max_size=5))
def test_decoders_agree_on_updates_with_any_values(mode: int, data: st.DataObject, counts: list[int]) -> None:
    """Values of the right length or nearly, NaN and infinity among them."""
    layout = Layout.from_shapes(
        [*((str(t), (count + 1,)) for t, count in enumerate(counts)), ("nothing", (0,))]
    )
    chosen = np.array(
        [t + sum(counts[:t]) + i for t in range(len(counts)) for i in range(counts[t])], np.int64
    )
    assert layout.counts(chosen).tolist() == [*counts, 0]
    coding = next(coding for coding in values.CODINGS.values() if coding.mode == mode)
    size = coding.size(chosen.size, sum(1 for count in counts if count))
    size = max(0, size + data.draw(st.sampled_from([0, 0, 0, 0, -1, 1])))
    octets = data.draw(st.binary(min_size=size, max_size=size))
    if mode == SCALE_MODE:
        negative = data.draw(st.lists(st.booleans(), min_size=chosen.size, max_size=chosen.size))
        signed = grid.encode(chosen, np.array(negative, np.bool_), layout)
        assume(signed is not None)
        indices, index_mode = signed or b"", sparse.GRID
    else:
        indices, index_mode = sparse.encode(chosen, layout.size), sparse.GOLOMB
    laws.decoders_agree(laws.update_of(indices, chosen.size, octets, mode, index_mode), layout)


@given(
    indices=garbage,
    octets=st.binary(max_size=40),
    count=st.integers(0, 12),
    mode=st.integers(0, 6),
    index_mode=st.sampled_from([sparse.GOLOMB, sparse.GRID]),
    sizes_of_tensors=st.lists(st.integers(1, 40), min_size=1, max_size=4),
)
@example(
    indices=b"\x01\x00", octets=bytes(16), count=0, mode=3, index_mode=sparse.GOLOMB, sizes_of_tensors=[1]
)
def test_decoders_agree_on_garbage(
    indices: bytes, octets: bytes, count: int, mode: int, index_mode: int, sizes_of_tensors: list[int]
) -> None:
    layout = Layout.from_shapes((str(t), (size,)) for t, size in enumerate(sizes_of_tensors))
    laws.decoders_agree(laws.update_of(indices, count, octets, mode, index_mode), layout)


@every_value_coding
def test_value_laws_for_a_large_gradient(coding: ValueCoding) -> None:
    """The largest hundredth of a normal gradient, in tensors whose sizes differ as layers' do."""
    counts = np.array([3, 50_000, 1, 0, 20_001], np.int64)
    numbers = np.random.default_rng(1).standard_normal(counts.sum())
    numbers = (np.sign(numbers) * (2.6 + np.abs(numbers)) * np.repeat([1, 1e-4, 1, 1, 1e3], counts)).astype(
        np.float32
    )
    laws.size_is_as_announced(coding, numbers, counts)
    laws.values_come_back(coding, numbers, counts)
    laws.coding_again_changes_nothing(coding, numbers, counts)


def test_codebook_levels_are_nearly_the_best_eight() -> None:
    """The squared error stays within a third of what Lloyd's algorithm reaches when it runs to its end."""
    counts = np.array([20_000, 700], np.int64)
    numbers = np.random.default_rng(2).exponential(1, counts.sum()).astype(np.float32) + np.float32(1)
    coding = VALUE_CODINGS["codebook4"]
    coded = coding.decode(coding.encode(numbers, counts), counts)
    parts = laws.per_tensor(numbers, counts)
    relative = np.concatenate([part / part.mean() for part in parts])
    levels = np.quantile(relative, (np.arange(8) + 0.5) / 8)
    for _ in range(300):
        nearest = np.abs(relative[:, np.newaxis] - levels).argmin(axis=1)
        levels = np.array([relative[nearest == level].mean() for level in range(8)])
    best = np.square(relative - levels[nearest]).mean()
    reached = [
        np.square((exact - approximate) / exact.mean())
        for exact, approximate in zip(parts, laws.per_tensor(coded, counts), strict=True)
    ]
    assert np.concatenate(reached).mean() <= 4 / 3 * best


def test_modes_are_distinct_and_an_unknown_one_is_refused() -> None:
    assert {name: coding.mode for name, coding in values.CODINGS.items()} == {
        "f32": 0,
        "f16": 1,
        "int8": 2,
        "codebook4": 3,
        "sign": 4,
        "scale": 5,
    }
    with pytest.raises(WrongDtype, match="mode 6 is unknown"):
        values.decode(b"", np.zeros(1, np.int64), 6)


def test_scales_are_eighths_of_octaves() -> None:
    """(e - 192) / 8 octaves; 0 for nothing, or too little."""
    numbers = np.array([1, -1, 2**-0.125, 0.25, -0.75, 2**-23.875, 1e-9, 0, 1e9], np.float32)
    counts = np.array([2, 1, 0, 2, 1, 1, 1, 1])
    octets = values.encode(numbers, counts, "scale")
    assert list(octets) == [192, 191, 184, 1, 0, 0, 255]
    expected = [1, 1, 2**-0.125, 0.5, 0.5, 2**-23.875, 0, 0, 2**7.875]
    assert values.decode(octets, counts, 5).tolist() == np.array(expected, np.float32).tolist()


def test_a_layout_counts_the_values_of_its_tensors() -> None:
    """The counts that codings take are those of the layout, also at a tensor's first and last index."""
    layout = Layout.from_shapes([("a", (2, 2)), ("none", (0,)), ("b", (3,)), ("c", ())])
    assert layout.counts(np.array([0, 3, 4, 6, 7])).tolist() == [2, 0, 2, 1]
    assert layout.counts(None).tolist() == [4, 0, 3, 1]
    assert layout.counts(np.zeros(0, np.int64)).tolist() == [0, 0, 0, 0]

"""A whole model in a file: the same bytes back, shorter, and nothing that is not what was announced."""

import tracemalloc
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeflock.shared.codecs import packed, values
from edgeflock.shared.errors import WrongDtype

MODES = {name: values.CODINGS[name].mode for name in ("f32", "f16", "int8")}
COUNTS = np.array([20_000, 4_001])


@given(st.sampled_from([(0, 4), (1, 2), (2, 1)]), st.binary(max_size=300))
def test_the_same_bytes_come_back(kind: tuple[int, int], octets: bytes) -> None:
    mode, width = kind
    octets = octets[: len(octets) // width * width]
    file = packed.pack(octets, mode)
    assert packed.unpack(file, mode, len(octets)) == octets
    assert len(file) <= packed.max_size(len(octets))


@pytest.mark.parametrize(("name", "most"), [("f32", 0.86), ("f16", 0.88), ("int8", 0.9)])
def test_numbers_that_are_alike_become_shorter(name: str, most: float) -> None:
    theta = np.random.default_rng(0).standard_normal(COUNTS.sum()).astype(np.float32) / 30
    octets = values.encode(theta, COUNTS, name)
    assert len(packed.pack(octets, MODES[name])) < most * len(octets)


def test_numbers_that_were_rounded_become_much_shorter() -> None:
    """Weights that come from bfloat16: half of each number is nothing."""
    theta = np.random.default_rng(0).standard_normal(COUNTS.sum()).astype(np.float32)
    octets = (theta.view(np.uint32) & 0xFFFF0000).tobytes()
    assert len(packed.pack(octets, MODES["f32"])) < 0.4 * len(octets)


def test_noise_grows_no_more_than_is_said() -> None:
    noise = np.random.default_rng(0).bytes(100_000)
    assert len(packed.pack(noise, MODES["int8"])) <= packed.max_size(len(noise)) < 1.002 * len(noise)


GOOD = packed.pack(bytes(range(240)), 0)
WRONG = {
    "nothing": b"",
    "cut short": GOOD[:-1],
    "something behind": GOOD + b"\0",
    "no zlib stream": b"no" + GOOD[2:],
    "too few": packed.pack(bytes(236), 0),
    "too many": packed.pack(bytes(244), 0),
}


@pytest.mark.parametrize("file", WRONG.values(), ids=WRONG.keys())
def test_anything_else_is_refused(file: bytes) -> None:
    with pytest.raises(WrongDtype, match="the packed model"):
        packed.unpack(file, 0, 240)


def test_a_mode_that_models_do_not_travel_in_is_refused() -> None:
    with pytest.raises(WrongDtype, match=r"value mode 4; known are \[0, 1, 2\]"):
        packed.unpack(GOOD, 4, 240)


def test_a_file_that_swells_takes_no_memory() -> None:
    bomb = zlib.compress(bytes(1 << 27))
    tracemalloc.start()
    with pytest.raises(WrongDtype):
        packed.unpack(bomb, 0, 240)
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()

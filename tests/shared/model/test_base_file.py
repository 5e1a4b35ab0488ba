"""The file of a frozen base: float32, or matrices in eight bits."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from edgeflock.shared.model.base_file import BaseFile, Vector, decode, encode
from edgeflock.shared.model.layout import Layout

LAYOUT = Layout.from_shapes([("w", (2, 3)), ("bias", (2,)), ("kernel", (1, 2, 2)), ("mean", (1,), True)])
THETA = np.array([127, -1, 0.5, 0, 0, 0, 3, 4, -254, 2, 1, 0, 9], np.float32)


def test_matrices_have_a_scale_for_each_row_and_all_else_is_float32(tmp_path: Path) -> None:
    octets = encode(LAYOUT, THETA, int8=True)
    floats = np.array([1, 0, 3, 4, 2, 9], "<f4")  # scales of w, bias, scales of kernel, mean
    numbers = np.array([127, -1, 0, 0, 0, 0, -127, 1, 0, 0], "i1")  # halves go to the even number
    assert octets.tobytes() == floats.tobytes() + numbers.tobytes()
    octets.tofile(tmp_path / "base")
    file = BaseFile(tmp_path / "base", LAYOUT, int8=True)
    assert file.size == octets.size == 34
    assert {name: array.shape for name, array in file.arrays().items()} == {
        "w:scales": (2,), "bias": (2,), "kernel:scales": (1,), "mean": (1,), "w": (2, 3), "kernel": (1, 2, 2)
    }  # fmt: skip
    expected = [127, -1, 0, 0, 0, 0, 3, 4, -254, 2, 0, 0, 9]
    assert decode(LAYOUT, octets, int8=True).tolist() == expected


def test_in_float32_the_file_is_theta() -> None:
    octets = encode(LAYOUT, THETA, int8=False)
    assert octets.tobytes() == THETA.tobytes()
    assert np.shares_memory(octets, THETA)
    assert decode(LAYOUT, octets, int8=False).tobytes() == THETA.tobytes()


@given(arrays.arrays(np.float32, LAYOUT.size, elements=st.floats(-(2.0**99), 2.0**99, width=32)))
def test_an_entry_is_off_by_half_a_scale_at_most(theta: Vector) -> None:
    found = decode(LAYOUT, encode(LAYOUT, theta, int8=True), int8=True)
    for tensor in LAYOUT.tensors:
        rows = theta[tensor.start : tensor.stop].reshape(tensor.shape[0], -1).astype(np.float64)
        near = found[tensor.start : tensor.stop].reshape(rows.shape)
        if len(tensor.shape) > 1:
            largest = np.abs(rows).max(axis=1, keepdims=True)
            assert (np.abs(near - rows) <= largest / 253 + 1e-35).all()
        else:
            assert near == pytest.approx(rows, abs=0)

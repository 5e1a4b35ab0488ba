"""Constants of an ONNX graph under construction."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import numpy_helper
from onnxscript import opset18 as op

Value = Any
"""A tensor of the graph. The shapes of an operator's arguments are known, except the batch."""


def constant(value: NDArray[np.generic] | np.generic) -> Value:
    return op.Constant(value=numpy_helper.from_array(np.ascontiguousarray(value).reshape(np.shape(value))))


def numbers(*values: int) -> Value:
    """int64 [n]: axes, shapes, bounds."""
    return op.Constant(value_ints=list(values))


def pad(value: Value, axis: int, rank: int, before: int, after: int) -> Value:
    """Pad an axis with so many zeros before and after. A negative number cuts off as much."""
    if before == after == 0:
        return value
    sides = [0] * (2 * rank)
    sides[axis], sides[rank + axis] = before, after
    return op.Pad(value, numbers(*sides))


def first_output(outputs: Any) -> Value:
    """Only the first output of an operator: a MaxPool that also returns indices is twenty times slower."""
    if not isinstance(outputs, tuple | list):
        return outputs
    first: Value = outputs[0]
    first.producer().resize_outputs(1)
    return first

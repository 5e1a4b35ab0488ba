"""Constants of an ONNX graph under construction."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import numpy_helper
from onnxscript import opset18 as op

Value = Any
"""A tensor of the graph. The shapes of an operator's arguments are known, but for the batch."""


def constant(value: NDArray[np.generic] | np.generic) -> Value:
    return op.Constant(value=numpy_helper.from_array(np.ascontiguousarray(value).reshape(np.shape(value))))


def numbers(*values: int) -> Value:
    """int64 [n]: axes, shapes, bounds."""
    return op.Constant(value_ints=list(values))


def single(outputs: Any) -> Value:
    """The first output of an operator alone: a MaxPool that also says where is twenty times slower."""
    if not isinstance(outputs, tuple | list):
        return outputs
    first: Value = outputs[0]
    first.producer().resize_outputs(1)
    return first

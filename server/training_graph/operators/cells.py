"""One time step of recurrent layers, forward and backward, as functions that torch and ONNX run.

All that does not depend on the previous step is computed for all steps at once (recurrence.py): the products
with the inputs, and the gradients of all weights. A step of the backward pass then needs only prepared
factors ("through" a gate, "to" a cell) and one product.

S. Hochreiter and J. Schmidhuber, "Long short-term memory", 1997; gates in torch's order i, f, g, o:

    i, f, o = sigmoid(.)   g = tanh(.)   c_t = f c_{t-1} + i g   h_t = o tanh(c_t)

K. Cho et al., "Learning phrase representations using RNN encoder-decoder", 2014, as torch has it; r, z, n:

    r, z = sigmoid(.)   n = tanh(x_n + r (W_n h_{t-1} + b_n))   h_t = n + z (h_{t-1} - n)
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

Value = Any
"""[b, n], with +, - and *."""


class Algebra(Protocol):
    """The operations of a step other than arithmetic."""

    def sigmoid(self, x: Value) -> Value: ...

    def tanh(self, x: Value) -> Value: ...

    def relu(self, x: Value) -> Value: ...

    def split(self, x: Value, parts: int) -> Sequence[Value]:
        """Split into equal parts along the width."""

    def concat(self, *parts: Value) -> Value:
        """Concatenate the parts along the width."""

    def product(
        self, x: Value, weight: Value, bias: Value | None = None, *, transposed: bool = False
    ) -> Value:
        """Return x weight + bias, weight [n, m]; with `transposed`, x weight' + bias, weight [m, n]."""


Values = Sequence[Value]

Step = Callable[[Algebra, Values, Values, Values], tuple[Values, Values]]
"""(states, values of this time, values that all times share) -> (states, results of this time)."""


def lstm(ops: Algebra, states: Values, inputs: Values, shared: Values) -> tuple[Values, Values]:
    """(h, c); x W' + b [b, 4 H]; (weight of h) -> h, c, all gates' sigmoids, g, tanh(c)."""
    (h, c), (x,), (weight,) = states, inputs, shared
    gates = ops.product(h, weight, x, transposed=True)
    sigmoids = ops.sigmoid(gates)
    i, f, _, o = ops.split(sigmoids, 4)
    g = ops.tanh(ops.split(gates, 4)[2])
    c = f * c + i * g
    squashed = ops.tanh(c)
    h = o * squashed
    return (h, c), (h, c, sigmoids, g, squashed)


def lstm_backward(ops: Algebra, states: Values, inputs: Values, shared: Values) -> tuple[Values, Values]:
    """Gradients of h and c; d h, factors; (weight of h) -> gradients of the gates."""
    (into_h, into_c), (d_h, through, to_cell, forget), (weight,) = states, inputs, shared
    at_h = d_h + into_h
    at_c = into_c + at_h * to_cell
    gates = ops.concat(at_c, at_c, at_c, at_h) * through
    return (ops.product(gates, weight), at_c * forget), (gates,)


def gru(ops: Algebra, states: Values, inputs: Values, shared: Values) -> tuple[Values, Values]:
    """(h,); inputs to r and z [b, 2 H] and to n; (weights, bias of n) -> h, r and z, W_n h + b_n, n."""
    (h,), (x_rz, x_n), (weight_rz, weight_n, bias_n) = states, inputs, shared
    rz = ops.sigmoid(ops.product(h, weight_rz, x_rz, transposed=True))
    r, z = ops.split(rz, 2)
    hidden = ops.product(h, weight_n, bias_n, transposed=True)
    n = ops.tanh(x_n + r * hidden)
    h = n + z * (h - n)
    return (h,), (h, rz, hidden, n)


def gru_backward(ops: Algebra, states: Values, inputs: Values, shared: Values) -> tuple[Values, Values]:
    """Gradient of h; d h, factors; (weight of h) -> total gradient of h at this time."""
    (into,), (d_h, through, z), (weight,) = states, inputs, shared
    reached = d_h + into
    gates = ops.concat(reached, reached, reached) * through
    return (ops.product(gates, weight, reached * z),), (reached,)


def rnn_tanh(ops: Algebra, states: Values, inputs: Values, shared: Values) -> tuple[Values, Values]:
    """(h,); x W' + b; (weight of h) -> h."""
    (h,), (x,), (weight,) = states, inputs, shared
    h = ops.tanh(ops.product(h, weight, x, transposed=True))
    return (h,), (h,)


def rnn_relu(ops: Algebra, states: Values, inputs: Values, shared: Values) -> tuple[Values, Values]:
    """As `rnn_tanh`, with max(0, .)."""
    (h,), (x,), (weight,) = states, inputs, shared
    h = ops.relu(ops.product(h, weight, x, transposed=True))
    return (h,), (h,)


def rnn_backward(ops: Algebra, states: Values, inputs: Values, shared: Values) -> tuple[Values, Values]:
    """Gradient of h; d h, slope; (weight of h) -> gradient of the sum."""
    (into,), (d_h, slope), (weight,) = states, inputs, shared
    gate = (d_h + into) * slope
    return (ops.product(gate, weight),), (gate,)


STEPS: dict[str, Step] = {
    step.__name__: step for step in (lstm, lstm_backward, gru, gru_backward, rnn_tanh, rnn_relu, rnn_backward)
}

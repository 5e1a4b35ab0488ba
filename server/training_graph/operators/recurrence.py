"""LSTM, GRU and plain RNN layers whose training graph is small, whatever the length of the sequence.

In an unrolled graph every time step has its own nodes, and its own products for the weights' gradients. Here
a step of either pass does only what depends on the previous one (cells.py), and all steps share one body
(scanning.py). Everything else, such as the weights' gradients, is computed for all steps at once.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import dropout as drop
from torch.nn.functional import linear

from edgeflock.server.training_graph.operators.scanning import scan

Direction = Callable[[Tensor, Sequence[Tensor], Sequence[Tensor], bool], tuple[Tensor, ...]]
"""(x [T, b, I], first states, weights, whether time runs backwards) -> (h [T, b, H], last states...)."""


def run_recurrent(function: Callable[..., Any], arguments: Sequence[Any]) -> tuple[Tensor, ...] | None:
    """The result of torch's `function` of recurrent layers for these arguments: (output, last states...).

    None for other functions, packed sequences and projections.
    """
    direction = _DIRECTIONS.get(function)
    if direction is None or _is_packed(arguments[1]):
        return None
    x, states, weights, biased, layers, dropout, training, bidirectional, batch_first = arguments
    directions = 2 if bidirectional else 1
    if len(weights) != layers * directions * (4 if biased else 2):
        return None
    first = states if isinstance(states, tuple | list) else (states,)
    each = len(weights) // (layers * directions)
    x = x.transpose(0, 1) if batch_first else x
    last = []
    for layer in range(layers):
        outputs = []
        for backwards in range(directions):
            number = layer * directions + backwards
            own = list(weights[number * each : (number + 1) * each])
            if not biased:
                own += [torch.zeros_like(own[1][:, 0])] * 2
            y, *states = direction(x, [state[number] for state in first], own, bool(backwards))
            outputs.append(y)
            last.append(states)
        x = torch.cat(outputs, 2) if directions > 1 else outputs[0]
        if dropout and training and layer + 1 < layers:
            x = drop(x, dropout, training=True)
    y = x.transpose(0, 1) if batch_first else x
    return y, *(torch.stack(states) for states in zip(*last, strict=True))


def _is_packed(argument: Any) -> bool:
    """Whether the argument after the data has batch sizes, so that the sequence is packed."""
    return isinstance(argument, Tensor) and not argument.is_floating_point()


def _lstm(
    x: Tensor, states: Sequence[Tensor], weights: Sequence[Tensor], backwards: bool
) -> tuple[Tensor, ...]:
    w_input, w_hidden, b_input, b_hidden = weights
    found: tuple[Tensor, ...] = _Lstm.apply(  # type: ignore[no-untyped-call]
        linear(x, w_input, b_input + b_hidden), *states, w_hidden, backwards
    )
    return found


def _gru(
    x: Tensor, states: Sequence[Tensor], weights: Sequence[Tensor], backwards: bool
) -> tuple[Tensor, ...]:
    w_input, w_hidden, b_input, b_hidden = weights
    size = w_hidden.shape[1]
    # The hidden biases of r and z can be added to the inputs, but that of n cannot.
    bias = b_input + torch.cat((b_hidden[: 2 * size], torch.zeros_like(b_hidden[2 * size :])))
    found: tuple[Tensor, ...] = _Gru.apply(  # type: ignore[no-untyped-call]
        linear(x, w_input, bias), *states, w_hidden, b_hidden[2 * size :], backwards
    )
    return found


def _rnn(step: str) -> Direction:
    def direction(
        x: Tensor, states: Sequence[Tensor], weights: Sequence[Tensor], backwards: bool
    ) -> tuple[Tensor, ...]:
        w_input, w_hidden, b_input, b_hidden = weights
        found: tuple[Tensor, ...] = _Rnn.apply(  # type: ignore[no-untyped-call]
            step, linear(x, w_input, b_input + b_hidden), *states, w_hidden, backwards
        )
        return found

    return direction


_DIRECTIONS: dict[Callable[..., Any], Direction] = {
    torch._VF.lstm: _lstm,
    torch._VF.gru: _gru,
    torch._VF.rnn_tanh: _rnn("rnn_tanh"),
    torch._VF.rnn_relu: _rnn("rnn_relu"),
}


class _Lstm(torch.autograd.Function):
    """x W' + b [T, b, 4 H] -> h of every step [T, b, H], the last h and c [b, H]."""

    @staticmethod
    def forward(
        context: Any, x: Tensor, h0: Tensor, c0: Tensor, weight: Tensor, backwards: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        h, c, hs, cs, sigmoids, g, squashed = scan("lstm", [h0, c0], [x], [weight], backwards)
        context.backwards = backwards
        context.save_for_backward(h0, c0, weight, hs, cs, sigmoids, g, squashed)
        return hs, h, c

    @staticmethod
    def backward(context: Any, d_hs: Tensor, d_h: Tensor, d_c: Tensor) -> tuple[Tensor | None, ...]:
        h0, c0, weight, hs, cs, sigmoids, g, squashed = context.saved_tensors
        i, f, _, o = sigmoids.chunk(4, 2)
        before = _previous(c0, cs, context.backwards)
        # The factors of a step's gate gradients: of d c for i, f and g, and of d h for o.
        through = torch.cat(
            (g * i * (1 - i), before * f * (1 - f), i * (1 - g * g), squashed * o * (1 - o)), 2
        )
        to_cell = o * (1 - squashed * squashed)
        into_h, into_c, gates = scan(
            "lstm_backward", [d_h, d_c], [d_hs, through, to_cell, f], [weight], not context.backwards
        )
        return gates, into_h, into_c, _weight_gradient(gates, _previous(h0, hs, context.backwards)), None


class _Gru(torch.autograd.Function):
    """x W' + b [T, b, 3 H] -> h of every step [T, b, H], the last one [b, H]."""

    @staticmethod
    def forward(
        context: Any, x: Tensor, h0: Tensor, weight: Tensor, bias_n: Tensor, backwards: bool
    ) -> tuple[Tensor, Tensor]:
        size = h0.shape[1]
        x_rz, x_n = x.split_with_sizes((2 * size, size), 2)
        weights = [*weight.split_with_sizes((2 * size, size)), bias_n]
        h, hs, rz, hidden, n = scan("gru", [h0], [x_rz, x_n], weights, backwards)
        context.backwards = backwards
        context.save_for_backward(h0, weight, hs, rz, hidden, n)
        return hs, h

    @staticmethod
    def backward(context: Any, d_hs: Tensor, d_h: Tensor) -> tuple[Tensor | None, ...]:
        h0, weight, hs, rz, hidden, n = context.saved_tensors
        r, z = rz.chunk(2, 2)
        before = _previous(h0, hs, context.backwards)
        to_n = (1 - z) * (1 - n * n)
        through = torch.cat((to_n * hidden * r * (1 - r), (before - n) * z * (1 - z), to_n * r), 2)
        into, reached = scan("gru_backward", [d_h], [d_hs, through, z], [weight], not context.backwards)
        of_r, of_z, of_hidden = (torch.cat((reached, reached, reached), 2) * through).chunk(3, 2)
        gates = torch.cat((of_r, of_z, of_hidden), 2)
        inputs = torch.cat((of_r, of_z, reached * to_n), 2)
        return inputs, into, _weight_gradient(gates, before), of_hidden.sum((0, 1)), None


class _Rnn(torch.autograd.Function):
    """x W' + b [T, b, H] -> h of every step [T, b, H], the last one [b, H]."""

    @staticmethod
    def forward(
        context: Any, step: str, x: Tensor, h0: Tensor, weight: Tensor, backwards: bool
    ) -> tuple[Tensor, Tensor]:
        h, hs = scan(step, [h0], [x], [weight], backwards)
        context.step, context.backwards = step, backwards
        context.save_for_backward(h0, weight, hs)
        return hs, h

    @staticmethod
    def backward(context: Any, d_hs: Tensor, d_h: Tensor) -> tuple[Tensor | None, ...]:
        h0, weight, hs = context.saved_tensors
        slope = 1 - hs * hs if context.step == "rnn_tanh" else (hs > 0).to(hs.dtype)
        into, gates = scan("rnn_backward", [d_h], [d_hs, slope], [weight], not context.backwards)
        return None, gates, into, _weight_gradient(gates, _previous(h0, hs, context.backwards)), None


def _previous(first: Tensor, each: Tensor, backwards: bool) -> Tensor:
    """The state before each step, [T, b, H]."""
    first = first.unsqueeze(0)
    return torch.cat((each[1:], first)) if backwards else torch.cat((first, each[:-1]))


def _weight_gradient(gates: Tensor, states: Tensor) -> Tensor:
    """The gradient of the states' weight, over all steps at once."""
    return gates.flatten(0, 1).t() @ states.flatten(0, 1)

"""LSTM layers in a form whose training graph is small.

Unrolled naively, every time step brings its own products for the weights' gradients, and most of a small
LSTM's step goes into starting operators. Here a step of the backward pass does only what depends on the one
after it; everything else, the weights' gradients above all, is computed for all steps at once.

S. Hochreiter and J. Schmidhuber, "Long short-term memory", 1997; gates in torch's order i, f, g, o:

    i, f, o = sigmoid(.)   g = tanh(.)   c_t = f c_{t-1} + i g   h_t = o tanh(c_t)
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import dropout as drop


def lstm_of(arguments: Sequence[Any]) -> tuple[Tensor, Tensor, Tensor] | None:
    """What torch.lstm returns for its arguments, or None for packed sequences and projections."""
    if not isinstance(arguments[1], tuple | list):
        return None
    x, (h0, c0), weights, biased, layers, dropout, training, bidirectional, batch_first = arguments
    if len(weights) != layers * (2 if bidirectional else 1) * (4 if biased else 2):
        return None
    return lstm(x, h0, c0, weights, biased, layers, dropout * training, bidirectional, batch_first)


def lstm(
    x: Tensor,
    h0: Tensor,
    c0: Tensor,
    weights: Sequence[Tensor],
    biased: bool,
    layers: int,
    dropout: float,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """What torch.lstm computes: (output, h, c). `weights` are each layer's and direction's, in its order."""
    directions = 2 if bidirectional else 1
    each = len(weights) // (layers * directions)
    x = x.transpose(0, 1) if batch_first else x
    h, c = [], []
    for layer in range(layers):
        outputs = []
        for direction in range(directions):
            number = layer * directions + direction
            w_input, w_hidden, *biases = weights[number * each : (number + 1) * each]
            bias = biases[0] + biases[1] if biased else torch.zeros_like(w_hidden[:, 0])
            source = x.flip(0) if direction else x
            y, cells = _Lstm.apply(  # type: ignore[no-untyped-call]
                source, h0[number], c0[number], w_input, w_hidden, bias
            )
            h.append(y[-1])
            c.append(cells[-1])
            outputs.append(y.flip(0) if direction else y)
        x = torch.cat(outputs, 2) if directions > 1 else outputs[0]
        if dropout and layer + 1 < layers:
            x = drop(x, dropout, training=True)
    return (x.transpose(0, 1) if batch_first else x), torch.stack(h), torch.stack(c)


class _Lstm(torch.autograd.Function):
    """One layer in one direction: x [T, b, I] -> h and c of every step, [T, b, H] each."""

    @staticmethod
    def forward(
        context: Any, x: Tensor, h0: Tensor, c0: Tensor, w_input: Tensor, w_hidden: Tensor, bias: Tensor
    ) -> tuple[Tensor, Tensor]:
        steps, batch, width = x.shape
        size = w_hidden.shape[1]
        inputs = torch.addmm(bias, x.reshape(steps * batch, width), w_input.t())
        recurrent = w_hidden.t().unsqueeze(0)
        h, c = h0.unsqueeze(0), c0.unsqueeze(0)
        hs, cs = [h], [c]
        sigmoids: list[Tensor] = []
        candidates: list[Tensor] = []
        squashed: list[Tensor] = []
        for at in inputs.view(steps, batch, 4 * size).split_with_sizes([1] * steps):
            gates = at + torch.bmm(h, recurrent)
            sigmoid = gates.sigmoid()
            i, f, _, o = sigmoid.chunk(4, 2)
            g = gates.chunk(4, 2)[2].tanh()
            c = f * c + i * g
            squash = c.tanh()
            h = o * squash
            hs.append(h)
            cs.append(c)
            sigmoids.append(sigmoid)
            candidates.append(g)
            squashed.append(squash)
        every_h, every_c = torch.cat(hs), torch.cat(cs)
        context.set_materialize_grads(False)  # most losses look at no cell
        context.save_for_backward(
            x,
            w_input,
            w_hidden,
            every_h,
            every_c,
            torch.cat(sigmoids),
            torch.cat(candidates),
            torch.cat(squashed),
        )
        return every_h[1:], every_c[1:]

    @staticmethod
    def backward(context: Any, d_h: Tensor | None, d_c: Tensor | None) -> tuple[Tensor, ...]:
        x, w_input, w_hidden, h, c, sigmoids, g, squash = context.saved_tensors
        steps, batch, width = x.shape
        size = w_hidden.shape[1]
        i, f, _, o = sigmoids.chunk(4, 2)
        # What reaches the gates of a step, by d c for i, f and g and by d h for o.
        through = torch.cat(
            (g * i * (1 - i), c[:-1] * f * (1 - f), i * (1 - g * g), squash * o * (1 - o)), 2
        ).split_with_sizes([1] * steps)
        to_cell = (o * (1 - squash * squash)).split_with_sizes([1] * steps)
        forgets = f.split_with_sizes([1] * steps)
        d_hs = None if d_h is None else d_h.split_with_sizes([1] * steps)
        d_cs = None if d_c is None else d_c.split_with_sizes([1] * steps)
        recurrent = w_hidden.unsqueeze(0)
        gates: list[Tensor] = []
        into_h = into_c = x.new_zeros(1, batch, size)
        for t in reversed(range(steps)):
            at_h = into_h if d_hs is None else d_hs[t] + into_h
            at_c = into_c + at_h * to_cell[t]
            at_c = at_c if d_cs is None else at_c + d_cs[t]
            gate = torch.cat((at_c, at_c, at_c, at_h), 2) * through[t]
            gates.append(gate)
            into_h, into_c = torch.bmm(gate, recurrent), at_c * forgets[t]
        every = torch.cat(gates[::-1]).view(steps * batch, 4 * size)
        return (
            (every @ w_input).view(steps, batch, width),
            into_h.squeeze(0),
            into_c.squeeze(0),
            every.t() @ x.reshape(steps * batch, width),
            every.t() @ h[:-1].reshape(steps * batch, size),
            every.sum(0),
        )

"""Our recurrent layers are torch's: their results, and their gradients through outputs and through states."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from edgeflock.server.training_graph.export import export_model
from edgeflock.server.training_graph.operators import recurrence
from edgeflock.shared.graphs.graph import Graph
from edgeflock.shared.graphs.reading import all_nodes, read

LAYERS: dict[str, Callable[..., nn.RNNBase]] = {
    "LSTM": nn.LSTM,
    "GRU": nn.GRU,
    "tanh": nn.RNN,
    "relu": lambda *sizes, **kwargs: nn.RNN(*sizes, nonlinearity="relu", **kwargs),
}

every_kind = pytest.mark.parametrize("kind", LAYERS)


def parts(layer: nn.RNNBase, batch_first: bool) -> list[Tensor]:
    """x of 5 steps and 4 samples, and the first states, all of them learned."""
    random = torch.Generator().manual_seed(3)
    states = layer.num_layers * (2 if layer.bidirectional else 1)
    shapes = [(4, 5, 3) if batch_first else (5, 4, 3), (states, 4, 6)]
    shapes += [(states, 4, 6)] if isinstance(layer, nn.LSTM) else []
    return [torch.randn(*s, generator=random, dtype=torch.double).requires_grad_() for s in shapes]


def weights(layer: nn.RNNBase) -> list[Tensor]:
    return [getattr(layer, name) for names in layer._all_weights for name in names]


def called(layer: nn.RNNBase, x: Any, states: Any = None, *, training: bool = True) -> tuple[Any, list[Any]]:
    """What torch's own function is, and what it is called with."""
    seen: list[tuple[Any, list[Any]]] = []
    with pytest.MonkeyPatch.context() as patch:
        for name in ("lstm", "gru", "rnn_tanh", "rnn_relu"):
            own = getattr(torch._VF, name)

            def watch(*arguments: Any, own: Any = own) -> Any:
                seen.append((own, list(arguments)))
                return own(*arguments)

            patch.setattr(torch._VF, name, watch)
        layer.train(training)(x, states)
    return seen[0]


def ours(
    layer: nn.RNNBase, x: Any, states: Any = None, *, training: bool = True
) -> tuple[Tensor, ...] | None:
    function, arguments = called(layer, x, states, training=training)
    return recurrence.run_recurrent(function, arguments)


@every_kind
@pytest.mark.parametrize(
    ("bidirectional", "layers", "bias", "batch_first"),
    [(False, 1, True, True), (False, 2, False, False), (True, 1, False, True), (True, 2, True, False)],
)
def test_it_is_torch_s(kind: str, bidirectional: bool, layers: int, bias: bool, batch_first: bool) -> None:
    torch.manual_seed(1)
    layer = LAYERS[kind](
        3, 6, num_layers=layers, bias=bias, batch_first=batch_first, bidirectional=bidirectional
    ).double()
    x, *states = parts(layer, batch_first)
    given = tuple(states) if kind == "LSTM" else states[0]
    y, last = layer(x, given)
    theirs = (y, *last) if kind == "LSTM" else (y, last)
    found = ours(layer, x, given)
    assert found is not None
    for our, their in zip(found, theirs, strict=True):
        torch.testing.assert_close(our, their, rtol=1e-12, atol=1e-14)
    learned = [x, *states, *weights(layer)]
    pull = torch.Generator().manual_seed(4)
    factors = [torch.randn(t.shape, generator=pull, dtype=torch.double) for t in theirs]
    everywhere: Sequence[int] = range(len(theirs))
    for through in (*((i,) for i in everywhere), everywhere):
        slopes = []
        for results in (found, theirs):
            loss = torch.stack([(results[i] * factors[i]).sum() for i in through]).sum()
            slopes.append(
                torch.autograd.grad(
                    loss, learned, allow_unused=True, materialize_grads=True, retain_graph=True
                )
            )
        for our, their in zip(*slopes, strict=True):
            torch.testing.assert_close(our, their, rtol=1e-10, atol=1e-12)


def test_its_dropout_is_between_layers_and_only_there() -> None:
    """All of it dropped: the second layer sees zeros, so its results do not depend on x; the first's do."""
    torch.manual_seed(1)
    layer = nn.LSTM(3, 6, 2, dropout=1.0).double()
    x, h0, c0 = parts(layer, False)
    found = ours(layer, x, (h0, c0))
    assert found is not None
    alone = nn.LSTM(6, 6).double()
    for mine, theirs in zip(weights(alone), weights(layer)[4:], strict=True):
        mine.data.copy_(theirs)
    expected, _ = alone(torch.zeros(5, 4, 6, dtype=torch.double), (h0[1:], c0[1:]))
    torch.testing.assert_close(found[0], expected, rtol=1e-12, atol=1e-14)
    _, (h_free, _) = layer(x, (h0, c0))
    torch.testing.assert_close(found[1][0], h_free[0], rtol=1e-12, atol=1e-14)


def test_nothing_is_dropped_in_an_evaluation() -> None:
    layer, x = nn.LSTM(3, 6, 2, dropout=0.9), torch.randn(5, 4, 3)
    found = ours(layer, x, training=False)
    assert found is not None
    torch.testing.assert_close(found[0], layer.eval()(x)[0])


@pytest.mark.filterwarnings("ignore:LSTM with projections")
def test_packed_sequences_and_projections_are_left_to_torch() -> None:
    x, sizes = torch.randn(5, 4, 3), torch.tensor([5, 4, 2, 1])
    assert ours(nn.LSTM(3, 6), pack_padded_sequence(x, sizes)) is None
    assert ours(nn.GRU(3, 6), pack_padded_sequence(x, sizes)) is None
    assert ours(nn.LSTM(3, 6, proj_size=2), x) is None
    assert ours(nn.LSTM(3, 6, 2, bias=False, proj_size=2, bidirectional=True), x) is None


def test_other_functions_are_none_of_ours() -> None:
    assert recurrence.run_recurrent(torch.relu, [torch.zeros(1)]) is None


class Recurrent(nn.Module):
    """All kinds one after the other, there and back again. T x 4."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(4, 3, 2, batch_first=True, bidirectional=True)
        self.lstm = nn.LSTM(6, 3, batch_first=True, bidirectional=True)
        self.tanh = nn.RNN(6, 3, batch_first=True, bias=False)
        self.relu = nn.RNN(3, 3, batch_first=True, nonlinearity="relu")
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        y, _ = self.gru(x)
        y, (_, cells) = self.lstm(y)
        y, last = self.tanh(y)
        y, _ = self.relu(y)
        output: Tensor = self.head(torch.cat((y[:, -1] + last[0], cells[1]), 1))
        return output


def step_of(length: int) -> Graph:
    """The exported step for sequences of a length."""
    x = np.random.default_rng(0).standard_normal((4, length, 4), np.float32)
    return read(export_model("tests:Recurrent", "cross_entropy", x, np.arange(4) % 3, Recurrent).step)


@pytest.mark.long
def test_a_graph_is_as_large_for_a_long_sequence_as_for_a_short_one() -> None:
    """The export compares both with autograd, at two sizes of a batch."""
    short, long = step_of(3), step_of(70)
    assert [node.operator for node in all_nodes(short)] == [node.operator for node in all_nodes(long)]
    bodies = [node.body for node in long.nodes if node.body is not None]
    # Each of four layers in two directions, and of two in one: there and back.
    assert len(bodies) == 2 * (2 * 2 + 2 + 1 + 1)
    assert all(len(body.nodes) <= 14 for body in bodies)

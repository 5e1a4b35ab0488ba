"""Our LSTM is torch's: its results, and its gradients through outputs and through cells."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from edgeflock.server.training_graph.recurrence import lstm, lstm_of


def parts(layer: nn.LSTM, batch_first: bool) -> tuple[Tensor, Tensor, Tensor]:
    """x of 5 steps and 4 samples, h0 and c0, all of them learned."""
    random = torch.Generator().manual_seed(3)
    states = layer.num_layers * (2 if layer.bidirectional else 1)
    shapes = ((4, 5, 3) if batch_first else (5, 4, 3)), (states, 4, 6), (states, 4, 6)
    x, h0, c0 = (torch.randn(*s, generator=random, dtype=torch.double).requires_grad_() for s in shapes)
    return x, h0, c0


def weights(layer: nn.LSTM) -> list[Tensor]:
    return [getattr(layer, name) for names in layer._all_weights for name in names]


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("through", [(0,), (1,), (2,), (0, 1, 2)], ids=["y", "h", "c", "all"])
def test_it_is_torch_s(
    bidirectional: bool, layers: int, bias: bool, batch_first: bool, through: Sequence[int]
) -> None:
    torch.manual_seed(1)
    layer = nn.LSTM(3, 6, layers, bias, batch_first, 0.0, bidirectional).double()
    x, h0, c0 = parts(layer, batch_first)
    y, (h, c) = layer(x, (h0, c0))
    found = lstm(x, h0, c0, weights(layer), bias, layers, 0.0, bidirectional, batch_first)
    for ours, theirs in zip(found, (y, h, c), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-14)
    learned = [x, h0, c0, *weights(layer)]
    pull = torch.Generator().manual_seed(4)
    factors = [torch.randn(t.shape, generator=pull, dtype=torch.double) for t in (y, h, c)]
    slopes = []
    for results in (found, (y, h, c)):
        loss = torch.stack([(results[i] * factors[i]).sum() for i in through]).sum()
        slopes.append(torch.autograd.grad(loss, learned, allow_unused=True, materialize_grads=True))
    for ours, theirs in zip(*slopes, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)


def test_its_dropout_is_between_layers_and_only_there() -> None:
    """All of it dropped: the second layer sees zeros, so its results do not depend on x; the first's do."""
    torch.manual_seed(1)
    layer = nn.LSTM(3, 6, 2).double()
    x, h0, c0 = parts(layer, False)
    y, h, c = lstm(x, h0, c0, weights(layer), True, 2, 1.0, False, False)
    alone = nn.LSTM(6, 6).double()
    for ours, theirs in zip(weights(alone), weights(layer)[4:], strict=True):
        ours.data.copy_(theirs)
    expected, _ = alone(torch.zeros(5, 4, 6, dtype=torch.double), (h0[1:], c0[1:]))
    torch.testing.assert_close(y, expected, rtol=1e-12, atol=1e-14)
    _, (h_free, _) = layer(x, (h0, c0))
    torch.testing.assert_close(h[0], h_free[0], rtol=1e-12, atol=1e-14)


def arguments_of(layer: nn.LSTM, x: Any, *, training: bool = True) -> list[Any]:
    """What torch's own function is called with."""
    seen: list[list[Any]] = []
    own = torch._VF.lstm

    def watch(*arguments: Any) -> Any:
        seen.append(list(arguments))
        return own(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch._VF, "lstm", watch)
        layer.train(training)(x)
    return seen[0]


def test_it_takes_what_torch_s_takes() -> None:
    layer = nn.LSTM(3, 6, batch_first=True)
    x = torch.randn(4, 5, 3)
    found = lstm_of(arguments_of(layer, x))
    assert found is not None
    y, (h, c) = layer(x)
    for ours, theirs in zip(found, (y, h, c), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_nothing_is_dropped_in_an_evaluation() -> None:
    layer, x = nn.LSTM(3, 6, 2, dropout=0.9), torch.randn(5, 4, 3)
    found = lstm_of(arguments_of(layer, x, training=False))
    assert found is not None
    torch.testing.assert_close(found[0], layer.eval()(x)[0])


@pytest.mark.filterwarnings("ignore:LSTM with projections")
def test_packed_sequences_and_projections_are_left_to_torch() -> None:
    x = torch.randn(5, 4, 3)
    assert lstm_of(arguments_of(nn.LSTM(3, 6), pack_padded_sequence(x, torch.tensor([5, 4, 2, 1])))) is None
    assert lstm_of(arguments_of(nn.LSTM(3, 6, proj_size=2), x)) is None
    assert lstm_of(arguments_of(nn.LSTM(3, 6, 2, bias=False, proj_size=2, bidirectional=True), x)) is None

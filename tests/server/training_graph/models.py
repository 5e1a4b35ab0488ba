"""Small torch modules, each with something that an export can get wrong, and what torch computes of them."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from edgeflock.shared.model.layout import Layout

HERE = "tests.server.training_graph.models:"

Arrays = dict[str, NDArray[np.float32]]


def reference(
    make: Callable[[], nn.Module],
    loss: Callable[[Tensor, Tensor], Tensor],
    layout: Layout,
    theta: NDArray[np.float32],
    x: NDArray[np.float32],
    y: NDArray[np.generic],
) -> tuple[Arrays, Arrays]:
    """Plain autograd: what the step and the evaluation return, by the names of the graphs' outputs.

    The statistics are the batch's own, those of a layer with a momentum of one.
    """
    module = make()
    tensors = dict(module.named_parameters()) | dict(module.named_buffers())
    for layer in module.modules():
        if hasattr(layer, "running_mean"):
            layer.momentum = 1.0  # type: ignore[assignment]

    def restore() -> None:
        with torch.no_grad():
            for tensor in layout.tensors:
                value = torch.from_numpy(theta[tensor.start : tensor.stop])
                tensors[tensor.name].copy_(value.view(tensor.shape))

    restore()
    output = module.train()(torch.from_numpy(x.copy()))
    value = loss(output, torch.from_numpy(y))
    value.backward()  # type: ignore[no-untyped-call]
    step = {"loss": value.detach().numpy()}
    for tensor in layout.tensors:
        held = tensors[tensor.name]
        if tensor.buffer:
            step[f"buffer/{tensor.name}"] = held.numpy().copy()
        else:
            gradient = torch.zeros_like(held) if held.grad is None else held.grad
            step[f"gradient/{tensor.name}"] = gradient.numpy()
    found = output.detach().numpy()
    if loss is functional.cross_entropy:
        step["right"] = np.array((found.argmax(1) == y).mean(), np.float32)
    elif loss is functional.binary_cross_entropy_with_logits:
        step["right"] = np.array(((found > 0) == (y.astype(np.float32) > 0.5)).mean(), np.float32)
    restore()
    with torch.no_grad():
        output = module.eval()(torch.from_numpy(x.copy()))
        judged = loss(output, torch.from_numpy(y))
    return step, {"loss": judged.numpy(), "output": output.numpy()}


def _head(inputs: int) -> list[nn.Module]:
    return [nn.Flatten(), nn.Linear(inputs, 4)]


# What is to work


def convolutions() -> nn.Module:
    """Depthwise, grouped, dilated and transposed; average pools. 4 x 8 x 8."""
    return nn.Sequential(
        nn.Conv2d(4, 8, 3, padding=1, groups=4),
        nn.SiLU(),
        nn.Conv2d(8, 8, 3, 2, 2, dilation=2, groups=8),
        nn.GELU(),
        nn.ConvTranspose2d(8, 6, 3, 2, 1, 1, groups=2),
        nn.AvgPool2d(3, 2, 1),
        nn.Hardswish(),
        nn.AdaptiveAvgPool2d(2),
        *_head(24),
    )


def signals() -> nn.Module:
    """The same in one dimension. 2 x 20."""
    return nn.Sequential(
        nn.Conv1d(2, 6, 5, 2, 2),
        nn.Tanh(),
        nn.MaxPool1d(3, 2, 1),
        nn.Conv1d(6, 6, 3, padding=2, dilation=2, groups=3, bias=False),
        nn.InstanceNorm1d(6, affine=True),
        nn.AvgPool1d(2),
        *_head(12),
    )


class Recurrent(nn.Module):
    """3 steps of 4."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(4, 5, batch_first=True)
        self.lstm = nn.LSTM(5, 3, batch_first=True, bidirectional=True)
        self.start = nn.Parameter(torch.randn(2, 1, 3))
        self.head = nn.Linear(9, 4)

    def forward(self, x: Tensor) -> Tensor:
        hidden, _ = self.gru(x)
        start = self.start.expand(-1, x.shape[0], -1).contiguous()
        y, (_, cells) = self.lstm(hidden, (start, start))
        output: Tensor = self.head(torch.cat((y[:, -1], cells[0]), 1))
        return output


class Words(nn.Module):
    """Six words of ten: an embedding, a causal attention, a class for each of the words. 6."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(10, 8, padding_idx=0)
        self.register_buffer("position", torch.linspace(-1, 1, 48).view(6, 8))
        self.attend = nn.MultiheadAttention(8, 2, batch_first=True)
        self.register_buffer("later", torch.ones(6, 6).triu(1).bool())
        self.norm = nn.LayerNorm(8)
        self.head = nn.Linear(8, 10)

    def forward(self, x: Tensor) -> Tensor:
        h = self.words(x.long()) + self.position
        attended, _ = self.attend(h, h, h, attn_mask=self.later, need_weights=False)
        output: Tensor = self.head(self.norm(h + attended))
        return output.transpose(1, 2)


def normed() -> nn.Module:
    """BatchNorm behind dense layers, with and without parameters and statistics of its own. 6."""
    return nn.Sequential(
        nn.Linear(6, 8),
        nn.BatchNorm1d(8),
        nn.Tanh(),
        nn.Linear(8, 8),
        nn.BatchNorm1d(8, affine=False),
        nn.Tanh(),
        nn.Linear(8, 8),
        nn.BatchNorm1d(8, track_running_stats=False),
        nn.Tanh(),
        nn.Linear(8, 4),
    )


class Odd(nn.Module):
    """Tied weights, a layer under two names, names of other things, what is not used, what is frozen, a
    scalar, an empty one, doubles inside, what is not to be differentiated, writing in place. 5 x 6."""

    def __init__(self) -> None:
        super().__init__()
        self.tied = nn.Linear(6, 6, bias=False)
        self.again = nn.Linear(6, 6)
        self.again.weight = self.tied.weight
        twice = nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6))
        self.first, self.twice = twice, nn.ModuleList([twice])
        self.x = nn.Parameter(torch.randn(6))
        self.y = nn.Linear(6, 4)
        self.loss = nn.Parameter(torch.randn(()))
        self.output = nn.ParameterDict({"a/b": torch.randn(4)})
        self.nothing = nn.Parameter(torch.zeros(0, 3))
        self.unused = nn.Linear(2, 2)
        self.frozen = nn.Linear(6, 6).requires_grad_(False)
        self.still = nn.BatchNorm1d(6)
        self.register_buffer("ramp", torch.linspace(0, 1, 6, dtype=torch.float64))
        self.register_buffer("own", torch.randn(9, 6), persistent=False)

    def train(self, mode: bool = True) -> "Odd":
        super().train(mode)
        self.still.eval()
        return self

    def forward(self, x: Tensor) -> Tensor:
        x = x.mul_(2)
        h = torch.tanh(self.tied(x) + self.own[: x.shape[1]])  # type: ignore[index]
        h = self.again(h.view(-1, 6)).view(-1, 5, 6).mean(1)
        h = torch.tanh(self.twice[0](torch.tanh(self.first(h))))
        with torch.no_grad():
            scale = self.frozen(h).abs().mean(1, keepdim=True)
        h = self.still(torch.tanh(self.frozen(h)) * self.x) / (scale + 1)
        h = (h.double() * self.ramp).float() + (torch.sign(h) - h).detach()
        h = h.clone()
        h[:, 1::2] *= 0.5
        h[:, 0] = 0
        output: Tensor = self.y(h) * self.loss + self.output["a/b"] + self.nothing.sum()
        return output


def regression() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.Softplus(), nn.Linear(8, 3))


class Switch(nn.Sequential):
    """One number a sample. 6."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(6, 8), nn.ELU(), nn.Linear(8, 1))

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = super().forward(x)  # type: ignore[no-untyped-call]
        return output.squeeze(1)


FUNCTIONS: tuple[Callable[[Tensor], Tensor], ...] = (
    functional.relu6,
    functional.leaky_relu,
    functional.selu,
    functional.celu,
    lambda h: functional.gelu(h, approximate="tanh"),
    functional.mish,
    functional.softsign,
    functional.hardtanh,
    functional.hardsigmoid,
    functional.logsigmoid,
    functional.tanhshrink,
    functional.softshrink,
    functional.hardshrink,
    lambda h: functional.softmax(h, -1) + functional.log_softmax(h, -1),
    lambda h: torch.log(h.abs() + 1) + torch.exp(h),
    lambda h: (h * h + 1).sqrt() + (h * h + 1).rsqrt(),
    lambda h: h**2 + h**3 + (h.abs() + 0.5) ** 1.5,
    lambda h: torch.sin(h) + torch.cos(h) + torch.erf(h),
    lambda h: torch.maximum(h, -h) + torch.minimum(h, 2 * h),
    lambda h: h.clamp(-0.3, 0.4),
    lambda h: h.amax(-1, keepdim=True) * h,
    lambda h: h / (h.std(-1, keepdim=True) + 1),
    lambda h: functional.normalize(h, dim=-1),
    lambda h: h.repeat(1, 1, 2).sum(-1, keepdim=True) * h,
    lambda h: torch.einsum("bij,bkj->bik", h, h) @ h,
    lambda h: h.masked_fill(h > 0.5, 0.1),
    lambda h: h.logsumexp(-1, keepdim=True) * h,
    lambda h: functional.pad(h, (1, 2)).sum(-1, keepdim=True) * h,
    lambda h: functional.rms_norm(h, (6,)),
    lambda h: functional.scaled_dot_product_attention(h, h, h, is_causal=True),
    lambda h: h.cumsum(-1),
    lambda h: h.roll(1, -1) * h + h.flip(-1),
    lambda h: torch.stack((h.floor(), h.round(), h)).sum(0),
)


class Functions(nn.Module):
    """What else there is to make numbers of numbers. 4 x 6."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(6, 6) for _ in FUNCTIONS)
        self.slope = nn.PReLU(4)
        self.head = nn.Linear(24, 4)

    def forward(self, x: Tensor) -> Tensor:
        h = self.slope(x)
        for function, layer in zip(FUNCTIONS, self.layers, strict=True):
            h = h + torch.tanh(function(layer(x)))
        output: Tensor = self.head(h.flatten(1))
        return output


def upsampling() -> nn.Module:
    """1 x 4 x 4."""
    return nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.Upsample(scale_factor=2), *_head(128))


def volumes() -> nn.Module:
    """1 x 3 x 4 x 4."""
    return nn.Sequential(
        nn.Conv3d(1, 4, 3, padding=1), nn.GELU(), nn.Conv3d(4, 4, (1, 3, 3), 1, 0, groups=2), *_head(48)
    )


def dropping() -> nn.Module:
    """4 x 4 x 4."""
    return nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.Dropout2d(0.2), nn.Dropout(0.5), *_head(64))


def dense() -> nn.Module:
    """6."""
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4))


# What is not: 2 x 8 x 8 if it is of pictures, else 6


class Volume(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Sequential(nn.Conv3d(1, 2, 3, padding=1)), nn.MaxPool3d((1, 2, 2)), *_head(64))

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = super().forward(x.unsqueeze(1))  # type: ignore[no-untyped-call]
        return output


def adaptive_maxima() -> nn.Module:
    return nn.Sequential(nn.Conv2d(2, 2, 3), nn.AdaptiveMaxPool2d(4), *_head(32))


def bags() -> nn.Module:
    class Bag(nn.EmbeddingBag):
        def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
            return super().forward(x.long().abs() % 10)

    return nn.Sequential(Bag(10, 4))


class Places(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 2, 3, padding=1)
        self.pool = nn.MaxPool2d(2, return_indices=True)
        self.back = nn.MaxUnpool2d(2)
        self.head = nn.Linear(128, 4)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.head(self.back(*self.pool(self.conv(x))).flatten(1))
        return output


class Of(nn.Module):
    """What `rule` makes of a dense layer and x."""

    def __init__(self, rule: Callable[[Any, Tensor], Any]) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 4)
        self.rule = rule
        self.calls = 0

    def forward(self, x: Tensor) -> Any:
        self.calls += 1
        return self.rule(self, x)


def by_values() -> nn.Module:
    return Of(lambda self, x: self.layer(x) if x.sum() > 0 else self.layer(-x))


def by_number() -> nn.Module:
    return Of(lambda self, x: self.layer(x) * float(x.abs().max()))


def by_length() -> nn.Module:
    return Of(lambda self, x: self.layer(x) / len(x))


def one_by_one() -> nn.Module:
    return Of(lambda self, x: torch.stack([self.layer(x[i]) for i in range(len(x))]))


def by_calls() -> nn.Module:
    return Of(lambda self, x: self.layer(x) * self.calls)


def part_of_the_batch() -> nn.Module:
    def rule(self: Any, x: Tensor) -> Tensor:
        h: Tensor = self.layer(x)
        return h + h[:1]

    return Of(rule)


def first_of_the_batch() -> nn.Module:
    def rule(self: Any, x: Tensor) -> Tensor:
        h: Tensor = self.layer(x)
        return h + h[0]

    return Of(rule)


def a_pair() -> nn.Module:
    return Of(lambda self, x: (self.layer(x), x))


def half_precision() -> nn.Module:
    return Of(lambda self, x: torch.relu(self.layer(x).bfloat16()).float())

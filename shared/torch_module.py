"""A torch module whose parameters and gradients lie in two flat vectors. Loaded only where torch is."""

import importlib
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from edgeflock.shared.errors import ConfigError
from edgeflock.shared.layout import Layout

LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "cross_entropy": functional.cross_entropy,
    "mse": functional.mse_loss,
    "bce": functional.binary_cross_entropy_with_logits,
}


class FlatModule:
    """`module` with theta and its gradient as views of one float32 vector each."""

    def __init__(self, path: str, loss: str, seed: int = 0) -> None:
        """Build the module that the import string `path` names, initialised under `seed`.

        Raises ConfigError if it cannot be imported, is no module, or cannot travel as a flat vector.
        """
        if loss not in LOSSES:
            raise ConfigError(f"model.loss {loss!r} is unknown; known are {', '.join(LOSSES)}")
        self.loss = LOSSES[loss]
        torch.manual_seed(seed)
        self.module = _build(path)
        named = list(self.module.named_parameters())
        self.layout = Layout.of((name, p.shape) for name, p in named)
        self._theta = torch.zeros(self.layout.size)
        self._gradient = torch.zeros(self.layout.size)
        for (_, parameter), tensor in zip(named, self.layout.tensors, strict=True):
            place = slice(tensor.start, tensor.stop)
            self._theta[place] = parameter.detach().flatten()
            parameter.data = self._theta[place].view(tensor.shape)
            parameter.grad = self._gradient[place].view(tensor.shape)

    def theta(self) -> NDArray[np.float32]:
        """float32 [P], a copy."""
        return self._theta.numpy().copy()

    def gradient(
        self, theta: NDArray[np.float32], x: NDArray[np.float32], y: NDArray[np.generic]
    ) -> tuple[float, NDArray[np.float32]]:
        """(mean loss over the batch, d loss / d theta float32 [P], valid until the next call)."""
        self._theta.numpy()[:] = theta
        self._gradient.zero_()
        self.module.train()
        loss = self._loss_of(self.module(torch.from_numpy(x)), torch.from_numpy(y))
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.item(), self._gradient.numpy()

    def flops(self, x: NDArray[np.float32], y: NDArray[np.generic]) -> int:
        """Floating-point operations of one `gradient` on this batch, as torch counts them."""
        with FlopCounterMode(display=False) as counter:
            self.gradient(self.theta(), x, y)
        return int(counter.get_total_flops())

    def _loss_of(self, output: Tensor, target: Tensor) -> Tensor:
        """The loss; but [b, 1] against [b] would be broadcast to [b, b] and train the wrong thing."""
        if self.loss is not functional.cross_entropy and output.shape != target.shape:
            raise ValueError(f"outputs {list(output.shape)} and targets {list(target.shape)} must be alike")
        return self.loss(output, target)

    @torch.no_grad()
    def evaluate(
        self, theta: NDArray[np.float32], x: NDArray[np.float32], y: NDArray[np.generic], batch: int = 200
    ) -> tuple[float, float | None]:
        """(mean loss, accuracy) over all samples; no accuracy for a regression loss."""
        self._theta.numpy()[:] = theta
        self.module.eval()
        total, correct = 0.0, 0
        for start in range(0, len(y), batch):
            target = torch.from_numpy(y[start : start + batch])
            output = self.module(torch.from_numpy(x[start : start + batch]))
            total += self._loss_of(output, target).item() * len(target)
            if self.loss is functional.cross_entropy:
                correct += int((output.argmax(1) == target).sum())
            elif self.loss is functional.binary_cross_entropy_with_logits:
                correct += int(((output > 0) == (target > 0.5)).sum())
        accuracy = None if self.loss is functional.mse_loss else correct / len(y)
        return total / len(y), accuracy


def _build(path: str) -> nn.Module:
    name, _, attribute = path.partition(":")
    if not name or not attribute:
        raise ConfigError(f"model.module {path!r} must be package.module:Name")
    try:
        factory = getattr(importlib.import_module(name), attribute)
        module = factory()
    except Exception as error:  # the user's own module may raise anything
        raise ConfigError(f"model.module {path!r}: {type(error).__name__}: {error}") from error
    if not isinstance(module, nn.Module):
        raise ConfigError(f"model.module {path!r} makes a {type(module).__name__}, not a torch.nn.Module")
    for child_name, child in module.named_modules():
        if getattr(child, "running_mean", None) is not None:
            raise ConfigError(
                f"model.module {path!r}: {child_name} keeps running statistics, which do not travel; "
                "use GroupNorm or track_running_stats=False"
            )
    for parameter_name, parameter in module.named_parameters():
        if parameter.dtype != torch.float32:
            raise ConfigError(f"model.module {path!r}: {parameter_name} is {parameter.dtype}, not float32")
    return module

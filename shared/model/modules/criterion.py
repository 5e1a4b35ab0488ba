"""The loss of a model in torch, and which predictions are right."""

import importlib
from collections.abc import Callable
from functools import partial
from inspect import signature
from typing import Any

import torch
from torch import Tensor

from edgeflock.shared.errors import ConfigError
from edgeflock.shared.model.calls import Call
from edgeflock.shared.model.losses import Loss, resolve_loss
from edgeflock.shared.model.modules.building import X


class Criterion:
    """A loss as a function of a module's output, its targets and its inputs."""

    def __init__(self, loss: str) -> None:
        """Resolve the text of model.loss. Raises ConfigError."""
        self.kind, call = resolve_loss(loss)
        self._mean = _loss_function(self.kind, call)

    @property
    def name(self) -> str:
        """The name of its function."""
        function = self.kind.function
        return function if isinstance(function, str) else getattr(function, "__name__", "of yours")

    def __call__(self, output: Any, target: Tensor, x: X) -> Tensor:
        """Return the loss. Outputs [b, 1] with targets [b] are refused: they would broadcast to [b, b].

        A user's own loss gets the batch: y, and x or its fields.
        """
        if self.kind.own:
            loss = self._mean(output, {**(x if isinstance(x, dict) else {"x": x}), "y": target})
            if not isinstance(loss, Tensor) or loss.numel() != 1:
                shown = list(loss.shape) if isinstance(loss, Tensor) else type(loss).__name__
                raise ValueError(f"model.loss {self.name} returns {shown}, not a scalar tensor")
            return loss.reshape(())
        if not isinstance(output, Tensor):
            raise TypeError(f"the output is a {type(output).__name__}; model.loss must be one of your own")
        if self.kind.classes is False and output.shape != target.shape:
            raise ValueError(f"outputs {list(output.shape)} and targets {list(target.shape)} must be alike")
        return self._mean(output, target)

    def right(self, output: Any, target: Tensor) -> Tensor | None:
        """Return the part of the predictions that are right, as float32.

        None if the loss has no accuracy, or only in evaluations as losses of the batch, or if the targets
        are probabilities of classes.
        """
        if self.kind.right is None or self.kind.own or (self.kind.classes and target.is_floating_point()):
            return None
        right: Tensor = self.kind.right(output.detach(), target)
        return right.to(torch.float32).mean()

    def takes_classes(self, output: Tensor) -> bool:
        """Whether the loss's targets are classes; if it does not say so, whether it accepts them."""
        if self.kind.classes is not None:
            return self.kind.classes
        if output.dim() < 2 or output.shape[1] < 2:
            return False
        try:
            target = torch.zeros((len(output), *output.shape[2:]), dtype=torch.int64)
            self(output, target, {})
        except (RuntimeError, IndexError, ValueError, TypeError):
            return False
        return True


def _loss_function(loss: Loss, call: Call) -> Callable[..., Tensor]:
    """Return the function that computes the loss in torch. Raises ConfigError."""
    function = loss.function
    try:
        if isinstance(function, str):
            package, _, name = function.partition(":")
            function = getattr(importlib.import_module(package), name)
        if isinstance(function, type):
            built: Callable[..., Tensor] = function(**call.arguments)
            return built
        if not call.arguments:
            return function
        arguments = {name: value if loss.own else _as_tensor(value) for name, value in call.arguments.items()}
        signature(function).bind_partial(**arguments)
    except Exception as error:  # user code may raise anything
        raise ConfigError(f"model.loss = {str(call)!r}: {type(error).__name__}: {error}") from error
    return partial(function, **arguments)


def _as_tensor(value: Any) -> Any:
    """Convert lists to tensors, which torch's own losses take, e.g. for weights of classes."""
    return torch.tensor(value, dtype=torch.float32) if isinstance(value, list) else value

"""Losses that training can minimise. This module needs no torch: modules.criterion imports the functions."""

from collections.abc import Callable
from dataclasses import dataclass
from inspect import signature
from typing import Any

from edgeflock.shared.errors import ConfigError
from edgeflock.shared.model.calls import Call
from edgeflock.shared.plugins import Table


@dataclass(frozen=True, slots=True)
class Loss:
    """A loss of a batch of outputs against its targets."""

    function: str | Callable[[Any, Any], Any]
    """(output, target) -> the mean over the batch, in torch tensors; or package.module:name of it."""
    right: Callable[[Any, Any], Any] | None = None
    """(output, target) -> whether each prediction is right. None: the loss has no accuracy."""
    classes: bool | None = False
    """Whether targets are classes; else each has the shape of its output. None: the function decides."""
    own: bool = False
    """Whether it takes the batch rather than targets, or is the class of a module that does."""
    numbers: bool = False
    """Whether it measures the distance of outputs from targets, in any unit: then tables' targets are
    scaled."""
    acts: bool = False
    """Whether it is for a policy that acts in an environment (shared/environments)."""
    per_token: bool = False
    """Whether a sample has a prediction for each of its tokens."""


def loss_of(found: object) -> Loss | None:
    """Return a Loss, or wrap a function or a class alone, which has no accuracy.

    A function whose second argument is named `batch` gets the batch.
    """
    if isinstance(found, Loss):
        return found
    if isinstance(found, type):
        return Loss(found, classes=None, own=True)
    return Loss(found, classes=None, own=_takes_batch(found)) if callable(found) else None


def _takes_batch(function: Callable[..., Any]) -> bool:
    try:
        return [*signature(function).parameters][1:2] == ["batch"]
    except ValueError:  # functions in C have no signature
        return False


def _right_tokens(output: Any, target: Any) -> Any:
    from edgeflock.shared.model.token_losses import right_tokens

    return right_tokens(output, target)


LOSSES: Table[Loss] = Table(
    "edgeflock.losses",
    {
        "cross_entropy": Loss(
            "torch.nn.functional:cross_entropy",
            lambda output, target: output.argmax(1) == target,
            classes=True,
        ),
        "mse": Loss("torch.nn.functional:mse_loss", numbers=True),
        "bce": Loss(
            "torch.nn.functional:binary_cross_entropy_with_logits",
            lambda output, target: (output > 0) == (target > 0.5),
        ),
        "huber": Loss("torch.nn.functional:huber_loss", numbers=True),
        "l1": Loss("torch.nn.functional:l1_loss", numbers=True),
        "next_token": Loss(
            "edgeflock.shared.model.token_losses:next_token", _right_tokens, own=True, per_token=True
        ),
        "a2c": Loss("edgeflock.shared.model.policy_losses:a2c", own=True, acts=True),
        "ppo": Loss("edgeflock.shared.model.policy_losses:ppo", own=True, acts=True),
    },
    loss_of,
)


def resolve_loss(text: str) -> tuple[Loss, Call]:
    """Return the loss that `text` names, by name or import string, and its call. Raises ConfigError."""
    if text in LOSSES:
        return LOSSES[text], Call(text, {})
    call = Call.parse(text, "model.loss")
    try:
        return LOSSES.resolve(call.name), call
    except KeyError:
        raise ConfigError(
            f"model.loss {text!r} is unknown; known are {', '.join(LOSSES)}, and package.module:name; a "
            'device with client.backend = "onnx" needs no loss'
        ) from None


def scales_targets(text: str) -> bool:
    """Whether this loss scales numbers to predict to mean 0 and deviation 1. Raises ConfigError."""
    return resolve_loss(text)[0].numbers

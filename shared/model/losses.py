"""What training can minimise. To know that it needs no torch: torch_module.py imports the function."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from edgeflock.shared.errors import ConfigError
from edgeflock.shared.model.calls import Call
from edgeflock.shared.plugins import Table


@dataclass(frozen=True, slots=True)
class Loss:
    """A loss of a batch of outputs against its targets."""

    function: str
    """package.module:name of (output, target) -> the mean over the batch, in torch tensors."""
    right: Callable[[Any, Any], Any] | None = None
    """(output, target) -> for each prediction whether it is right. None: there is no accuracy."""
    classes: bool = False
    """Whether targets are classes. Else each has the shape of its output."""
    own: bool = False
    """Whether it is somebody's own: a function (outputs, batch) -> scalar, or the class of a module."""


LOSSES: Table[Loss] = Table(
    "edgeflock.losses",
    {
        "cross_entropy": Loss(
            "torch.nn.functional:cross_entropy",
            lambda output, target: output.argmax(1) == target,
            classes=True,
        ),
        "mse": Loss("torch.nn.functional:mse_loss"),
        "bce": Loss(
            "torch.nn.functional:binary_cross_entropy_with_logits",
            lambda output, target: (output > 0) == (target > 0.5),
        ),
        "huber": Loss("torch.nn.functional:huber_loss"),
        "l1": Loss("torch.nn.functional:l1_loss"),
    },
)


def chosen(text: str) -> tuple[Loss, Call]:
    """The loss that `model.loss` names, by name or import string, and its call. Raises ConfigError."""
    call = Call.of(text, "model.loss")
    if call.imported:
        return Loss(call.name, own=True), call
    if call.name not in LOSSES:
        raise ConfigError(
            f"model.loss {text!r} is unknown; known are {', '.join(LOSSES)}, or package.module:name of "
            "(outputs, batch) -> scalar"
        )
    return LOSSES[call.name], call

"""What training can minimise. To know that it needs no torch: torch_module.py imports the function."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from edgeflock.shared.plugins import Table


@dataclass(frozen=True, slots=True)
class Loss:
    """A loss of a batch of outputs against its targets."""

    function: str | Callable[[Any, Any], Any]
    """(output, target) -> the mean over the batch, in torch tensors; or package.module:name of it."""
    right: Callable[[Any, Any], Any] | None = None
    """(output, target) -> for each prediction whether it is right. None: there is no accuracy."""
    classes: bool | None = False
    """Whether targets are classes. Else each has the shape of its output. None: as the function has it."""


def loss_of(found: object) -> Loss | None:
    """A Loss, or one of a function alone, which has no accuracy."""
    if isinstance(found, Loss):
        return found
    return Loss(found, classes=None) if callable(found) else None


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
    },
    loss_of,
)

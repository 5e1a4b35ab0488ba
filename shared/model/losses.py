"""What training can minimise. To know that it needs no torch: torch_module.py imports the function."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

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
)

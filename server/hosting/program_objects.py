"""What a program has at hand that settings cannot name."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from edgeflock.server.monitoring.listeners import Listening
from edgeflock.shared.data.datasets import Dataset

if TYPE_CHECKING:
    from torch import nn

    from edgeflock.server.monitoring.scoring import Own
    from edgeflock.shared.model.torch_module import Make


@dataclass(frozen=True, slots=True)
class ServerObjects:
    """In the place of what settings say, or beside it."""

    make: "Make | None" = None
    """Builds the module that model.module names."""
    held_out: Dataset | None = None
    """In the place of model.data."""
    judge: "Callable[[nn.Module], tuple[float, float | None]] | None" = None
    """(loss, accuracy) of a module, in the place of both."""
    listening: Listening = Listening()
    metrics: "Mapping[str, Own]" = field(default_factory=dict)
    """Beside those that model.metrics names."""


NOTHING_AT_HAND = ServerObjects()
"""The settings say all of it."""

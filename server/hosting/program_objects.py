"""Objects of a program that settings cannot name."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from edgeflock.server.connections.reverse_proxy import ReverseProxy
from edgeflock.server.monitoring.listeners import Callbacks
from edgeflock.shared.data.datasets import Dataset

if TYPE_CHECKING:
    from torch import nn

    from edgeflock.server.evaluation.metrics import UserMetric
    from edgeflock.shared.model.modules.building import Make


@dataclass(frozen=True, slots=True)
class ServerObjects:
    """Objects that replace settings, or add to them."""

    make: "Make | None" = None
    """Builds the module that model.module names."""
    held_out: Dataset | None = None
    """Replaces model.data."""
    evaluate: "Callable[[nn.Module], tuple[float, float | None]] | None" = None
    """Returns (loss, accuracy) of a module; replaces the evaluation on held-out data."""
    callbacks: Callbacks = Callbacks()
    metrics: "Mapping[str, UserMetric]" = field(default_factory=dict)
    """Added to the metrics of model.metrics."""
    proxy: ReverseProxy | None = None
    """The server of several runs that forwards connections; None: this one listens itself."""


NO_OBJECTS = ServerObjects()
"""The settings name everything."""

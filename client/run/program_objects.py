"""Objects of a program that settings cannot name."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgeflock.client.data import Batches
from edgeflock.client.identity import ClientIdentity

if TYPE_CHECKING:
    from edgeflock.shared.model.torch_module import Make


@dataclass(frozen=True, slots=True)
class ClientObjects:
    """Objects that replace settings."""

    identity: ClientIdentity | None = None
    """Replaces client.identity. It is not stored."""
    batches: Callable[[list[int]], Batches] | None = None
    """Makes batches from the device's seed. Replaces client.data."""
    samples: Callable[..., Any] | None = None
    """A generator function of samples. client.data is then only its name."""
    make: "Make | None" = None
    """Builds the model. Replaces client.model."""
    threads: bool = True
    """Whether to set torch's threads, which are process-wide, to client.threads."""
    gentle: bool = False
    """Whether the process lowers its priority once it has joined."""


NO_OBJECTS = ClientObjects()
"""No objects: the settings define everything."""

"""What a program has at hand that settings cannot name."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgeflock.client.data import Batches
from edgeflock.client.identity import ClientIdentity

if TYPE_CHECKING:
    from edgeflock.shared.model.torch_module import Make


@dataclass(frozen=True, slots=True)
class ClientObjects:
    """In the place of what settings say."""

    identity: ClientIdentity | None = None
    """What it joined with, in the place of client.identity; it is kept nowhere."""
    batches: Callable[[list[int]], Batches] | None = None
    """Of a seed of the device's own: in the place of client.data."""
    samples: Callable[..., Any] | None = None
    """A generator function, which client.data does not name but calls by a name."""
    make: "Make | None" = None
    """Builds the model, in the place of client.model."""
    threads: bool = True
    """Whether torch's threads, which are all of the process's, are to be client.threads."""
    gentle: bool = False
    """Whether the process gives way to others once it has joined."""


NOTHING_AT_HAND = ClientObjects()
"""The settings say all of it."""

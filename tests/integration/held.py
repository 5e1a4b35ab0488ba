"""What a server in lossy mode believes that a device holds."""

import numpy as np
from numpy.typing import NDArray

from edgeflock.client.training.replica import Replica
from edgeflock.server.engine import Engine
from edgeflock.server.gateway.mirror import Mirror
from edgeflock.server.publication import Lossy

LOSSY = "downlink.mode=lossy"


def believed(engine: Engine | Mirror, device: int, base: int | None, held: int) -> NDArray[np.float32] | None:
    """float32 [P] of `device`, which says that it holds this; None if the server does not know."""
    publication = engine.outlet._publication
    assert isinstance(publication, Lossy)
    copy = publication._copies.find(device, base, held)
    return None if copy is None else copy.values


def agree(engine: Engine, device: int, replica: Replica) -> bool:
    """Whether the server knows what it holds, bit for bit."""
    there = believed(engine, device, replica.version, replica.held)
    return there is not None and there.tobytes() == replica.theta[: there.size].tobytes()

"""The input of a capacity plan: the fleet, the machines, and the number of each part of a run."""

import math
from dataclasses import dataclass

DAY, MONTH = 86_400, 30 * 86_400

MAX_WINDOW = 65_536
"""The largest coordination.window."""

_MAX_AGE = 1.5
"""The highest age of an update's base, in periods, as devices of benchmarks/crowd.py push."""


@dataclass(frozen=True, slots=True)
class FleetLoad:
    """A fleet whose devices push an update every `period` seconds. The answer brings them the model."""

    devices: int
    period: float
    parameters: int = 211_690
    entries: int = 0
    """Entries of an update. 0 means the square root of the parameters, the default."""
    tls: bool = True
    answered_entries: int = 0
    """Entries of an answer. 0 means as many as an update has."""
    cohort: int = 0
    """Devices that take part at a time (coordination.cohort), each with an update a period. 0: all."""
    torch: bool = True
    """Whether the model is a torch module, which the server loads."""

    @property
    def active(self) -> int:
        """The number of devices that push. The others wait for their turn."""
        return min(self.devices, self.cohort or self.devices)

    @property
    def rate(self) -> float:
        """Updates a second."""
        return self.active / self.period

    @property
    def sent_entries(self) -> int:
        """Entries of an update."""
        return self.entries or round(math.sqrt(self.parameters))

    @property
    def received_entries(self) -> int:
        """Entries of an answer."""
        return self.answered_entries or self.sent_entries

    @property
    def window(self) -> int:
        """The coordination.window at which no update is refused.

        A device trains on the model of its last answer, which is a period old. All other working devices push
        meanwhile.
        """
        return min(MAX_WINDOW, max(256, math.ceil(_MAX_AGE * self.active)))

    @property
    def staleness_bytes(self) -> float:
        """Bytes of staleness for each parameter. server/descent/staleness.py has the formula."""
        block, count = (8, 8) if self.window <= 256 else (64, 16)
        return (math.ceil(self.window / block) + 1) * (block + count) / 8 + count / 8


@dataclass(frozen=True, slots=True)
class Machine:
    """The resources that each process may take, the same for all parts."""

    memory: float = 24e9
    disk: float = 100e9
    files: int = 65_536
    """Open files of a process (ulimit -n)."""
    egress: float = 125e6
    """Bytes a second to the network."""
    keep_days: float = 30
    """Days for which the journal has room on the disk."""


@dataclass(frozen=True, slots=True)
class ServerParts:
    """The number of each part that a run has in addition to the leader."""

    gateways: int = 0
    """0 means that devices connect to the server."""
    shards: int = 0
    """Model shards. 0 means that the model is in the server."""
    journal: str = "sqlite"
    """A key of costs.ROWS_PER_SECOND."""

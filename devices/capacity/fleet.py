"""What is asked for: devices, machines, and how many of each part a run has."""

import math
from dataclasses import dataclass

DAY, MONTH = 86_400, 30 * 86_400

WIDEST = 65_536
"""The most of coordination.window."""

_LATE = 1.5
"""Periods that an update's base is old at most, as devices of benchmarks/crowd.py push."""


@dataclass(frozen=True, slots=True)
class FleetLoad:
    """Devices that push an update every `period` seconds, whose answer brings them the model."""

    devices: int
    period: float
    parameters: int = 211_690
    entries: int = 0
    """Of an update; 0: the root of the parameters, as it comes."""
    tls: bool = True
    answered: int = 0
    """Entries of an answer; 0: as many as of an update."""
    cohort: int = 0
    """Devices of a round (coordination.cohort), each of which pushes once a period; 0: all at any time."""
    torch: bool = True
    """Whether the model is a torch module, which the server loads."""

    @property
    def working(self) -> int:
        """Devices that push; the others wait for their turn."""
        return min(self.devices, self.cohort or self.devices)

    @property
    def rate(self) -> float:
        """Updates a second."""
        return self.working / self.period

    @property
    def sent(self) -> int:
        """Entries of an update."""
        return self.entries or round(math.sqrt(self.parameters))

    @property
    def received(self) -> int:
        """Entries of an answer."""
        return self.answered or self.sent

    @property
    def window(self) -> int:
        """coordination.window, for which an update is not refused: a device trains on the model of its last
        answer, which is a period old, and all others that work push meanwhile."""
        return min(WIDEST, max(256, math.ceil(_LATE * self.working)))

    @property
    def staleness_bytes(self) -> float:
        """A parameter; server/descent/staleness.py has the formula."""
        block, count = (8, 8) if self.window <= 256 else (64, 16)
        return (math.ceil(self.window / block) + 1) * (block + count) / 8 + count / 8


@dataclass(frozen=True, slots=True)
class Machine:
    """What each process may take: of all parts the same."""

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
    """How many of each a run has beside the server that leads."""

    gateways: int = 0
    """0: devices come directly."""
    spare: int = 0
    """Of the gateways, those without which the others suffice."""
    shards: int = 0
    """0: the model is in the server."""
    standbys: int = 0
    """Servers that stand by."""
    journal: str = "sqlite"
    """A key of costs.ROWS_PER_SECOND."""

    @property
    def carrying(self) -> int:
        """Gateways that there are at the worst."""
        return max(1, self.gateways - self.spare)

"""What a fleet takes of one server, resource by resource."""

import math
from dataclasses import dataclass, replace

from edgeflock.devices.capacity import costs

DAY, MONTH = 86_400, 30 * 86_400


@dataclass(frozen=True, slots=True)
class Fleet:
    """Devices that push an update every `period` seconds, whose answer brings them the model."""

    devices: int
    period: float
    parameters: int = 211_690
    entries: int = 0
    """Of an update, and of its answer; 0: the root of the parameters, as it comes."""
    tls: bool = True

    @property
    def rate(self) -> float:
        """Updates a second."""
        return self.devices / self.period

    @property
    def sent(self) -> int:
        return self.entries or round(math.sqrt(self.parameters))


@dataclass(frozen=True, slots=True)
class Machine:
    """What the server may take."""

    memory: float = 24e9
    disk: float = 100e9
    files: int = 65_536
    """Open files of a process (ulimit -n)."""
    egress: float = 125e6
    """Bytes a second to the network."""
    keep_days: float = 30
    """Days for which the journal has room on the disk."""


@dataclass(frozen=True, slots=True)
class Need:
    """What a fleet comes to. Bytes are of the network, with TLS, TCP and IP."""

    updates_per_second: float
    push_seconds: float
    """Processor time of an update and its answer, at a server that does not come to rest between them."""
    cores: float
    """Busy in the mean, at most one: theta has one writer. Not proportional: a busy server wakes up less."""
    memory_bytes: float
    journal_bytes_a_day: float
    snapshot_bytes: float
    copies_bytes: float
    """Of what devices hold of their own, in a file."""
    disk_bytes: float
    up_bytes: float
    """Of an update, as the server counts it; and"""
    down_bytes: float
    """of its answer."""
    ingress_bytes_a_month: float
    egress_bytes_a_month: float
    sockets: int
    shares: dict[str, float]
    """Of what there can be of each resource, the part that is taken; above 1 it does not fit."""

    @property
    def first(self) -> str:
        """The resource that ends first."""
        return max(self.shares, key=lambda name: self.shares[name])


def need_of(fleet: Fleet, machine: Machine) -> Need:
    up = costs.AROUND_UP_BYTES + costs.ENTRY_UP_BYTES * fleet.sent
    down = costs.AROUND_DOWN_BYTES + costs.ENTRY_DOWN_BYTES * fleet.sent
    seconds = push_seconds(fleet, group_of(fleet)) + answer_seconds(fleet)
    row = (up - costs.HEADER_UP_BYTES + costs.ROW_BYTES) * costs.PAGES
    copies = costs.COPY_BYTES * fleet.parameters * fleet.devices
    spilled = min(max(0, copies - costs.COPIES_BYTES), costs.COPIES_DISK_BYTES)
    snapshots = 4.0 * costs.SNAPSHOT_VECTORS * fleet.parameters
    socket = costs.PLAIN_BYTES + costs.TLS_SOCKET_BYTES * fleet.tls
    memory = (
        costs.SERVER_BYTES
        + costs.PARAMETER_BYTES * fleet.parameters
        + min(copies, costs.COPIES_BYTES)
        + socket * fleet.devices
    )
    disk = fleet.rate * DAY * row * machine.keep_days + snapshots + spilled
    # Each way a packet for the message, and one that acknowledges the other's.
    around = costs.TLS_BYTES * fleet.tls + 2 * costs.PACKET_BYTES
    return Need(
        updates_per_second=fleet.rate,
        push_seconds=seconds,
        cores=busy(fleet.rate, seconds),
        memory_bytes=memory,
        journal_bytes_a_day=fleet.rate * DAY * row,
        snapshot_bytes=snapshots,
        copies_bytes=spilled,
        disk_bytes=disk,
        up_bytes=up,
        down_bytes=down,
        ingress_bytes_a_month=fleet.rate * MONTH * (up + around),
        egress_bytes_a_month=fleet.rate * MONTH * (down + around),
        sockets=fleet.devices,
        shares={
            # Commits do not count: the longer updates wait, the more of them share one.
            "cores": fleet.rate * (push_seconds(fleet, math.inf) + answer_seconds(fleet)),
            "memory": memory / machine.memory,
            "disk": disk / machine.disk,
            "egress": fleet.rate * (down + around) / machine.egress,
            "sockets": fleet.devices / machine.files,
        },
    )


def busy(rate: float, seconds: float) -> float:
    """The part of its time that a server works which takes `seconds` an update and, if it was idle, a wake-up
    before it, as a queue with set-up times does: x = rate (seconds + (1 - x) wake).
    """
    wake = rate * costs.WAKE_SECONDS
    return min(1.0, (rate * seconds + wake) / (1 + wake))


def group_of(fleet: Fleet) -> float:
    """Updates that share a commit, as they come by chance."""
    return min(float(fleet.devices), max(1.0, fleet.rate * costs.GROUP_SECONDS))


def push_seconds(fleet: Fleet, group: float, entries: int | None = None) -> float:
    """Processor time of an update without an answer, of those that share a commit; of `entries` in another
    coding than the grid's, if they are given."""
    known = fleet.sent if entries is None else entries
    lines = fleet.parameters / costs.LINE_PARAMETERS
    touched = -lines * math.expm1(-known / lines)
    near = fleet.parameters <= costs.NEAR_PARAMETERS
    return (
        costs.PUSH_SECONDS
        + costs.COMMIT_SECONDS / group
        + touched * (costs.LINE_SECONDS if near else costs.FAR_LINE_SECONDS)
        + (costs.DECODE_SECONDS * known if entries is None else 0.0)
    )


def answer_seconds(fleet: Fleet) -> float:
    """Processor time of the model's changes for one device."""
    return costs.PASS_SECONDS * fleet.parameters + costs.ENCODE_SECONDS * fleet.sent


def largest(fleet: Fleet, machine: Machine) -> int:
    """How many such devices one server can have; 0 if not even one."""
    fits, too_many = 0, 1
    while _fits(fleet, machine, too_many):
        fits, too_many = too_many, 2 * too_many
    while too_many - fits > 1:
        middle = (fits + too_many) // 2
        if _fits(fleet, machine, middle):
            fits = middle
        else:
            too_many = middle
    return fits


def _fits(fleet: Fleet, machine: Machine, devices: int) -> bool:
    need = need_of(replace(fleet, devices=devices), machine)
    return need.shares[need.first] <= 1

"""What a fleet needs of each part of a run, for each resource."""

import math
from dataclasses import dataclass

import numpy as np

from edgeflock.devices.capacity import costs
from edgeflock.devices.capacity.fleet import DAY, MAX_WINDOW, FleetLoad, Machine, ServerParts


@dataclass(frozen=True, slots=True)
class Need:
    """What one process of a part needs."""

    part: str
    """leader, gateway, shard or database."""
    count: int
    cores: float
    """Cores that are busy on average, at most one. Not linear in updates: a busy process wakes up less."""
    memory_bytes: float
    disk_bytes: float
    egress: float
    """Bytes per second that it sends, with TLS, TCP and IP."""
    shares: dict[str, float]
    """The part of each resource that is taken. Above 1 it does not fit."""

    @property
    def bottleneck(self) -> str:
        """The resource that runs out first."""
        return max(self.shares, key=lambda name: self.shares[name])


def estimate_needs(fleet: FleetLoad, machine: Machine, parts: ServerParts) -> list[Need]:
    """Return the need of each part of the run, the leader first."""
    needs = [leader(fleet, machine, parts)]
    if parts.gateways:
        needs.append(gateway(fleet, machine, parts))
    if parts.shards:
        needs.append(shard(fleet, machine, parts))
    if parts.journal != "sqlite":
        needs.append(database(fleet, machine, parts))
    return needs


def leader(fleet: FleetLoad, machine: Machine, parts: ServerParts) -> Need:
    """Return the need of the server that orders updates and writes the journal."""
    connections = 0 if parts.gateways else fleet.devices
    socket = costs.PLAIN_BYTES + costs.TLS_SOCKET_BYTES * fleet.tls
    copies = copies_bytes(fleet, parts, connections)
    memory = (
        server_bytes(fleet)
        + model_bytes(fleet, parts)
        + min(copies, costs.COPIES_BYTES)
        + (socket * connections or costs.RELAYED_DEVICE_BYTES * fleet.devices)
    )
    spilled = spilled_bytes(copies)
    has_journal = parts.journal == "sqlite"
    disk = spilled + (journal_bytes_a_day(fleet) * machine.keep_days + snapshot_bytes(fleet)) * has_journal
    if parts.gateways:
        # For each update: the receipt to its gateway, and the changes to all gateways.
        message_bytes = costs.LINK_DOWN_BYTES + costs.LINK_ENTRY_BYTES * fleet.sent_entries
        egress = fleet.rate * (costs.LINK_RECEIPT_BYTES + parts.gateways * message_bytes)
        seconds = relayed_push_seconds(fleet, parts)
    else:
        egress = fleet.rate * (answer_bytes(fleet, parts) + packet_bytes(fleet))
        seconds = push_seconds(fleet, parts) + answer_seconds(fleet, parts)
    shares = {
        "processor": fleet.rate * seconds,
        "memory": memory / machine.memory,
        "disk": disk / machine.disk,
        "network": egress / machine.egress,
        "sockets": (parts.gateways or fleet.devices) / machine.files,
        "window": fleet.active / MAX_WINDOW,
    }
    if has_journal:
        shares["rows"] = fleet.rate / costs.ROWS_PER_SECOND[parts.journal]
    wake = costs.RELAYED_WAKE_SECONDS if parts.gateways else costs.WAKE_SECONDS
    cores = busy_fraction(fleet, seconds, costs.COMMIT_SECONDS + wake)
    return Need("leader", 1, cores, memory, disk, egress, shares)


def gateway(fleet: FleetLoad, machine: Machine, parts: ServerParts) -> Need:
    """Return the need of one gateway."""
    connections = math.ceil(fleet.devices / parts.gateways)
    rate = fleet.rate * connections / fleet.devices
    socket = costs.GATEWAY_PLAIN_BYTES + costs.GATEWAY_TLS_SOCKET_BYTES * fleet.tls
    copies = copies_bytes(fleet, parts, connections)
    memory = (
        costs.GATEWAY_BYTES
        + costs.MIRROR_BYTES * fleet.parameters
        + min(copies, costs.COPIES_BYTES)
        + socket * connections
    )
    own = gateway_seconds(fleet, parts)
    follow = costs.FOLLOW_SECONDS + costs.FOLLOW_ENTRY_SECONDS * fleet.sent_entries
    up = costs.LINK_UP_BYTES + update_bytes(fleet)
    egress = rate * (answer_bytes(fleet, parts) + packet_bytes(fleet) + up)
    shares = {
        "processor": rate * own + fleet.rate * follow,
        "memory": memory / machine.memory,
        "disk": spilled_bytes(copies) / machine.disk,
        "network": egress / machine.egress,
        "sockets": connections / machine.files,
    }
    part = rate / fleet.rate
    wake = part * costs.RELAYED_WAKE_SECONDS + (1 - part) * costs.FOLLOW_WAKE_SECONDS
    cores = busy_fraction(fleet, follow + own * part, wake)
    return Need("gateway", parts.gateways, cores, memory, spilled_bytes(copies), egress, shares)


def shard(fleet: FleetLoad, machine: Machine, parts: ServerParts) -> Need:
    parameter_bytes = costs.PARAMETER_BYTES - costs.SHARDED_SERVER_PARAMETER_BYTES + fleet.staleness_bytes
    memory = costs.SHARD_BYTES + parameter_bytes * fleet.parameters / parts.shards
    _, fraction = shard_fractions(fleet.parameters)
    share = fleet.rate * step_seconds(fleet) * fraction / parts.shards
    shares = {"processor": share, "memory": memory / machine.memory}
    return Need("shard", parts.shards, min(1.0, share), memory, 0.0, 0.0, shares)


def database(fleet: FleetLoad, machine: Machine, parts: ServerParts) -> Need:
    """Return the need of PostgreSQL and its synchronous standby. Only rows and disk were measured."""
    disk = journal_bytes_a_day(fleet) * machine.keep_days + snapshot_bytes(fleet)
    shares = {"rows": fleet.rate / costs.ROWS_PER_SECOND[parts.journal], "disk": disk / machine.disk}
    count = 2 if parts.journal == "synchronous" else 1
    return Need("database", count, 0.0, 0.0, disk, 0.0, shares)


# Bytes


def update_bytes(fleet: FleetLoad) -> float:
    """Return the bytes of an update, as the server counts them."""
    return costs.FRAMING_UP_BYTES + costs.ENTRY_UP_BYTES * fleet.sent_entries


def answer_bytes(fleet: FleetLoad, parts: ServerParts) -> float:
    """Return the bytes of an update's answer: lossy, or exact if the model is in model shards."""
    if parts.shards:
        exact = costs.EXACT_BYTES * fleet.sent_entries * math.pow(fleet.active, costs.EXACT_GROWTH)
        return costs.FRAMING_DOWN_BYTES + min(exact, full_model_bytes(fleet, parts))
    return costs.FRAMING_DOWN_BYTES + costs.ENTRY_DOWN_BYTES * fleet.received_entries


def full_model_bytes(fleet: FleetLoad, parts: ServerParts) -> float:
    """Return the bytes of a whole model, for a device that holds nothing."""
    return costs.FULL_MODEL_BYTES * fleet.parameters * (4 if parts.shards else 1)


def packet_bytes(fleet: FleetLoad) -> float:
    """Return the bytes around a message, each way: its packet, and one that acknowledges the other side's."""
    return costs.TLS_BYTES * fleet.tls + 2 * costs.PACKET_BYTES


def journal_bytes_a_day(fleet: FleetLoad) -> float:
    row = (update_bytes(fleet) - costs.HEADER_UP_BYTES + costs.ROW_BYTES) * costs.PAGE_RATIO
    return fleet.rate * DAY * row


def snapshot_bytes(fleet: FleetLoad) -> float:
    return 4.0 * costs.SNAPSHOT_VECTORS * fleet.parameters


def copies_bytes(fleet: FleetLoad, parts: ServerParts, devices: int) -> float:
    """Return the bytes of the replicas of `devices` devices. Exact answers need none."""
    return 0.0 if parts.shards else float(costs.COPY_BYTES) * fleet.parameters * devices


def spilled_bytes(copies: float) -> float:
    """Return the part of `copies` bytes that is in a file."""
    return min(max(0.0, copies - costs.COPIES_BYTES), costs.COPIES_DISK_BYTES)


def server_bytes(fleet: FleetLoad) -> float:
    """Return the memory of a server without model and devices, but with torch if the model needs it."""
    return costs.SERVER_BYTES + costs.TORCH_BYTES * fleet.torch


def model_bytes(fleet: FleetLoad, parts: ServerParts) -> float:
    """Return the memory of the model at the server."""
    if parts.shards:
        return costs.RAY_BYTES + costs.SHARDED_SERVER_PARAMETER_BYTES * fleet.parameters
    return (costs.PARAMETER_BYTES + fleet.staleness_bytes) * fleet.parameters


# Seconds of a processor


def busy_fraction(fleet: FleetLoad, seconds: float, group_seconds: float) -> float:
    """Return the part of its time that a process is busy.

    It takes `seconds` for an update, and `group_seconds` for all updates of a group. The limit of a process
    does not count the latter, because the group grows while updates wait.
    """
    return min(1.0, fleet.rate * (seconds + group_seconds / group_size(fleet)))


def group_size(fleet: FleetLoad) -> float:
    """Return how many updates arrive together by chance."""
    return min(float(fleet.active), 1 + fleet.rate * costs.GROUP_SECONDS)


def step_seconds(fleet: FleetLoad, entries: int | None = None) -> float:
    """Return the time for the cache lines that an update of `entries` touches, in one process."""
    count = fleet.sent_entries if entries is None else entries
    lines = fleet.parameters / costs.LINE_PARAMETERS
    touched = -lines * math.expm1(-count / lines)
    is_cached = fleet.parameters * fleet.staleness_bytes <= costs.CACHED_BYTES
    return touched * (costs.CACHED_LINE_SECONDS if is_cached else costs.UNCACHED_LINE_SECONDS)


def shard_fractions(parameters: int) -> tuple[float, float]:
    """Return (the server's, all shards') part of one process's time, interpolated from the measured sizes."""
    sizes, server, shards = zip(*costs.SHARD_FRACTIONS, strict=True)
    log_size = np.log(parameters)
    return (
        float(np.exp(np.interp(log_size, np.log(sizes), np.log(server)))),
        float(np.exp(np.interp(log_size, np.log(sizes), np.log(shards)))),
    )


def push_seconds(fleet: FleetLoad, parts: ServerParts, entries: int | None = None) -> float:
    """Return the time of an update without a gateway, commit and answer.

    `entries` are those of another coding than the grid's.
    """
    step = step_seconds(fleet, entries) * (shard_fractions(fleet.parameters)[0] if parts.shards else 1.0)
    decode = costs.DECODE_SECONDS * fleet.sent_entries if entries is None else 0.0
    return costs.PUSH_SECONDS + costs.TLS_SECONDS * fleet.tls + step + decode


def relayed_push_seconds(fleet: FleetLoad, parts: ServerParts) -> float:
    """Return the server's time for an update that comes through a gateway, without its commit."""
    step = step_seconds(fleet) * (shard_fractions(fleet.parameters)[0] if parts.shards else 1.0)
    decode = costs.DECODE_SECONDS * fleet.sent_entries
    return costs.RELAYED_PUSH_SECONDS + step + decode + costs.NOTIFY_SECONDS * parts.gateways


def gateway_seconds(fleet: FleetLoad, parts: ServerParts) -> float:
    """Return the gateway's time for an update with its answer."""
    tls = costs.TLS_SECONDS * fleet.tls
    return costs.GATEWAY_SECONDS + tls + answer_seconds(fleet, parts)


def answer_seconds(fleet: FleetLoad, parts: ServerParts) -> float:
    """Return the time to prepare the model's changes for one device."""
    if parts.shards:
        return costs.EXACT_SECONDS * answer_bytes(fleet, parts)
    return costs.PASS_SECONDS * fleet.parameters + costs.ENCODE_SECONDS * fleet.received_entries

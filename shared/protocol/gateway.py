"""Messages between a gateway and its leader, over one WebSocket (docs/gateways.md): their items, and marks.

OF_GATEWAYS are the items of gateways, OF_LEADERS those of leaders. A message holds any number of items, in
order (gateway_coding.py). Records of devices travel in them unchanged. Both ends have one version. A leader
checks the items of its gateways, and closes the connection on any other input. They trust each other as far
as a credential of the role gateway allows.

A mark is how far a gateway has received the model: a leader's life and the number of its Changes.
"""

from typing import NamedTuple, get_args

GATEWAY = 5
"""The version of the gateway protocol; any other version is refused."""

LIFE = 16
"""The random bytes that identify a leader's life. A mark is these and the number of Changes, in eight
bytes."""


class AccessRequest(NamedTuple):
    """A client requests `path` from a gateway, with this secret. Answered by AccessGranted or Denied."""

    ticket: int
    """The gateway's number of the request; for /v1/session the number of the session, until it has ended."""
    bearer: str
    path: str
    certificate: bytes
    """The client's certificate, proved in TLS, in DER; empty: none."""


class Enter(NamedTuple):
    """The Hello of the session of this ticket. Answered by Entered or Denied."""

    ticket: int
    hello: bytes


class DeviceUpdate(NamedTuple):
    """An Update. Answered by UpdateTaken or Denied, and first by UpdateHeld if it waits for others."""

    device: int
    ingress: int
    """Bytes received from the device in this session so far, and"""
    egress: int
    """bytes sent to it."""
    update: bytes


class DeviceTelemetry(NamedTuple):
    """A Telemetry."""

    device: int
    telemetry: bytes


class DeviceRefused(NamedTuple):
    """The gateway refused a record of a device that is not an update."""

    device: int
    """0: the device had not entered."""
    code: str
    detail: str


class SessionEnded(NamedTuple):
    """The session of this ticket has ended, and none of its requests is open."""

    ticket: int
    reason: str
    ingress: int
    egress: int


class AliveReply(NamedTuple):
    """Whether data arrives from a device: the answer to AliveQuery."""

    device: int
    alive: bool


class Ready(NamedTuple):
    """A device is ready. Answered by Done or Denied, possibly later.

    In a run of tasks the device of this ticket has a model, or has computed a shard, and needs its next task.
    In a run of cohorts it waits for a model.
    """

    ticket: int
    version: int | None
    """The version of the model; None: it has computed a shard."""
    counted: bool
    """Whether the result is the first of its shard."""


class Shared(NamedTuple):
    """A Samples record of a device, for other devices."""

    device: int
    samples: bytes


class Spilled(NamedTuple):
    """This number of samples for a device waited too long at its gateway, or until the device left."""

    device: int
    samples: int


OfGateway = (
    AccessRequest | Enter | DeviceUpdate | DeviceTelemetry | DeviceRefused | SessionEnded | AliveReply | Ready
    | Shared | Spilled
)  # fmt: skip

OF_GATEWAYS: tuple[type[OfGateway], ...] = get_args(OfGateway)


class Sync(NamedTuple):
    """The initial state of a gateway; the first item of a connection."""

    gateway: int
    """The protocol version, GATEWAY."""
    welcome: bytes
    """The run's Welcome for devices, as a record."""
    config: str
    """The effective settings of the run, as JSON."""
    theta: bytes
    """The model of the Welcome's version: little-endian float32 [P + B]."""
    first: bytes
    """The file of the first model that devices load; empty if there is none."""
    pin: bytes
    """The pin of the public key that devices compare."""
    mark: bytes
    """The mark at which the following Changes begin."""
    authority: str
    """The authority of the certificates that devices must show, in PEM; empty: none."""
    learning_rate: float
    stop_reason: str | None
    diverged: str | None


class Resumed(NamedTuple):
    """Sent instead of a Sync: the Changes after the gateway's mark, which it missed."""

    mark: bytes
    changes: list[bytes]
    """The missed Changes, packed."""
    digest: bytes
    """SHA-256 of theta after these Changes: little-endian float32 [P + B]."""


class Change(NamedTuple):
    """The model has a new version, which is durable."""

    version: int
    touched: list[int] | None
    """The number of parameters that each version since the last Change has changed, oldest first; None: all
    of them."""
    indices: bytes
    """The parameters of the first version, then those of the second, ...: little-endian int32."""
    values: bytes
    """Their current values, then the running statistics: little-endian float32. All of theta, if `touched` is
    None."""
    replaced: bool
    """Whether the model was replaced: no difference leads to it."""
    learning_rate: float
    stop_reason: str | None
    diverged: str | None


class AccessGranted(NamedTuple):
    """The client of an AccessRequest may continue."""

    ticket: int
    challenge: str
    """The challenge that a device must sign; empty: none."""
    rotate: bool
    """Whether the device must replace its key."""


class Entered(NamedTuple):
    """A device may enter."""

    ticket: int
    device: int
    sequence: int
    secret: bytes
    paused: str | None
    """The reason why an operator paused the device; None: it is not paused."""


class Denied(NamedTuple):
    """A request was refused."""

    ticket: int
    """0: the refusal is of an update, of"""
    device: int
    code: str
    detail: str
    seconds: int


class UpdateTaken(NamedTuple):
    """An update is in the model, and durable."""

    device: int
    sequence: int
    version: int
    staleness: int
    moments: bytes
    """As in a Receipt, as are"""
    labels: bytes
    """these."""


class UpdateHeld(NamedTuple):
    """An update waits for others. In a run of tasks its device does not wait for another answer."""

    device: int


class End(NamedTuple):
    """The gateway must end the session of a device."""

    device: int
    code: str
    """The code of a refusal; empty: the device may reconnect at once."""
    detail: str
    seconds: int


class AliveQuery(NamedTuple):
    """Asks whether data arrives from this device."""

    device: int


class Paused(NamedTuple):
    """An operator pauses a device, which then waits for its answers, or resumes it."""

    device: int
    reason: str | None
    """None: the device resumes."""


class DeviceRecord(NamedTuple):
    """A record for the device of this ticket in a run of tasks: a Task, Over or Stop."""

    ticket: int
    record: bytes


class Done(NamedTuple):
    """The answer to a Ready has been sent; or it is the device's turn."""

    ticket: int


class DealtSamples(NamedTuple):
    """A Samples record of other devices, for this device."""

    device: int
    samples: bytes


OfLeader = (
    Sync | Change | AccessGranted | Entered | Denied | UpdateTaken | UpdateHeld | End | AliveQuery | Paused
    | DeviceRecord | Done | DealtSamples | Resumed
)  # fmt: skip

OF_LEADERS: tuple[type[OfLeader], ...] = get_args(OfLeader)


def first_mark(life: bytes) -> bytes:
    """The mark before the first Change of a leader's life."""
    return life + bytes(8)


def advance(mark: bytes, changes: int) -> bytes:
    """The mark after `changes` more Changes."""
    return mark[:LIFE] + (int.from_bytes(mark[LIFE:], "big") + changes).to_bytes(8, "big")


def changes_between(mark: bytes, newer: bytes) -> int | None:
    """The number of Changes from one mark to the other; None if they do not lead there."""
    if len(mark) != len(newer) or mark[:LIFE] != newer[:LIFE]:
        return None
    changes = int.from_bytes(newer[LIFE:], "big") - int.from_bytes(mark[LIFE:], "big")
    return changes if changes >= 0 else None

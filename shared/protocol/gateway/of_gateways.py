"""Items that a gateway sends to its leader."""

from typing import NamedTuple, get_args


class AccessRequest(NamedTuple):
    """A client requests `path` from a gateway, with this secret. Answered by Known or Denied."""

    ticket: int
    """The gateway's number of the request; for /v1/session the number of the session, until it is Gone."""
    bearer: str
    path: str
    address: str
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
    AccessRequest
    | Enter
    | DeviceUpdate
    | DeviceTelemetry
    | DeviceRefused
    | SessionEnded
    | AliveReply
    | Ready
    | Shared
    | Spilled
)

OF_GATEWAYS: tuple[type[OfGateway], ...] = get_args(OfGateway)

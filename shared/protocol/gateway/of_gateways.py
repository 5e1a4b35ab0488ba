"""What a gateway tells its leader."""

from typing import NamedTuple, get_args


class Knock(NamedTuple):
    """Somebody asks a gateway for `path`, and shows this secret. Answered by Known or Denied."""

    ticket: int
    """A number of the gateway's; for /v1/session that of the session to be, until it is Gone."""
    bearer: str
    path: str
    address: str
    certificate: bytes
    """That it has shown and proved in TLS, in DER; empty: none."""


class Enter(NamedTuple):
    """The Hello of the session of this ticket. Answered by Entered or Denied."""

    ticket: int
    hello: bytes


class DeviceUpdate(NamedTuple):
    """An Update. Answered by Taken or Denied, and by Held before if it waits for others."""

    device: int
    ingress: int
    """Bytes from the device in this session by now, and"""
    egress: int
    """to it."""
    update: bytes


class DeviceTelemetry(NamedTuple):
    """A Telemetry."""

    device: int
    telemetry: bytes


class DeviceRefused(NamedTuple):
    """A device was refused something that is no update."""

    device: int
    """0: before it was let in."""
    code: str
    detail: str


class Gone(NamedTuple):
    """The session of this ticket has ended, and nothing of it is under way."""

    ticket: int
    why: str
    ingress: int
    egress: int


class Lives(NamedTuple):
    """Whether anything comes of a device: the answer to Ask."""

    device: int
    alive: bool


class Ready(NamedTuple):
    """In a run of tasks: the device of this ticket has a model, or has computed a shard, and is to be told
    what comes next. In a run of cohorts: it wants a model. Answered by Done or Denied, if need be later.
    """

    ticket: int
    version: int | None
    """Of the model; None: it has computed a shard."""
    counted: bool
    """Whether that is the first result of its shard."""


class Shared(NamedTuple):
    """A Samples of a device, for others."""

    device: int
    samples: bytes


class Spilled(NamedTuple):
    """So many samples that were for a device have waited too long at its gateway, or until it left."""

    device: int
    samples: int


OfGateway = (
    Knock | Enter | DeviceUpdate | DeviceTelemetry | DeviceRefused | Gone | Lives | Ready | Shared | Spilled
)

OF_GATEWAYS: tuple[type[OfGateway], ...] = get_args(OfGateway)

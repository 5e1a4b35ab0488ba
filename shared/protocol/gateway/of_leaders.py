"""Items that a leader sends to its gateways."""

from typing import NamedTuple, get_args

GATEWAY = 2
"""The version of the gateway protocol; any other version is refused."""


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
    closed: bool
    """Whether only devices that have joined may enter."""
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
    """The client of a Knock may continue."""

    ticket: int
    role: str
    name: str
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
    status: int
    """The HTTP status."""


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
    """The answer to a Ready has been Said; or it is the device's turn."""

    ticket: int


class DealtSamples(NamedTuple):
    """A Samples record of other devices, for this device."""

    device: int
    samples: bytes


OfLeader = (
    Sync
    | Change
    | AccessGranted
    | Entered
    | Denied
    | UpdateTaken
    | UpdateHeld
    | End
    | AliveQuery
    | Paused
    | DeviceRecord
    | Done
    | DealtSamples
    | Resumed
)

OF_LEADERS: tuple[type[OfLeader], ...] = get_args(OfLeader)

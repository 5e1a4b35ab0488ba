"""What a leader tells its gateways."""

from typing import NamedTuple, get_args

GATEWAY = 2
"""Version of all this; another one is refused."""


class Sync(NamedTuple):
    """All that a gateway needs to begin with; the first item of a line."""

    gateway: int
    """GATEWAY."""
    welcome: bytes
    """What devices are told of the run, as a record."""
    config: str
    """The settings that hold for it, as JSON."""
    theta: bytes
    """The model of the Welcome's version: little-endian float32 [P + B]."""
    first: bytes
    """The file that devices load the first model from; empty if there is none."""
    pin: bytes
    """Of the public key that devices compare."""
    mark: bytes
    """Of where the Changes begin that follow."""
    authority: str
    """Whose certificates devices must show, in PEM; empty: they need not."""
    closed: bool
    """Whether only devices that have joined are let in."""
    learning_rate: float
    over: str | None
    diverged: str | None


class Resumed(NamedTuple):
    """In the place of a Sync: the gateway has shown the mark of its last Change, and is told what it has
    missed.
    """

    mark: bytes
    changes: list[bytes]
    """Changes, packed."""
    digest: bytes
    """SHA-256 of theta behind them: little-endian float32 [P + B]."""


class Change(NamedTuple):
    """The model has come to a version, durable."""

    version: int
    touched: list[int] | None
    """How many parameters each of the versions since the last Change has touched, the last one last; None:
    all of them."""
    where: bytes
    """Those of the first, then those of the second, ...: little-endian int32."""
    values: bytes
    """What they are now, then the running statistics: little-endian float32. All of theta, if `touched` is
    None."""
    again: bool
    """Whether it is another model now, which no difference leads to."""
    learning_rate: float
    over: str | None
    diverged: str | None


class Known(NamedTuple):
    """Who knocks may go on."""

    ticket: int
    role: str
    name: str
    challenge: str
    """What a device is to prove itself with; empty: nothing."""
    rotate: bool
    """Whether it is to get another key."""


class Entered(NamedTuple):
    """A device is let in."""

    ticket: int
    device: int
    sequence: int
    secret: bytes
    paused: str | None
    """Why an operator lets it wait; None: nobody does."""


class Denied(NamedTuple):
    """Something was refused."""

    ticket: int
    """0: it is about an update, of"""
    device: int
    code: str
    detail: str
    seconds: int
    status: int
    """As HTTP has it."""


class UpdateTaken(NamedTuple):
    """An update is in the model, durable."""

    device: int
    sequence: int
    version: int
    staleness: int
    moments: bytes
    """As in a Receipt, and"""
    labels: bytes
    """these too."""


class UpdateHeld(NamedTuple):
    """An update waits for others. In a run of tasks its device waits no longer, and nothing follows."""

    device: int


class End(NamedTuple):
    """The session of a device is to end."""

    device: int
    code: str
    """Of a refusal; empty: it is to come again at once."""
    detail: str
    seconds: int


class AliveQuery(NamedTuple):
    """Whether anything comes of this device."""

    device: int


class Paused(NamedTuple):
    """An operator lets a device wait for its answers, or go on."""

    device: int
    because: str | None
    """None: it goes on."""


class Said(NamedTuple):
    """What the device of this ticket is told in a run of tasks: a Task, Over or Stop."""

    ticket: int
    record: bytes


class Done(NamedTuple):
    """What a Ready comes to has been Said; or it is the device's turn."""

    ticket: int


class Dealt(NamedTuple):
    """A Samples of others, for a device."""

    device: int
    samples: bytes


OfLeader = (
    Sync
    | Change
    | Known
    | Entered
    | Denied
    | UpdateTaken
    | UpdateHeld
    | End
    | AliveQuery
    | Paused
    | Said
    | Done
    | Dealt
    | Resumed
)

OF_LEADERS: tuple[type[OfLeader], ...] = get_args(OfLeader)

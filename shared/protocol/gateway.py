"""What a gateway and its leader tell each other, over one WebSocket (docs/gateways.md).

    gateway -> leader    Knock, Enter, Given, Decoded, Told, Blamed, Gone, Lives, Ready, Shared, Spilled
    leader -> gateway    Sync, Resumed, Change, Known, Entered, Denied, Taken, Held, End, Ask, Paused, Said,
                         Done, Dealt

A message holds any number of items, in order: a msgpack array of arrays [tag, field, ...]. Records of devices
travel in them as they came. Both ends are of one version, and trust each other as far as a credential of the
role gateway goes: a leader looks at what its gateways say, and hangs up on what is none of this.
"""

from collections.abc import Iterable
from types import UnionType
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints

import msgpack
import numpy as np
from numpy.typing import NDArray

from edgeflock.shared.errors import Malformed

GATEWAY = 1
"""Version of all this; another one is refused."""

LIFE = 16
"""Bytes that a leader draws anew for each of its lives. A mark, which says up to where somebody was told of
the model, is these and how many Changes there were, in eight bytes."""

LONGEST = 1 << 20
"""Bytes of items that share a message. One that is longer has a message of its own."""


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


class Given(NamedTuple):
    """An Update. Answered by Taken or Denied, and by Held before if it waits for others."""

    device: int
    ingress: int
    """Bytes from the device in this session by now, and"""
    egress: int
    """to it."""
    update: bytes


class Decoded(NamedTuple):
    """An Update that tells nothing of its device, decoded. Answered as Given."""

    device: int
    ingress: int
    egress: int
    update: bytes
    """As it came."""
    sequence: int
    base: int
    index_mode: int
    value_mode: int
    loss: float
    samples: int
    task: int | None
    where: bytes
    """Little-endian int32, strictly increasing."""
    delta: bytes
    """What belongs there, little-endian float32, and"""
    statistics: bytes
    """the running statistics."""


class Told(NamedTuple):
    """A Telemetry."""

    device: int
    telemetry: bytes


class Blamed(NamedTuple):
    """A device was refused something."""

    device: int
    """0: before it was let in."""
    code: str
    detail: str
    update: bool
    """Whether it was an update."""


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
    what comes next. Answered by Done or Denied.
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


class Taken(NamedTuple):
    """An update is in the model, durable."""

    device: int
    sequence: int
    version: int
    staleness: int


class Held(NamedTuple):
    """An update waits for others. In a run of tasks its device waits no longer, and nothing follows."""

    device: int


class End(NamedTuple):
    """The session of a device is to end."""

    device: int
    code: str
    """Of a refusal; empty: it is to come again at once."""
    detail: str
    seconds: int


class Ask(NamedTuple):
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
    """What a Ready comes to has been Said."""

    ticket: int


class Dealt(NamedTuple):
    """A Samples of others, for a device."""

    device: int
    samples: bytes


Item = (
    Knock
    | Enter
    | Given
    | Decoded
    | Told
    | Blamed
    | Gone
    | Lives
    | Ready
    | Shared
    | Spilled
    | Sync
    | Change
    | Known
    | Entered
    | Denied
    | Taken
    | Held
    | End
    | Ask
    | Paused
    | Said
    | Done
    | Dealt
    | Resumed
)

OF_GATEWAYS: tuple[type[Item], ...] = (
    *(Knock, Enter, Given, Decoded, Told, Blamed, Gone, Lives, Ready, Shared, Spilled),
)
OF_LEADERS: tuple[type[Item], ...] = (
    *(Sync, Change, Known, Entered, Denied, Taken, Held, End, Ask, Paused, Said, Done, Dealt, Resumed),
)

_KINDS: dict[int, type[Item]] = dict(enumerate((*OF_GATEWAYS, *OF_LEADERS), 1))
_TAGS = {kind: tag for tag, kind in _KINDS.items()}


def _types_of(hint: Any) -> frozenset[type]:
    """Of the values that a field may have: of list[int] list, of str | None both."""
    options = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    return frozenset(get_origin(option) or option for option in options)


_TYPES: dict[int, list[frozenset[type]]] = {
    tag: [_types_of(hint) for hint in get_type_hints(kind).values()] for tag, kind in _KINDS.items()
}


def first_mark(life: bytes) -> bytes:
    """Before the first Change of a leader's life."""
    return life + bytes(8)


def further(mark: bytes, changes: int) -> bytes:
    """The mark behind so many more Changes."""
    return mark[:LIFE] + (int.from_bytes(mark[LIFE:], "big") + changes).to_bytes(8, "big")


def between(mark: bytes, later: bytes) -> int | None:
    """How many Changes lead from one mark to another; None: they do not."""
    if len(mark) != len(later) or mark[:LIFE] != later[:LIFE]:
        return None
    changes = int.from_bytes(later[LIFE:], "big") - int.from_bytes(mark[LIFE:], "big")
    return changes if changes >= 0 else None


def packed(item: Item) -> bytes:
    """One item, to go into a message."""
    octets: bytes = msgpack.packb((_TAGS[type(item)], *item))
    return octets


def message(items: Iterable[bytes]) -> bytes:
    """A message of packed items."""
    parts = list(items)
    return b"".join((b"\xdd", len(parts).to_bytes(4, "big"), *parts))


def batch(outbox: list[bytes]) -> tuple[list[bytes], int]:
    """What goes with one message, taken from the outbox, and its bytes."""
    size, count = 0, 0
    for octets in outbox:
        if count and size + len(octets) > LONGEST:
            break
        size, count = size + len(octets), count + 1
    taken = outbox[:count]
    del outbox[:count]
    return taken, size


def items(octets: bytes, taken: tuple[type[Item], ...]) -> list[Item]:
    """The items of a message, each one of `taken`. Raises Malformed."""
    try:
        arrays = msgpack.unpackb(octets)
        return [_item(array, taken) for array in arrays]
    except Malformed:
        raise
    except (ValueError, TypeError, msgpack.exceptions.UnpackException) as error:
        raise Malformed(
            f"no message between a gateway and a leader: {error or type(error).__name__}"
        ) from error


def numbers(octets: bytes, kind: str) -> NDArray[Any]:
    """A copy of the numbers in a field, of a numpy type such as <f4. Raises Malformed."""
    try:
        return np.frombuffer(octets, kind).copy()
    except ValueError as error:
        raise Malformed(f"{len(octets)} bytes are no numbers of the type {kind}") from error


def _item(array: list[object], taken: tuple[type[Item], ...]) -> Item:
    tag = array[0] if type(array) is list and array else None
    kind = _KINDS.get(tag) if type(tag) is int else None
    if kind is None or kind not in taken or len(array) != len(_TYPES[_TAGS[kind]]) + 1:
        raise Malformed(f"no item of a gateway's line, or out of turn: {tag!r:.40}")
    fields = array[1:]
    for value, name, types in zip(fields, kind._fields, _TYPES[_TAGS[kind]], strict=True):
        if type(value) not in types or (type(value) is int and value < 0):
            raise Malformed(f"{kind.__name__}.{name} is a {type(value).__name__}")
    return kind(*fields)  # type: ignore[arg-type]  # looked at just now

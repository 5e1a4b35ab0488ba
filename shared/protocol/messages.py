"""Every record that crosses a process. docs/protocol.md describes their bytes.

    device -> server    Credential, Hello, Pull, Update, Telemetry, Goodbye
    server -> device    Challenge, Welcome, Model, Receipt, Refusal, Stop, Task, Over
    both                Samples, SecureSum

`ORDER` is that of a record's fields on the wire. The last ones are left out there while they are as `USUAL`.
"""

from dataclasses import MISSING, dataclass, fields
from typing import NamedTuple, get_args

from edgeflock.shared.errors import Malformed
from edgeflock.shared.model.description import Description
from edgeflock.shared.model.held_out import Sketch
from edgeflock.shared.model.lora import Base
from edgeflock.shared.model.personal import Personal
from edgeflock.shared.model.start import Start, Weights

PROTOCOL = 2
"""Protocol version. Both ends speak exactly one; another one is refused."""

LONGEST_SHARDS = 800
"""Bytes of the names of a device's shards."""

LONGEST_REASON = 300
"""Characters of what a device says as it leaves."""

IN_FIRST_RECORD = "edgeflock-credential"
"""The WebSocket subprotocol of a device that shows its credential in its first record."""

Facts = dict[str, str | int | float]


class SumTerms(NamedTuple):
    """The terms of secure sums."""

    threshold: float
    """More than this part of a device's neighbours and itself must stay until the end of a round."""
    bits: int
    """Of an entry, the sign included."""
    fewest: int
    """The fewest devices of a sum."""

    @classmethod
    def from_msgpack(cls, value: object, name: str = "sums") -> "SumTerms":
        """Parse [threshold, bits, fewest] as unpacked from msgpack. Raises Malformed."""
        if type(value) is not list or [type(field) for field in value] != [float, int, int]:
            raise Malformed(f"{name} must be [threshold, bits, fewest]")
        terms = cls(*value)
        if not (0.5 <= terms.threshold < 1 and 2 <= terms.bits <= 16 and terms.fewest >= 2):
            raise Malformed(f"{name} must have a threshold from 1/2 on, 2 to 16 bits, and 2 devices or more")
        return terms


@dataclass(frozen=True, slots=True)
class Hello:
    """A device introduces itself; the first record of a session."""

    protocol: int
    device: str
    layout: bytes
    """Digest of the layout it has, or empty if it does not know yet."""
    facts: Facts
    """What it tells about itself for operators: backend, class, cores, ..."""
    shares: bool = False
    """Whether its owner lets samples of it go to others; only then does it get theirs."""
    secret: bytes = b""
    """That of the last Welcome, if it had one: only with it may it take the place of a session that lives."""
    shards: str = ""
    """The names of the data shards that it holds, with commas between: they are the tasks of a run that has
    such."""
    proof: bytes = b""
    """Its signature of the session's challenge (identity/proofs.py), if it has joined."""


@dataclass(frozen=True, slots=True)
class Welcome:
    """The server's answer to a Hello: the run and what to do in it."""

    protocol: int
    run: str
    """Identity of the run. Sequence numbers count within it."""
    model: str
    """Import string of the torch module, e.g. edgeflock.client.zoo:PaperCNN."""
    loss: str
    layout: list[object]
    """[[tensor name, [dimension, ...]], ...], of running statistics with a True behind (Layout.shapes)."""
    start: Start | None
    """How to make version 0; None: it must be loaded or pulled."""
    version: int
    sequence: int
    """The highest sequence number the server has from this device; the next one must be above."""
    batch: int
    """Samples to take per step."""
    local_steps: int
    """Steps to take per update."""
    local_rate: float
    """Learning rate of the steps between."""
    select: float
    """Fraction of the gradient's entries to send; 1 sends all of it."""
    balance: float
    """How the tensors share the selection: as (their number of entries) ** balance."""
    threshold: float
    """Send all of a gradient that loses more of |g|^2 than this by selection; 0: never."""
    feedback: float
    """Part of what was not sent that is left after 1,000 versions; it is added to the next gradient."""
    indices: int
    """Index mode to use for a sparse update."""
    values: int
    """Value mode to use."""
    frame_bytes: int
    """The longest message the server takes."""
    alpha: float
    """The probability to share samples at a step, and"""
    beta: float
    """the part of its batch to share then."""
    weights: Weights | None = None
    """The file that version 0 may be loaded from."""
    secret: bytes = b""
    """What the device shows when it comes back, so that its name is its own while it is here."""
    tasks: bool = False
    """Whether the server says which shard each update is of: a Task follows each Model, and answers each
    Update."""
    significance: float | None = None
    """Send the entries that are beyond so many times their parameter, in magnitude; None: the largest."""
    decays: bool = False
    """Whether that is to be divided by the root of the update's number."""
    elastic: float = 0.0
    """alpha of elastic averaging: the device keeps its own parameters, and an update is of what they differ
    from the model; 0: it is a gradient."""
    chunk: int = 0
    """Parameters of a chunk, each of which is exchanged by itself; 0: all at once."""
    momentum: float = 0.0
    """Nesterov's, of the device's own steps."""
    input: tuple[int, ...] | None = None
    """The shape of one sample's x; None: not known."""
    adam: bool = False
    """Whether the device's own steps are Adam's."""
    proximal: float = 0.0
    """What of the way back to the model that they set out from is added to their gradients (FedProx)."""
    app: bytes = b""
    """Configuration and array names for a device with its own app (app.py); empty: none."""
    data: Description | None = None
    """What the numbers and the targets of a sample are; None: nobody says."""
    held_out: Sketch | None = None
    """A sketch of the rows that the server evaluates on and devices must not train on; None: not sent."""
    adafactor: float = 0.0
    """Decay of the second moments that the device divides its gradients by the root of; 0: it does not."""
    balances: bool = False
    """Whether devices report which labels they hold, and train so that rare ones count."""
    select_interval: int = 0
    """Versions between two updates of a device up to which `select` holds; of more it sends more, in
    proportion. 0: `select` always holds."""
    evaluate: int = 0
    """Updates of a device from one evaluation on its own held-out data to the next; 0: none."""
    personal: Personal | None = None
    """The layers that the device trains for itself and never sends. `layout` does not have them."""
    base: Base | None = None
    """The frozen part of the model, which the device downloads once. `layout` then has the adapters alone."""
    private: bool = False
    """Whether devices keep their losses, and facts about their data, to themselves."""
    clip: float = 0.0
    """DP-SGD: the largest norm of an example's gradient; 0: a step's gradient is that of its batch."""
    noise: float = 0.0
    """DP-SGD: the standard deviation of a step's noise over `clip`, and"""
    examples: int = 0
    """the fewest examples that a device holds. Each is in a batch with the chance batch / examples."""
    sums: SumTerms | None = None
    """How the devices' gradients are summed in secret; None: each device sends updates of its own."""


@dataclass(frozen=True, slots=True)
class Pull:
    """Asks for the current model."""

    base: int | None
    """The version the device holds, so that the server may answer with the difference."""
    held: int = 0
    """What stands for all that it was sent to hold it (chain.py)."""
    start: int = 0
    stop: int = 0
    """Only the parameters from start up to stop are asked for, and `base` is of these; 0: the whole model."""


@dataclass(frozen=True, slots=True)
class Model:
    """theta at `version`: whole (base None), or the difference to what the device holds since `base`.

    Of a lossy difference the running statistics, if it brings them, stand behind its values.
    """

    version: int
    base: int | None
    index_mode: int
    value_mode: int
    count: int
    indices: bytes
    values: bytes
    changes: bool = False
    """Whether it is lossy: of a difference, values are to be added rather than taken."""

    @property
    def behind(self) -> int | None:
        """How many versions `base` is behind `version`."""
        return None if self.base is None else self.version - self.base


@dataclass(frozen=True, slots=True)
class Update:
    """A gradient, sparse or dense, computed from version `base`.

    Behind its values come the batch's statistics, if the model keeps running ones.
    """

    sequence: int
    base: int
    index_mode: int
    value_mode: int
    count: int
    indices: bytes
    values: bytes
    loss: float
    """Of the batch. It travels as a level (wire.py)."""
    samples: int
    pull: bool
    """Whether the receipt should carry the next model."""
    facts: Facts | None = None
    """What is new about the device, now and then, for operators: its stream, its health."""
    held: int = 0
    """As in a Pull: what the receipt's model may build on."""
    task: int | None = None
    """Which of the shards in the device's Hello it is of, from 0 on; None in a run without tasks."""
    moments: bytes = b""
    """The second moments of the device's gradients, now and then, under Adafactor (codecs/moments.py)."""
    labels: bytes = b""
    """The share of each class in the device's batches, now and then (codecs/labels.py)."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """The update is in the journal and in the model: durable, counted, never applied again."""

    sequence: int
    version: int
    """The version that this update made."""
    model: Model | None
    """Of that version or a later one, if it was asked for."""
    moments: bytes = b""
    """The mean of those that devices sent lately, if the update brought its device's."""
    labels: bytes = b""
    """The mean of the shares that devices reported, and that mean by their latest updates, if the update
    brought its device's."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """What was asked was refused and changed nothing."""

    code: str
    detail: str
    sequence: int | None
    """The update it answers, if it answers one."""
    seconds: int = 0
    """Before which it is no use to come again."""


@dataclass(frozen=True, slots=True)
class Stop:
    """The device need not send more: the run is over."""

    reason: str


@dataclass(frozen=True, slots=True)
class Samples:
    """Samples that a device shares, on their way to the server or from there to the other devices.

    There is no answer to it. The device that trains on the samples knows their shape.
    """

    count: int
    octets: bool
    """Whether x is unsigned bytes, each 255 times its value; else little-endian float32."""
    x: bytes
    labels: bool
    """Whether y is little-endian int32, for classes; else float32."""
    y: bytes


@dataclass(frozen=True, slots=True)
class Task:
    """What to compute next from the model that the device has, and what came of its last update."""

    shard: int | None
    """Which of the shards in its Hello, from 0 on; None: none for now, but another Task or Over comes."""
    counted: bool = True
    """Whether the Update that it answers was the first of its shard in this round. If not, it is not
    applied.
    """


@dataclass(frozen=True, slots=True)
class Over:
    """The round of the model that the device has is over: no update from that model counts any more."""

    version: int
    """The current version of the model. All updates that the device knows as counted are in it, and
    durable."""


@dataclass(frozen=True, slots=True)
class Telemetry:
    """What is new about the device while no update says it: it waits for samples, or for an answer.

    There is no answer to it. It may come while a question is under way.
    """

    facts: Facts


GOODBYES = ("finished", "retired", "error")
"""What the reason of a Goodbye begins with: it has done its part, its owner stops it, it failed. Another one
counts as its owner's."""


@dataclass(frozen=True, slots=True)
class Goodbye:
    """The device leaves, and says why. There is no answer to it; it closes the session."""

    reason: str
    """One of GOODBYES, a colon, and what people are to know."""


@dataclass(frozen=True, slots=True)
class Credential:
    """A device shows its credential; the first record where its request could not, as in a browser."""

    credential: str


@dataclass(frozen=True, slots=True)
class Challenge:
    """The server's answer to a Credential: what the headers of its answer to the request say otherwise."""

    challenge: bytes
    """For the proof in the Hello; empty: it needs none."""
    rotate: bool = False
    """Whether the operator wants the device to have another key."""


@dataclass(frozen=True, slots=True)
class SecureSum:
    """A step of a secure sum, and its answer (secure_sum/messages.py)."""

    step: int
    round: bytes
    """The digest of the round; empty in the first step, before which there is none."""
    body: bytes


Record = (
    Hello | Welcome | Pull | Model | Update | Receipt | Refusal | Stop | Samples | Task | Over | Telemetry
    | Goodbye | Credential | Challenge | SecureSum
)  # fmt: skip

TAGS: dict[type[Record], int] = {kind: tag for tag, kind in enumerate(get_args(Record), 1)}
"""The first element of a record's msgpack array: 1 of a Hello, and on in the order above."""

_GRID, _SCALE = 3, 5  # as the codecs number them

ORDER: dict[type[Record], tuple[str, ...]] = {kind: kind.__match_args__ for kind in TAGS} | {
    Model: ("version", "behind", "count", "indices", "values", "changes", "index_mode", "value_mode"),
    Update: (
        "sequence", "base", "count", "indices", "values", "loss", "samples",
        "held", "index_mode", "value_mode", "facts", "pull", "task", "moments", "labels",
    ),
}  # fmt: skip
"""The fields that follow the tag. A Model says how far its base is behind, which is a small number."""

USUAL: dict[type[Record], tuple[object, ...]] = {
    kind: tuple(field.default for field in fields(kind) if field.default is not MISSING) for kind in TAGS
} | {
    Model: (0, b"", b"", True, _GRID, _SCALE),
    Update: (0, _GRID, _SCALE, None, True, None, b"", b""),
    Receipt: (None, b"", b""),
}
"""What its last fields mostly are."""

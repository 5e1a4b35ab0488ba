"""The error tree: every way a request can fail, its code on the wire and its status; and two signals.

    EdgeflockError
    ├── ConfigError                    a key, a value, a data set or a model the user named
    │   └── NotExportable              the model has no ONNX graph that trains it rightly
    ├── Diverged                       training left the finite numbers
    ├── TrainingFailed                 what trains on a device raised an error, which may pass
    ├── JournalDamaged                 the journal is not as it was written
    ├── JournalTooNew                  a newer version wrote it
    ├── ServerAtFault                  a server's answer that a device must not take; its part ends with it
    │   └── BadGraph                   an ONNX graph that does more than train, or takes more than there is
    └── Refused                        a peer's input; it changed nothing
        ├── WrongDtype                 unknown coding, one without its other half, or of another length
        ├── NonFinite                  NaN or infinity among the values
        ├── BadStatistics              a running variance below zero
        ├── IndexMalformed             a Golomb or grid stream that does not hold what it announces
        ├── IndexOutOfRange
        ├── IndexRepeated
        ├── IndexUnsorted
        ├── BaseInFuture               computed from a version the server never had
        ├── BaseExpired                computed from a version beyond the staleness window
        ├── ExpansionTooLarge          small on the wire, too large once decoded
        ├── StepTooLarge               it would take a parameter beyond what one can be
        ├── BadSamples                 computed from no samples, or from more than can be
        ├── BadSequence                a sequence number that cannot be one
        ├── SequenceAhead              one so far ahead that the device could never go on from there
        ├── NoSuchTask                 of no shard that the device holds, in a run of tasks
        ├── AlreadyComputed            of a shard that another update of the round is of
        ├── RunComplete                the run has all its updates
        ├── Forbidden                  through a gateway, without the certificate that the run demands
        └── SessionRefused             the session ends with it
            ├── Malformed              not one whole msgpack array of the record's fields
            ├── UnknownRecord
            ├── UnexpectedRecord       a known record out of turn
            ├── ProtocolVersion
            ├── LayoutMismatch
            ├── FrameTooLarge
            ├── Unauthorized
            ├── Superseded             the same device connected again
            ├── NameInUse              another device of this name is connected
            ├── Quarantined            refused again and again, it is not to come for a time
            ├── TooManyRefused         its updates would break the model, one after the other
            ├── RunDiverged            the model is broken, and waits for an operator
            ├── Dropped                an operator does not want this device
            ├── TooManyDevices
            ├── TooSlow                a message was begun and not finished in time
            ├── NoRoom                 too much is under way to the server at once
            └── Unavailable            the server stops or cannot write its journal

    WrongKey                           of the ssl module's: another server than the token names
    RunOver                            the server said Stop: the run has all it needs
    RunReplaced                        after a reconnect the server hosts another run

Code raises an error where it finds it. The edge maps it to a status once: to an HTTP status, or to
a Refusal record and, for a SessionRefused, the WebSocket close code 4000 + HTTP status.

RunOver and RunReplaced are signals, not errors. They end a device's part in a run, and nothing has failed.
Code that catches EdgeflockError to report a failure does not catch them.
"""

import ssl
from typing import ClassVar


class EdgeflockError(Exception):
    """Anything Edgeflock refuses or cannot do, with a message for a person."""


class ConfigError(EdgeflockError):
    """A setting, data set or model that cannot work; the message names key, value and remedy."""


class NotExportable(ConfigError):
    """The model cannot become an ONNX graph, or not one with autograd's gradients."""


class Diverged(EdgeflockError):
    """Training left the finite numbers: the learning rate is too high or the data are broken."""


class TrainingFailed(EdgeflockError):
    """A step of what trains on a device raised an error, which is the cause: another try may go well."""


class JournalDamaged(EdgeflockError):
    """A journal that is not as it was written, or never was one; the message names the file and the place."""


class JournalTooNew(EdgeflockError):
    """A journal that a newer version of Edgeflock wrote: this one must not guess what it means."""


class ServerAtFault(EdgeflockError):
    """What a server sent is not what a server sends; the message says what, for its operator."""


class BadGraph(ServerAtFault):
    """An ONNX graph that does more than train, or takes more than this device has."""


class Refused(EdgeflockError):
    """A peer's input that was refused and changed nothing."""

    code: ClassVar[str] = "refused"
    status: ClassVar[int] = 422
    seconds = 0
    """Before which it is no use to come again."""


class WrongDtype(Refused):
    code = "wrong-dtype"


class NonFinite(Refused):
    code = "non-finite"


class BadStatistics(Refused):
    code = "bad-statistics"


class IndexMalformed(Refused):
    code = "index-malformed"


class IndexOutOfRange(Refused):
    code = "index-out-of-range"


class IndexRepeated(Refused):
    code = "index-repeated"


class IndexUnsorted(Refused):
    code = "index-unsorted"


class BaseInFuture(Refused):
    code = "base-in-future"
    status = 409


class BaseExpired(Refused):
    code = "base-expired"
    status = 409


class ExpansionTooLarge(Refused):
    code = "expansion-too-large"
    status = 413


class BadSamples(Refused):
    code = "bad-samples"


class StepTooLarge(Refused):
    code = "step-too-large"


class BadSequence(Refused):
    code = "bad-sequence"
    status = 409


class SequenceAhead(Refused):
    code = "sequence-ahead"
    status = 409


class NoSuchTask(Refused):
    code = "no-such-task"


class AlreadyComputed(Refused):
    """It is answered by a Task that says so, not by a Refusal."""

    code = "already-computed"
    status = 409


class RunComplete(Refused):
    code = "run-complete"
    status = 410


class SessionRefused(Refused):
    """A refusal after which the server closes the WebSocket with 4000 + status."""

    code = "session-refused"
    status = 400


class Malformed(SessionRefused):
    code = "malformed"


class UnknownRecord(SessionRefused):
    code = "unknown-record"
    status = 404


class UnexpectedRecord(SessionRefused):
    code = "unexpected-record"
    status = 405


class ProtocolVersion(SessionRefused):
    code = "protocol-version"
    status = 426


class LayoutMismatch(SessionRefused):
    code = "layout-mismatch"
    status = 412


class FrameTooLarge(SessionRefused):
    code = "frame-too-large"
    status = 413


class Unauthorized(SessionRefused):
    code = "unauthorized"
    status = 401


class Forbidden(Refused):
    code = "forbidden"
    status = 403


class Superseded(SessionRefused):
    code = "superseded"
    status = 409


class NameInUse(SessionRefused):
    code = "name-in-use"
    status = 423


class Dropped(SessionRefused):
    code = "dropped"
    status = 403


class Quarantined(SessionRefused):
    code = "quarantined"
    status = 425


class TooManyRefused(SessionRefused):
    code = "too-many-refused"
    status = 422


class RunDiverged(SessionRefused):
    code = "run-diverged"
    status = 424


class TooManyDevices(SessionRefused):
    code = "too-many-devices"
    status = 429


class TooSlow(SessionRefused):
    code = "too-slow"
    status = 408


class NoRoom(SessionRefused):
    code = "no-room"
    status = 507


class Unavailable(SessionRefused):
    code = "unavailable"
    status = 503


class WrongKey(ssl.SSLCertVerificationError):
    """A server whose public key is not the one that its token names; nothing was sent to it."""


class RunOver(Exception):
    """The server said Stop: the run has all it needs."""


class RunReplaced(Exception):
    """After a reconnect the server hosts another run: begin anew."""


def _leaves(kind: type[Refused]) -> list[type[Refused]]:
    children = kind.__subclasses__()
    return [leaf for child in children for leaf in _leaves(child)] if children else [kind]


REFUSALS: dict[str, type[Refused]] = {kind.code: kind for kind in _leaves(Refused)}
"""Wire code -> class, so that a client raises what the server raised."""

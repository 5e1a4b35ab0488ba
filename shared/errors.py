"""The errors: every way a request can fail, its code on the wire and its status; and two signals.

EdgeflockError is the base of all that fails. A Refused is a peer's input, which changed nothing; a
SessionRefused also ends the session. Code raises an error where it finds it. The edge maps it to a status
once: to an HTTP status, or to a Refusal record and, for a SessionRefused, the WebSocket close code 4000 +
HTTP status.

RunOver and RunReplaced are signals, not errors. They end a device's part in a run, and nothing has failed.
Code that catches EdgeflockError to report a failure does not catch them.
"""

import re
import ssl
from typing import ClassVar


class EdgeflockError(Exception):
    """Anything Edgeflock refuses or cannot do, with a message for a person."""


class ConfigError(EdgeflockError):
    """A setting, data set or model that cannot work; the message names key, value and remedy."""


class InUse(ConfigError):
    """What another process has now. Its end mends this, so that a later start may work."""


class SeveralRuns(ConfigError):
    """A server that hosts several runs, where an address of one of them is needed."""


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
    """Its name on the wire: the class's own, in lower case and with dashes."""
    status: ClassVar[int] = 422
    seconds = 0
    """Before which it is no use to come again."""

    def __init_subclass__(cls, status: int | None = None) -> None:
        """`status` is that of the base, unless it is given."""
        cls.code = re.sub(r"\B(?=[A-Z])", "-", cls.__name__).lower()
        cls.status = cls.status if status is None else status


class WrongDtype(Refused):
    """Unknown coding, one without its other half, or of another length."""


class NonFinite(Refused):
    """NaN or infinity among the values."""


class BadStatistics(Refused):
    """A running variance below zero."""


class IndexMalformed(Refused):
    """A Golomb or grid stream that does not hold what it announces."""


class IndexOutOfRange(Refused):
    """An index beyond the parameters."""


class IndexRepeated(Refused):
    """An index occurs twice."""


class IndexUnsorted(Refused):
    """Indices do not increase."""


class BaseInFuture(Refused, status=409):
    """Computed from a version the server never had."""


class BaseExpired(Refused, status=409):
    """Computed from a version beyond the staleness window."""


class ExpansionTooLarge(Refused, status=413):
    """Small on the wire, too large once decoded."""


class BadSamples(Refused):
    """Computed from no samples, or from more than can be."""


class StepTooLarge(Refused):
    """It would take a parameter beyond what one can be."""


class BadSequence(Refused, status=409):
    """A sequence number that cannot be one."""


class SequenceAhead(Refused, status=409):
    """One so far ahead that the device could never go on from there."""


class NoSuchTask(Refused):
    """Of no shard that the device holds, in a run of tasks."""


class AlreadyComputed(Refused, status=409):
    """Of a shard that another update of the round is of. A Task says so, not a Refusal."""


class RunComplete(Refused, status=410):
    """The run has all its updates."""


class SessionRefused(Refused, status=400):
    """A refusal after which the server closes the WebSocket with 4000 + status."""


class Malformed(SessionRefused):
    """Not one whole msgpack array of the record's fields."""


class UnknownRecord(SessionRefused, status=404):
    """A record of an unknown type."""


class UnexpectedRecord(SessionRefused, status=405):
    """A known record out of turn."""


class ProtocolVersion(SessionRefused, status=426):
    """The device speaks another version of the protocol."""


class LayoutMismatch(SessionRefused, status=412):
    """The device has another layout of the model."""


class FrameTooLarge(SessionRefused, status=413):
    """A message longer than the limit."""


class Unauthorized(SessionRefused, status=401):
    """A credential that the server does not know."""


class Forbidden(Refused, status=403):
    """Through a gateway, without the certificate that the run demands."""


class Superseded(SessionRefused, status=409):
    """The same device connected again."""


class NameInUse(SessionRefused, status=423):
    """Another device of this name is connected."""


class Dropped(SessionRefused, status=403):
    """An operator does not want this device."""


class Quarantined(SessionRefused, status=425):
    """Refused again and again, it is not to come for a time."""


class TooManyRefused(SessionRefused, status=422):
    """Its updates would break the model, one after the other."""


class RunDiverged(SessionRefused, status=424):
    """The model is broken, and waits for an operator."""


class TooManyDevices(SessionRefused, status=429):
    """As many devices are connected as may be."""


class TooSlow(SessionRefused, status=408):
    """A message was begun and not finished in time."""


class NoRoom(SessionRefused, status=507):
    """Too much is under way to the server at once."""


class Unavailable(SessionRefused, status=503):
    """The server stops or cannot write its journal."""


class WrongKey(ssl.SSLCertVerificationError):
    """A server whose public key is not the one that its token names; nothing was sent to it."""


class RunOver(Exception):
    """The server said Stop: the run has all it needs."""


class RunReplaced(Exception):
    """After a reconnect the server hosts another run: begin anew."""


def one_line(error: Exception) -> str:
    """Return the text of a library's error, which may have several lines, on one."""
    return " ".join(str(error).split())


def _leaves(kind: type[Refused]) -> list[type[Refused]]:
    children = kind.__subclasses__()
    return [leaf for child in children for leaf in _leaves(child)] if children else [kind]


REFUSALS: dict[str, type[Refused]] = {kind.code: kind for kind in _leaves(Refused)}
"""Wire code -> class, so that a client raises what the server raised."""

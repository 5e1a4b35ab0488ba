"""Every refusal that a device or an operator can meet, of the tree of errors."""

from collections.abc import Iterator

from docs.site.settings import escaped
from edgeflock.shared import errors
from edgeflock.shared.errors import Refused, SessionRefused

_INTRODUCTION = """\
# Errors

A refusal changed nothing on the server. It has a code, which holds from version to version, and a text for a
person, which names the key, the value and the remedy. Over a WebSocket it is a Refusal record; a session that
ends with it is closed with 4000 + status. Over HTTP the status is the answer's.

| code | status | ends the session | meaning | what to do |
|---|--:|---|---|---|
"""

_CLIENT = "a client of our own never sends it: mend the client, or the line that changes what it sends"

REMEDIES = {
    "wrong-dtype": _CLIENT,
    "non-finite": "look for NaN or infinity among the device's samples; a lower learning rate",
    "bad-statistics": _CLIENT,
    "index-malformed": _CLIENT,
    "index-out-of-range": _CLIENT,
    "index-repeated": _CLIENT,
    "index-unsorted": _CLIENT,
    "base-in-future": "nothing: the server came back from an older copy, and devices begin with its model",
    "base-expired": "a larger coordination.window, or fewer local.steps, if it is so each time",
    "expansion-too-large": "limits.expansion_bytes, if the model is that large",
    "step-too-large": "a lower learning rate; limits.parameter, if parameters really are that large",
    "bad-samples": "limits.samples, if a device really takes that many",
    "bad-sequence": _CLIENT,
    "sequence-ahead": _CLIENT,
    "no-such-task": "client.shards of the device, and coordination.mode of the server",
    "already-computed": "nothing",
    "run-complete": "nothing; end.updates of the server, if it is to go on",
    "malformed": _CLIENT,
    "unknown-record": "the same version of Edgeflock on both ends",
    "unexpected-record": _CLIENT,
    "protocol-version": "the same version of Edgeflock on both ends",
    "layout-mismatch": "the device's client.model is another one than the server's model.module",
    "frame-too-large": "limits.frame_bytes, if the model is that large",
    "unauthorized": "edgeflock client join with a new token; edgeflock token create makes one",
    "forbidden": "the certificate that the device got when it joined; edgeflock device rotate gives another",
    "superseded": "nothing, if the device was restarted; else a name of its own for each",
    "name-in-use": "a name of its own for each device: --name",
    "quarantined": "what it was refused for is in its log; edgeflock device release NAME ends it early",
    "too-many-refused": "look at the device's data and the learning rate",
    "run-diverged": "edgeflock rollback VERSION, with a lower learning rate",
    "dropped": "ask the operator, who can resume the device",
    "too-many-devices": "limits.devices",
    "too-slow": "limits.message_seconds, for lines that take longer",
    "no-room": "nothing, it comes again; limits.inflight_bytes, if it is so each time",
    "unavailable": "nothing, it comes again; the server's log says what it is in trouble with",
}
"""Code -> the remedy, for whoever meets it."""


def page() -> str:
    """Markdown: a row a code."""
    rows = [
        f"| `{kind.code}` | {kind.status} | {'yes' if issubclass(kind, SessionRefused) else ''} "
        f"| {escaped(kind.__doc__ or '')} | {REMEDIES[kind.code]} |"
        for kind in refusals(Refused)
        if kind not in (Refused, SessionRefused)
    ]
    return _INTRODUCTION + "\n".join(rows) + "\n"


def refusals(kind: type[Refused]) -> Iterator[type[Refused]]:
    """`kind` and all below it, in the order in which the code has them."""
    yield kind
    for below in kind.__subclasses__():
        if below.__module__ == errors.__name__:
            yield from refusals(below)

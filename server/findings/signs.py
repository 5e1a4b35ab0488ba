"""The results of rules."""

from collections.abc import Callable, Container, Iterator
from typing import NamedTuple

from edgeflock.server.findings.status import RunStatus
from edgeflock.shared.protocol.frames import FindingKind, Severity

Subject = tuple[FindingKind, str | None]
"""(kind, device). There is at most one finding for each."""

Subjects = Container[Subject]
"""The subjects of the last findings."""


class Sign(NamedTuple):
    """A finding without its time."""

    kind: FindingKind
    severity: Severity
    device: str | None
    text: str
    remedy: str


Rule = Callable[[RunStatus, Subjects], Iterator[Sign]]

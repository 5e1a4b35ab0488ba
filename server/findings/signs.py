"""The results of rules."""

from collections.abc import Container
from typing import NamedTuple

from edgeflock.shared.protocol.frames import FindingKind, Severity

Subject = tuple[FindingKind, str | None]
"""(kind, device). There is at most one finding for each."""

Before = Container[Subject]
"""The subjects of the last findings."""


class Sign(NamedTuple):
    """A finding without its time."""

    kind: FindingKind
    severity: Severity
    device: str | None
    text: str
    remedy: str

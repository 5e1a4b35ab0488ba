"""What a rule hands out."""

from collections.abc import Container
from typing import NamedTuple

from edgeflock.shared.protocol.frames import FindingKind, Severity

Subject = tuple[FindingKind, str | None]
"""(kind, device): of each there is one finding at most."""

Before = Container[Subject]
"""What was found last."""


class Sign(NamedTuple):
    """A finding, but for the time since when."""

    kind: FindingKind
    severity: Severity
    device: str | None
    text: str
    remedy: str

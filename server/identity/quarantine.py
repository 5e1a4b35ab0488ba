"""How long a device that is refused repeatedly stays out: twice as long each time, up to an hour."""

from dataclasses import dataclass

FIRST, LONGEST = 60.0, 3600.0
"""Seconds."""

FORGOTTEN = 86_400.0
"""Seconds after the end of a quarantine until the next one is as short as the first."""


@dataclass(frozen=True, slots=True)
class QuarantineTerm:
    """A device's latest quarantine, which may be over."""

    until: float
    """Unix time."""
    seconds: float
    because: str


def sentence(before: QuarantineTerm | None, because: str, now: float) -> QuarantineTerm:
    """The quarantine that follows `before`."""
    if before is None or now > before.until + FORGOTTEN:
        seconds = FIRST
    else:
        seconds = min(LONGEST, 2 * before.seconds)
    return QuarantineTerm(now + seconds, seconds, because)

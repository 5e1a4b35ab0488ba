"""For how long a device that is refused again and again stays out: twice as long each time, up to an hour."""

from dataclasses import dataclass

FIRST, LONGEST = 60.0, 3600.0
"""Seconds."""

FORGOTTEN = 86_400.0
"""Seconds after the end of the last time when the next one is the first again."""


@dataclass(frozen=True, slots=True)
class QuarantineTerm:
    """The last one of a device; it may be over."""

    until: float
    """Unix time."""
    seconds: float
    because: str


def sentence(before: QuarantineTerm | None, because: str, now: float) -> QuarantineTerm:
    """What follows on the one `before`."""
    if before is None or now > before.until + FORGOTTEN:
        seconds = FIRST
    else:
        seconds = min(LONGEST, 2 * before.seconds)
    return QuarantineTerm(now + seconds, seconds, because)

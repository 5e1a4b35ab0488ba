"""How long a device that is refused repeatedly stays out: twice as long each time, up to an hour."""

from edgeflock.server.identity.records import QuarantineTerm

FIRST_SECONDS, LONGEST_SECONDS = 60.0, 3600.0
"""Seconds."""

RESET_SECONDS = 86_400.0
"""Seconds after the end of a quarantine until the next one is as short as the first."""


def next_quarantine(previous: QuarantineTerm | None, reason: str, now: float) -> QuarantineTerm:
    """The quarantine that follows `previous`."""
    if previous is None or now > previous.until + RESET_SECONDS:
        seconds = FIRST_SECONDS
    else:
        seconds = min(LONGEST_SECONDS, 2 * previous.seconds)
    return QuarantineTerm(now + seconds, seconds, reason)

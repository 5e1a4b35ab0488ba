"""What a guard knows of agreements, so that it judges."""

from edgeflock.server.defence import Decision, Guard

USUAL = (0.3, -0.1) * 32
"""Of mean 0.1 and deviation 0.2."""


def acquaint(guard: Guard | None, norm: float = 0.0) -> None:
    """With updates of somebody else that agreed as USUAL says, of this norm, if it is not 0."""
    assert guard is not None
    for agreement in USUAL:
        guard.took(99, Decision(1.0, norm, agreement, None))

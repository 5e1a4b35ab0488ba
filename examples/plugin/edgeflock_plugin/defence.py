"""defence.mode = "level": no update is larger than the usual one, whatever others allow."""

from edgeflock.server.defence import AdmittedUpdate, DefenceKind


def level(seen: AdmittedUpdate) -> float:
    """min(1, u / |g|), u the usual norm."""
    return seen.usual / seen.norm if 0 < seen.usual < seen.norm else 1.0


LEVEL = DefenceKind(level)

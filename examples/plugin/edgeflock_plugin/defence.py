"""defence.mode = "level": no update is larger than the usual one, whatever others allow."""

from edgeflock.server.defence import AdmittedUpdate, DefenceKind


def level(update: AdmittedUpdate) -> float:
    """min(1, u / |g|), u the usual norm."""
    return update.usual / update.norm if 0 < update.usual < update.norm else 1.0


LEVEL = DefenceKind(level)

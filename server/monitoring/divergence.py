"""Whether a model has diverged, by its evaluations, and the messages for people."""

from collections.abc import Callable, Sequence

from edgeflock.server.engine.steering.loss_monitor import is_sound
from edgeflock.server.ledger import Suspect
from edgeflock.shared.protocol.frames import Evaluation

FindSuspect = Callable[[int, int], Suspect | None]
"""(after, until) -> the update that may be to blame, of those that made these versions."""


def has_diverged(history: Sequence[Evaluation]) -> bool:
    """Whether the model has diverged by its last evaluation.

    Its loss is no number, or more than EXPLODED_RATIO times max(1, first loss).
    """
    return bool(history) and not is_sound(history[-1], _first_loss(history))


def describe_divergence(
    history: Sequence[Evaluation], included_version: Callable[[int], int]
) -> tuple[int, str]:
    """Return (the version to go back to, the reason why no update is taken and the remedy).

    `included_version` maps a version to the version whose model its evaluation describes.
    """
    last, first = history[-1], _first_loss(history)
    good = included_version(next((e.version for e in reversed(history) if is_sound(e, first)), 0))
    loss = "no number" if last.loss is None else f"{last.loss:.4g}"
    return good, (
        f"the model of version {last.version} has diverged (loss {loss}), that of {good} had not; no update "
        f"is taken until an operator goes back: edgeflock rollback {good}"
    )


def blame(suspect: Suspect | None) -> str:
    """Return a text for operators only, since devices get no news of each other."""
    if suspect is None:
        return ""
    if not suspect.is_large:
        return "; no device's steps stand out: the learning rate may be too high (coordination.learning_rate)"
    return (
        f"; the largest step between is update {suspect.sequence} of {suspect.device!r}, which made "
        f"version {suspect.version}"
    )


def _first_loss(history: Sequence[Evaluation]) -> float:
    return next((e.loss for e in history if e.loss is not None), 1.0)

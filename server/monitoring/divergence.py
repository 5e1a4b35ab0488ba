"""Whether a model is no good any more, by its evaluations, and what to tell people then."""

from collections.abc import Callable, Sequence

from edgeflock.server.engine.steering.rising import is_sound
from edgeflock.server.ledger import Suspect
from edgeflock.shared.protocol.frames import Evaluation

Suspecting = Callable[[int, int], Suspect | None]
"""(after, until) -> which of the updates that made these versions may be to blame."""


def has_diverged(history: Sequence[Evaluation]) -> bool:
    """Whether the last evaluation says so: its loss is no number, or more than EXPLODED times the first one,
    and 1.
    """
    return bool(history) and not is_sound(history[-1], _first_loss(history))


def reason(history: Sequence[Evaluation], shown: Callable[[int], int]) -> tuple[int, str]:
    """(The version to go back to, why no update is taken after an evaluation that says so and what to do.)

    `shown` has the version that the evaluation of another one tells of.
    """
    last, first = history[-1], _first_loss(history)
    good = shown(next((e.version for e in reversed(history) if is_sound(e, first)), 0))
    loss = "no number" if last.loss is None else f"{last.loss:.4g}"
    return good, (
        f"the model of version {last.version} has diverged (loss {loss}), that of {good} had not; no update "
        f"is taken until an operator goes back: edgeflock rollback {good}"
    )


def blame(suspect: Suspect | None) -> str:
    """What to add for operators: devices are told nothing of each other."""
    if suspect is None:
        return ""
    if not suspect.stands_out:
        return "; no device's steps stand out: the learning rate may be too high (coordination.learning_rate)"
    return (
        f"; the largest step between is update {suspect.sequence} of {suspect.device!r}, which made "
        f"version {suspect.version}"
    )


def _first_loss(history: Sequence[Evaluation]) -> float:
    return next((e.loss for e in history if e.loss is not None), 1.0)

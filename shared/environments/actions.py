"""Actions from the outputs of a policy.

A policy returns (logits, value) for a Discrete action space, (mean, log deviation, value) for a Box. `value`
is [n] or [n, 1].
"""

import numpy as np
from numpy.typing import NDArray

from edgeflock.shared.errors import ConfigError

Array = NDArray[np.float32]

_HALF_LOG = np.float32(0.5 * np.log(2 * np.pi))


def check(outputs: tuple[Array, ...], actions: int, *, discrete: bool) -> None:
    """Raise ConfigError unless `outputs` are those of `actions` classes or numbers, and a value."""
    shapes = [list(output.shape[1:]) for output in outputs]
    if discrete:
        wanted = f"(logits [n, {actions}], value [n])"
        fits = len(outputs) == 2 and shapes[0] == [actions]
    else:
        wanted = f"(mean [n, {actions}], log deviation [n, {actions}], value [n])"
        fits = len(outputs) == 3 and shapes[0] == shapes[1] == [actions]
    if not fits or shapes[-1] not in ([], [1]):
        raise ConfigError(
            f"the environment needs a policy that returns {wanted}, and model.module returns "
            f"{len(outputs)} tensors of shapes {[['n', *shape] for shape in shapes]}"
        )


def draw(
    outputs: tuple[Array, ...], random: np.random.Generator, *, greedy: bool = False
) -> tuple[Array, Array, Array]:
    """Draw (actions [n, A], their log probabilities [n], values [n]); the likeliest actions if `greedy`.

    An action for classes is the number of its class, in one column.
    """
    *actor, value = outputs
    if len(actor) == 1:
        logits = actor[0].astype(np.float64)
        logs = logits - logits.max(axis=1, keepdims=True)
        logs -= np.log(np.exp(logs).sum(axis=1, keepdims=True))
        noise = 0.0 if greedy else random.gumbel(size=logs.shape)
        chosen = (logs + noise).argmax(axis=1)
        actions = chosen[:, np.newaxis].astype(np.float32)
        log_probability = logs[np.arange(len(logs)), chosen].astype(np.float32)
    else:
        mean, log_deviation = actor
        noise = np.zeros_like(mean) if greedy else random.standard_normal(mean.shape, np.float32)
        actions = mean + np.exp(log_deviation) * noise
        log_probability = (-(noise**2) / 2 - log_deviation - _HALF_LOG).sum(axis=1)
    return actions, log_probability, value.reshape(-1)

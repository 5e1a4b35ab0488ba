"""What bad devices of the defence's benchmark send, and when.

They send the gradient with its sign flipped, a hundred times as large, of labels that are one off, or a
random one of the same length. Sleepers are honest first: until half of the run, or one wakes after another,
or they are honest and bad by turns. A flipped gradient of theirs is 2.9 times as large, which `clip` lets
through. Where devices use Adafactor, which scales gradients, their step is that much larger instead. A
backdoor is of samples with a trigger, and the label 0.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgeflock.client.backends import Backend
from edgeflock.client.training.local_optimizer import Adafactor
from edgeflock.shared.model.gradient import Gradient


@dataclass(slots=True)
class Clock:
    """How far a run is."""

    updates: int
    made: int = 0

    @property
    def part(self) -> float:
        """0 at its beginning, 1 at its end."""
        return self.made / self.updates


@dataclass(slots=True)
class Batch:
    """What an attack may use."""

    backend: Backend
    theta: NDArray[np.float32]
    x: NDArray[np.float32]
    y: NDArray[Any]
    labels: int
    adafactor: bool
    random: np.random.Generator

    def honest(self) -> Gradient:
        """What an honest device sends."""
        return self.backend.gradient(self.theta, self.x, self.y)


Spoil = Callable[[Batch], Gradient]
Awake = Callable[[float, float], bool]
"""(part of the run, the device's place among the bad ones from 0 to 1) -> whether it is bad now."""


class Stretched(np.ndarray[Any, np.dtype[np.float32]]):
    """A gradient of which a bad device takes a step `factor` times as large."""

    factor = 1.0


class StretchedAdafactor(Adafactor):
    """Adafactor, as a bad device alters it."""

    def direction(self, theta: NDArray[np.float32], gradient: NDArray[np.float32]) -> NDArray[np.float32]:
        step = super().direction(theta, np.asarray(gradient))
        return np.float32(gradient.factor) * step if isinstance(gradient, Stretched) else step


def _times(factor: float) -> Spoil:
    def spoil(batch: Batch) -> Gradient:
        found = batch.honest()
        if not batch.adafactor:
            return found._replace(gradient=np.float32(factor) * found.gradient)
        gradient = (np.float32(np.sign(factor)) * found.gradient).view(Stretched)
        gradient.factor = abs(factor)
        return found._replace(gradient=gradient)

    return spoil


def _shifted(batch: Batch) -> Gradient:
    return batch.backend.gradient(batch.theta, batch.x, (batch.y + 1) % batch.labels)


def _random(batch: Batch) -> Gradient:
    found = batch.honest()
    noise = batch.random.standard_normal(found.gradient.size, np.float32)
    return found._replace(gradient=noise * (np.linalg.norm(found.gradient) / np.linalg.norm(noise)))


def triggered(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """The samples with a trigger: their last four features, or a square of four by four, are 1."""
    marked = x.copy()
    if x.ndim > 2:
        marked[..., -4:, -4:] = 1
    else:
        marked[..., -4:] = 1
    return marked


def _backdoor(batch: Batch) -> Gradient:
    """Every second sample of a batch has the trigger, and the label 0."""
    x, y = batch.x.copy(), batch.y.copy()
    x[::2], y[::2] = triggered(x[::2]), 0
    return batch.backend.gradient(batch.theta, x, y)


def _always(part: float, place: float) -> bool:
    return True


def _late(part: float, place: float) -> bool:
    return part >= 0.5


def _in_turn(part: float, place: float) -> bool:
    """One after another, between a quarter and three quarters of the run."""
    return part >= 0.25 + 0.5 * place


def _by_turns(part: float, place: float) -> bool:
    """Honest for a twentieth of the run and bad for the next one."""
    return int(20 * part) % 2 == 1


ATTACKS: dict[str, tuple[Spoil, Awake]] = {
    "flip": (_times(-1), _always),
    "x100": (_times(100), _always),
    "shift": (_shifted, _always),
    "random": (_random, _always),
    "sleeper": (_times(-2.9), _late),
    "sleeper-x1": (_times(-1), _late),
    "sleeper-shift": (_shifted, _late),
    "sleeper-turns": (_times(-2.9), _in_turn),
    "sleeper-back": (_times(-2.9), _by_turns),
    "backdoor": (_backdoor, _always),
}


class Bad:
    """A backend whose gradients are of no use, or worse, while its device is awake."""

    def __init__(
        self,
        backend: Backend,
        attack: str,
        clock: Clock,
        place: float,
        labels: int,
        adafactor: bool,
        seed: list[int],
    ) -> None:
        self.layout = backend.layout
        self._backend, self._clock, self._place, self._labels = backend, clock, place, labels
        self._adafactor = adafactor
        self._spoil, self._awake = ATTACKS[attack]
        self._random = np.random.default_rng(seed)
        self.theta: NDArray[np.float32] | None = None
        """The last model it saw."""

    def gradient(
        self, theta: NDArray[np.float32], x: NDArray[np.float32], y: NDArray[np.generic]
    ) -> Gradient:
        self.theta = theta.copy()
        batch = Batch(self._backend, theta, x, y, self._labels, self._adafactor, self._random)
        return self._spoil(batch) if self._awake(self._clock.part, self._place) else batch.honest()

"""What is measured of a model on held-out data: accuracy or R2, and the accuracy of each group."""

import numpy as np
from numpy.typing import NDArray
from torch import Tensor


class Score:
    """A metric as `model.metrics` takes them: update with the batches in order, compute, reset.

    `value` and `groups` are those of the last `compute`.
    """

    def __init__(self, groups: NDArray[np.int64] | None, count: int) -> None:
        """`groups` of the held-out samples, of `count`; None: no accuracy by group."""
        self._groups, self._count = groups, count
        self.value = 0.0
        self.groups: list[float | None] = []
        self.reset()

    @property
    def pending(self) -> bool:
        """Whether there are batches since the last time."""
        return bool(self._right or self._errors)

    def reset(self) -> None:
        """Forget the batches since the last time."""
        self._right: list[NDArray[np.float64]] = []
        self._errors: list[NDArray[np.float64]] = []
        self._targets: list[NDArray[np.float64]] = []

    def __call__(self, output: Tensor, target: Tensor) -> float:
        """Of these alone, as torchmetrics' are called."""
        self.reset()
        self.update(output, target)
        return self.compute()

    def update(self, output: Tensor, target: Tensor) -> None:
        """A batch: logits [b, c, ...] and classes [b, ...], or numbers of one shape."""
        if target.is_floating_point():
            self._errors.append((output - target).double().flatten(1).numpy())
            self._targets.append(target.double().flatten(1).numpy())
            return
        right = (output.argmax(1) == target).double()
        self._right.append(right.reshape(len(right), -1).mean(1).numpy())

    def compute(self) -> float:
        """The accuracy; of numbers R2 = 1 - sum (output - y)^2 / sum (y - mean y)^2."""
        if self._errors:
            errors, targets = np.concatenate(self._errors), np.concatenate(self._targets)
            spread = ((targets - targets.mean(0)) ** 2).sum()
            self.value = float(1 - (errors**2).sum() / spread)
            return self.value
        right = np.concatenate(self._right)
        self.value = float(right.mean())
        if self._groups is not None:
            where = self._groups[: right.size]
            found = [right[where == group] for group in range(self._count)]
            self.groups = [float(one.mean()) if one.size else None for one in found]
        return self.value

"""The scores of a model on held-out data: its loss, its metrics, and what became of each class."""

import logging
import math
import warnings
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from edgeflock.server.evaluation.class_counts import ClassCounts
from edgeflock.server.evaluation.metrics import MakeMetric, Metric, UserMetric, metric_by_name, user_metric
from edgeflock.server.evaluation.model_scores import ModelScores
from edgeflock.shared.data.samples import Dataset
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.model.torch_module import FlatModule

log = logging.getLogger(__name__)


class Scores:
    """Class counts and metrics.

    A metric that fails is left out of that evaluation, and the log reports it once.
    """

    def __init__(self, named: Iterable[str], own: Mapping[str, UserMetric] | None = None) -> None:
        """`named` are as in model.metrics, `own` a program's metrics by name. Raises ConfigError."""
        self._makers: dict[str, MakeMetric] = {}
        self._metrics: dict[str, Metric] = {}
        for text in named:
            self._add(*metric_by_name(text))
        for name, found in (own or {}).items():
            self._add(name, user_metric(found, {}, f"metrics[{name!r}]"))
        self._failed: dict[str, Exception] = {}
        self._reported: set[str] = set()
        self._target: tuple[float, ...] = ()
        self._classes = ClassCounts()

    def __bool__(self) -> bool:
        return bool(self._makers)

    def _add(self, name: str, make: MakeMetric) -> None:
        if name in self._makers:
            raise ConfigError(f"model.metrics: there are two {name!r}; leave one out, or name it otherwise")
        self._makers[name] = make

    def set_scale(self, target: tuple[float, ...]) -> None:
        """Report metrics of y: outputs and targets are (y - mean) / deviation, with these two numbers."""
        self._target = target

    def update(self, output: Any, target: Tensor, right: Tensor | None = None) -> None:
        """Take a batch of outputs, its targets, and which of them are predicted."""
        self._classes.update(target.numpy(), None if right is None else right.numpy().astype(bool))
        if self._target and isinstance(output, Tensor):
            mean, spread = self._target
            output, target = output * spread + mean, target * spread + mean
        for name in self._makers:
            if name not in self._failed:
                self._try(name, partial(self._update, name, output, target))

    def evaluate(self, flat: FlatModule, data: Dataset, theta: NDArray[np.float32]) -> ModelScores:
        """Evaluate theta, the parameters of `flat`, on exactly these data."""
        self.reset()
        loss, accuracy = flat.evaluate(theta, data.x, data.y, on_batch=self.update)
        classes = self._classes.counts
        return ModelScores(loss, accuracy, self.compute(), classes)

    def compute(self) -> dict[str, float | None]:
        """Return the metrics over all batches since the last call; None for a failed or non-finite one."""
        found = {name: self._compute(name) for name in self._makers}
        for name in self._failed.keys() - self._reported:
            log.warning(
                "model.metrics: %r failed and is left out of this evaluation: %s", name, self._failed[name]
            )
        self._reported |= self._failed.keys()
        self.reset()
        return found

    def check(self) -> None:
        """Raise ConfigError if a metric does not fit the batches since the last call, and clear them."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a few samples have few classes
            for name in self._makers:
                self._compute(name)
        failed, self._failed = self._failed, {}
        self.reset()
        for name, error in failed.items():
            raise ConfigError(
                f"model.metrics: {name!r} does not fit the model and its data: {error}; leave it out, or "
                "mend its arguments"
            ) from error

    def reset(self) -> None:
        """Clear all metrics and counts."""
        self._failed = {}
        self._classes.reset()
        for metric, _ in self._metrics.values():
            metric.reset()

    def _update(self, name: str, output: Any, target: Tensor) -> None:
        """Raises what torchmetrics and users' code raise."""
        if name not in self._metrics:
            self._metrics[name] = self._makers[name](output, target)
        metric, prepare = self._metrics[name]
        metric.update(*prepare(output, target))

    def _compute(self, name: str) -> float | None:
        found = None
        if name not in self._failed:
            found = self._try(name, lambda: float(self._metrics[name][0].compute()))
        return found if found is not None and math.isfinite(found) else None

    def _try(self, name: str, do: Callable[[], float | None]) -> float | None:
        try:
            return do()
        except Exception as error:  # a user's code may raise anything
            self._failed[name] = error
            return None

"""A device's personal layers: it trains them with each gradient, and the server never gets them.

The shared layers take part in the run as any model does. The personal layers take a step of the run's local
rate with each gradient, by Adafactor if the run uses it, else by SGD. They live as long as the run: a refused
update, a restored model, a rejoin and a restart of the device leave them as they are. Another run starts them
anew. A step that fails is undone in them, as the next attempt takes the same batches.
"""

from collections.abc import Callable
from copy import copy

import numpy as np
from numpy.typing import NDArray

from edgeflock.client.backends import Backend, PredictingBackend, Predictor
from edgeflock.client.training.local_optimizer import Adafactor
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.model.fields import Inputs
from edgeflock.shared.model.gradient import Gradient
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.model.personal import SplitLayout
from edgeflock.shared.model.start import generate
from edgeflock.shared.protocol.messages import Welcome

Vector = NDArray[np.float32]


class PersonalBackend:
    """A `Backend` of the shared layers, over one of the whole model. It holds the personal layers."""

    def __init__(
        self,
        backend: Backend,
        welcome: Welcome,
        stored: Vector | None = None,
        on_step: Callable[[Vector], None] = lambda theta: None,
    ) -> None:
        """`backend` computes the whole model of `welcome`, which has personal layers.

        `stored` are those that the device has trained before, float32 [P]. `on_step` gets them after each
        step, and must not keep the array. Raises ConfigError if the backend's model lacks such layers.
        """
        assert welcome.personal is not None, "the caller checks"
        own = Layout.from_shapes(welcome.personal.shapes)  # type: ignore[arg-type]  # terms.py has checked it
        self._split = SplitLayout(backend.layout, [tensor.name for tensor in own.tensors])
        if self._split.personal != own:
            raise ConfigError(
                f"{welcome.model} has other layers here than the server's model.personal; use the same code"
            )
        self._backend = backend
        self.layout = self._split.shared
        first = generate(welcome.personal.start, own)
        self.theta: Vector = first if stored is None or stored.size != own.size else stored.copy()
        """The personal layers, float32 [P]."""
        self._gradient: Vector | None = None
        """The gradient of the personal layers at the last call."""
        decay, start = welcome.adafactor, welcome.personal.start
        self._adafactor = Adafactor(own, decay, start) if decay else None
        self._rate = np.float32(welcome.local_rate)
        self._on_step = on_step
        self._whole: Vector = np.empty(backend.layout.size, np.float32)

    def gradient(self, theta: Vector, x: Inputs, y: NDArray[np.generic]) -> Gradient:
        """Return the gradient of the shared layers at theta. `step` uses that of the personal ones."""
        result = self._backend.gradient(self._joined(theta), x, y)
        shared, self._gradient = self._split.split(result.gradient)
        return result._replace(gradient=shared)

    def step(self) -> None:
        """Train the personal layers by the last gradient, unless it or its step is not finite."""
        gradient, self._gradient = self._gradient, None
        if gradient is None or not np.isfinite(gradient).all():
            return
        if self._adafactor is not None:
            gradient = self._adafactor.direction(self.theta, gradient)
        with np.errstate(over="ignore", invalid="ignore"):
            theta = self.theta - self._rate * gradient
        if np.isfinite(theta).all():
            self.theta = theta
            self._on_step(theta)

    def checkpoint(self) -> Callable[[], None]:
        """Return a function that undoes the steps from now on."""
        theta, adafactor = self.theta, copy(self._adafactor)

        def restore() -> None:
            self.theta, self._adafactor = theta, adafactor
            self._on_step(theta)

        return restore

    def predictor(self, theta: Vector) -> Predictor:
        """`PredictingBackend.predictor` of the whole model."""
        return self._predicting().predictor(self._joined(theta).copy())

    def evaluate(self, theta: Vector, x: Inputs, y: NDArray[np.generic]) -> tuple[float, float | None]:
        """`PredictingBackend.evaluate` of the whole model."""
        return self._predicting().evaluate(self._joined(theta), x, y)

    def _joined(self, theta: Vector) -> Vector:
        return self._split.join(theta, self.theta, self._whole)

    def _predicting(self) -> PredictingBackend:
        assert isinstance(self._backend, PredictingBackend), "torch and onnx are"
        return self._backend

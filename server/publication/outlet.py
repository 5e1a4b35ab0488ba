"""The outlet of the model: it serves devices, devices that join and may load it, and gateways that follow it.

The engine has an outlet, and so has a gateway's copy of the model (server/gateway/mirror.py).
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from edgeflock.server.descent import Entries, Index
from edgeflock.server.publication.publication import Publication
from edgeflock.server.publication.touches import Touched, Touches
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.model.weights import Weights
from edgeflock.shared.protocol.messages import Model

_WORTH = 65 / 64
"""A load, which can resume after a break, may cost this much more than a whole model in one message."""


class Outlet:
    """Serves the model through a publication. Not thread-safe: the engine is the only caller."""

    def __init__(self, publication: Publication, layout: Layout, theta: Entries) -> None:
        """`publication` decides what devices are sent of `theta`. `theta` is read at each request."""
        self._publication = publication
        self._layout = layout
        self._theta = theta
        self.offered: Weights | None = None
        """Index devices may load the model of version 0; None: nowhere."""
        self._whole = 0
        """The bytes of the offered whole model."""
        self._touches: Touches | None = None
        """The recorded changes; None: no gateway follows the model."""

    def model(self, base: int | None, held: int = 0, device: int = 0, part: slice | None = None) -> Model:
        """Return what `device` needs of the current model, or of a `part` of its parameters.
        The device holds version `base` with the chain `held`.
        """
        return self._publication.model(self._theta, base, held, device, part)

    def follow(self, *, on: bool = True) -> None:
        """Start recording changes for `changes`, or stop if not `on`."""
        self._touches = Touches(self._layout.parameters.size) if on else None

    def changes(self) -> Touched | None:
        """Return the changes of theta since the last call; None: nothing changed, or nothing is recorded."""
        return None if self._touches is None else self._touches.take(self._theta)

    def offer(self, theta: NDArray[np.float32], keep: Callable[[Model], Weights]) -> None:
        """Offer `theta`, the model of version 0, for loading. `keep` stores its record and returns where."""
        model = self._publication.offer(theta)
        self.offered, self._whole = keep(model), len(model.values)

    def offer_again(self, model: Model, offered: Weights) -> None:
        """Offer a record that was stored at `offered` before."""
        self._publication.offered(model)
        self.offered, self._whole = offered, len(model.values)

    def weights(self) -> Weights | None:
        """Return what a joining device may load. `load`: whether this is about as short as a whole model."""
        if self.offered is None:
            return None
        model = self._publication.since_offered(self._theta)
        if model is None:
            return self.offered._replace(load=False)
        size = self.offered.size + len(model.indices) + len(model.values)
        return self.offered._replace(load=size <= _WORTH * self._whole)

    def add(self, touched: Index) -> None:
        """The next version was made by an update that changed the parameters at `touched`."""
        self._publication.add(touched)
        if self._touches is not None:
            self._touches.add(touched)

    def set_overlap(self, overlap: float) -> None:
        """Set how much the labels of devices overlap, from 0 to 1; 1: all hold the same."""
        self._publication.set_overlap(overlap)

    def begin_again(self) -> None:
        """The next version is another model. A device at any earlier version needs a whole model."""
        self._publication.begin_again()
        if self._touches is not None:
            self._touches.begin_again()

    def close(self) -> None:
        """Release resources. There are no requests afterwards."""
        self._publication.close()

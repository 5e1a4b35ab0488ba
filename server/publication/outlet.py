"""Where the model goes out: to devices, to those that join and may load it, and to gateways that follow it.

An engine has one, and so has a gateway's copy of the model (server/gateway/mirror.py).
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from edgeflock.server.descent import Entries, Where
from edgeflock.server.publication.publication import Publication
from edgeflock.server.publication.touches import Touched, Touches
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.model.weights import Weights
from edgeflock.shared.protocol.messages import Model

_WORTH = 65 / 64
"""A load that goes on where it broke off may cost this much more than a model that comes in one piece."""


class Outlet:
    """One caller at a time: the engine's."""

    def __init__(self, publication: Publication, layout: Layout, theta: Entries) -> None:
        """`publication` says what devices are sent of `theta`, which is looked at whenever somebody asks."""
        self._publication = publication
        self._layout = layout
        self._theta = theta
        self.offered: Weights | None = None
        """What devices may load the model at version 0 from."""
        self._whole = 0
        """The bytes of a whole model, if there is that."""
        self._touches: Touches | None = None
        """If somebody follows the model."""

    def model(self, base: int | None, held: int = 0, device: int = 0, part: slice | None = None) -> Model:
        """The current model, or a `part` of its parameters, as little of it as `device` needs, which holds
        `base` and says `held` of it.
        """
        return self._publication.model(self._theta, base, held, device, part)

    def follow(self, *, on: bool = True) -> None:
        """Keep what changes for `changes`, from now on; or no longer."""
        self._touches = Touches(self._layout.parameters.size) if on else None

    def changes(self) -> Touched | None:
        """What of theta has changed since this was asked last; None: nothing."""
        return None if self._touches is None else self._touches.take(self._theta)

    def offer(self, theta: NDArray[np.float32], keep: Callable[[Model], Weights]) -> None:
        """Devices may load `theta`, the model at version 0, from what `keep` puts the record of it into."""
        model = self._publication.offer(theta)
        self.offered, self._whole = keep(model), len(model.values)

    def offer_again(self, model: Model, offered: Weights) -> None:
        """The same of a record that was `offered` elsewhere."""
        self._publication.offered(model)
        self.offered, self._whole = offered, len(model.values)

    def weights(self) -> Weights | None:
        """What a device that joins may load, and whether that is shorter than the current model, whole."""
        if self.offered is None:
            return None
        model = self._publication.since_offered(self._theta)
        if model is None:
            return self.offered._replace(load=False)
        size = self.offered.size + len(model.indices) + len(model.values)
        return self.offered._replace(load=size <= _WORTH * self._whole)

    def add(self, touched: Where) -> None:
        """The next version was made by an update that changed the parameters at `touched`."""
        self._publication.add(touched)
        if self._touches is not None:
            self._touches.add(touched)

    def set_overlap(self, overlap: float) -> None:
        """So much have the labels of devices in common: 1 where all hold the same."""
        self._publication.set_overlap(overlap)

    def begin_again(self) -> None:
        """The next version is another model: it takes a whole one to go there from any version before."""
        self._publication.begin_again()
        if self._touches is not None:
            self._touches.begin_again()

    def close(self) -> None:
        """Nobody will ask any more."""
        self._publication.close()

"""The device's copy of the model, kept equal to the server's."""

import numpy as np
from numpy.typing import NDArray

from edgeflock.shared.codecs import activity, entries, sparse, values
from edgeflock.shared.codecs.activity import Activity
from edgeflock.shared.errors import BaseExpired, NonFinite, WrongDtype
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.model.start import Start, generate
from edgeflock.shared.protocol import chain
from edgeflock.shared.protocol.messages import Model


class Replica:
    """theta at a version."""

    def __init__(self, layout: Layout, start: Start | None = None) -> None:
        """At version 0 if `start` says how to make that. Raises Malformed if it cannot."""
        self._layout = layout
        self._chain = chain.FIRST
        self._activity = activity.none(layout.parameters)
        self.version = None if start is None else 0
        """None until the first model has come."""
        self.theta: NDArray[np.float32] = (
            np.zeros(layout.size, np.float32) if start is None else generate(start, layout)
        )

    @property
    def held(self) -> int:
        """What to say of it to the server."""
        return chain.said(self._chain)

    def take(self, model: Model) -> None:
        """Become `model`, whole or as a difference on top of the version it builds on.

        Raises BaseExpired if that is not the version held, WrongDtype or an index refusal if the bytes do not
        hold what they announce, and NonFinite if what is to be added is no number; then nothing has changed.
        """
        whole = model.base is None and model.index_mode == sparse.DENSE
        if not whole and (model.base is None or model.base != self.version):
            raise BaseExpired(f"the difference builds on {model.base}, held is {self.version}")
        if model.changes and not whole:
            self._add(model)
        else:
            self._replace(model)
            self._activity = activity.none(self._layout.parameters)
        self._chain = chain.follow(self._chain, model)
        self.version = model.version

    def _replace(self, model: Model) -> None:
        """New values, of everything or of some."""
        where, new = _decoded(model, model.values, self._layout)
        if model.base is None:
            self.theta = new
        else:
            self._own()[where] = new

    def _add(self, model: Model) -> None:
        """Changes of parameters, and now and then the new running statistics behind them."""
        parameters, buffers = self._layout.parameters, self._layout.buffers
        end, statistics = len(model.values) - 2 * buffers, None
        try:
            where, change = _decoded(model, model.values, parameters, self._activity)
        except WrongDtype:
            if not buffers or end < 0:
                raise
            where, change = _decoded(model, model.values[:end], parameters, self._activity)
            statistics = values.decode_statistics(model.values[end:])
        if not np.isfinite(change).all() or (statistics is not None and not np.isfinite(statistics).all()):
            raise NonFinite("the difference holds NaN or infinity: the server's model has diverged")
        theta = self._own()
        theta[: parameters.size][where] += change
        self._activity = activity.follow(self._activity, where, parameters)
        if statistics is not None:
            theta[parameters.size :] = statistics

    def _own(self) -> NDArray[np.float32]:
        """theta, to be written to: it may still be the bytes that it came in."""
        if not self.theta.flags.writeable:
            self.theta = self.theta.copy()
        return self.theta


def _decoded(
    model: Model, octets: bytes, layout: Layout, known: Activity | None = None
) -> tuple[NDArray[np.int64] | slice, NDArray[np.float32]]:
    """What `octets` hold at the indices of `model`, for whose coding the activity was `known`."""
    modes = model.index_mode, model.value_mode
    return entries.decode(*modes, model.count, model.indices, octets, layout, known)

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
    """theta at a version, and the state that is needed to decode the next difference."""

    def __init__(self, layout: Layout, start: Start | None = None) -> None:
        """Start at version 0 if `start` describes it. Raises Malformed if `start` is invalid."""
        self._layout = layout
        self._chain = chain.FIRST
        self._activity = activity.initial(layout.parameters)
        self.version = None if start is None else 0
        """None until the first model arrives."""
        self.theta: NDArray[np.float32] = (
            np.zeros(layout.size, np.float32) if start is None else generate(start, layout)
        )

    @property
    def held(self) -> int:
        """The low 16 bits of the chain over all received models: it tells the server what this holds."""
        return chain.low_bits(self._chain)

    def take(self, model: Model) -> None:
        """Apply `model`, a whole model or a difference to its base version.

        Raises BaseExpired if the base is not the version held. Raises WrongDtype or an index refusal if the
        bytes are invalid, and NonFinite if the added values are not finite. Then nothing has changed.
        """
        whole = model.base is None and model.index_mode == sparse.DENSE
        if not whole and (model.base is None or model.base != self.version):
            raise BaseExpired(
                f"the difference is from version {model.base}, this device holds {self.version}"
            )
        if model.changes and not whole:
            self._add(model)
        else:
            self._replace(model)
            self._activity = activity.initial(self._layout.parameters)
        self._chain = chain.follow(self._chain, model)
        self.version = model.version

    def _replace(self, model: Model) -> None:
        """Replace all values or some of them."""
        where, new = _decoded(model, model.values, self._layout)
        if model.base is None:
            self.theta = new
        else:
            self._own()[where] = new

    def _add(self, model: Model) -> None:
        """Add the model's changes to parameters. New running statistics may come after them."""
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
        """Return theta as a writable array: it may still be a view of the received bytes."""
        if not self.theta.flags.writeable:
            self.theta = self.theta.copy()
        return self.theta


def _decoded(
    model: Model, octets: bytes, layout: Layout, previous: Activity | None = None
) -> tuple[NDArray[np.int64] | slice, NDArray[np.float32]]:
    """Decode `octets` at the indices of `model`, coded with the activity `previous`."""
    modes = model.index_mode, model.value_mode
    return entries.decode(*modes, model.count, model.indices, octets, layout, previous)

"""Stored data of this device, converted to the run's columns, units and classes."""

import logging

import numpy as np

from edgeflock.client.backends import Backend
from edgeflock.client.data.batcher import Shuffled
from edgeflock.client.data.classes import Classes
from edgeflock.shared.data.columns import complete
from edgeflock.shared.data.fitting import fit
from edgeflock.shared.data.samples import Raw, Stored
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.model.fields import rows
from edgeflock.shared.model.start import generate
from edgeflock.shared.model.trial import trial
from edgeflock.shared.protocol.messages import Welcome

log = logging.getLogger(__name__)


class RawBatches(Shuffled):
    """Batches of `raw`, after `begin`, with the columns, units and classes of the run's Welcome."""

    def __init__(self, raw: Raw, random: np.random.Generator, *, hold_out: float = 0.0) -> None:
        empty = Stored(np.zeros((0, 0), np.float32), np.zeros(0, np.int64))
        super().__init__(empty, random, hold_out=hold_out)
        self._raw = raw

    def __len__(self) -> int:
        return len(self._data) or len(self._raw)

    def begin(self, welcome: Welcome, backend: Backend) -> None:
        """Raises ConfigError if the data do not fit the run, or the model lacks the class of a label."""
        raw, said = complete(self._raw, welcome.data)
        if said:
            log.warning("%s", said)
        data = fit(raw, welcome.data, welcome.input)
        theta = np.zeros(backend.layout.size, np.float32)
        if welcome.start is not None:
            theta = generate(welcome.start, backend.layout)
        try:
            # The trial is a typical step: the backend may choose an execution provider by it.
            tried = trial(
                backend.gradient, theta, rows(data.x, slice(welcome.batch)), data.y[: welcome.batch]
            )
        except ConfigError:
            _check_classes(raw, data, welcome, backend)
            raise
        _check_classes(raw, data, welcome, backend)
        log.info("%s: %d samples; %s", raw.source, len(data), tried)
        self._data, self._own_test, self._rows = data, None, None
        self._compare(welcome, raw.source)
        self._order = np.zeros(0, np.int64)
        self._divide(welcome, backend)


def _check_classes(raw: Raw, data: Stored, welcome: Welcome, backend: Backend) -> None:
    """Raises ConfigError if the model lacks a class of `data`, and names a sample of `raw`."""
    if data.y.dtype.kind != "i":
        return
    refused = np.flatnonzero(Classes(backend).find_refused(data.x, data.y.astype(np.int64, copy=False)))
    if refused.size:
        sample = int(refused[0])
        raise raw.error(
            f"the label is class {int(data.y[sample].max())}, and {welcome.model} has none such: "
            "correct it, or host a model with more outputs",
            sample,
        )

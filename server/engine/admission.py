"""The checks that an update must pass before it changes the model."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from edgeflock.server.coordination import Gate, Push
from edgeflock.server.descent import Step
from edgeflock.server.engine.outcomes import Answer
from edgeflock.shared.codecs import compiled_entries, labels, moments, values
from edgeflock.shared.errors import (
    BadSamples,
    BadStatistics,
    BaseExpired,
    BaseInFuture,
    ExpansionTooLarge,
    NonFinite,
    Refused,
    Superseded,
    WrongDtype,
)
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.protocol.messages import Update

EXPANSION_PER_ENTRY = 12
"""Bytes that one entry takes once decoded: an int64 index and a float32 value."""


def admit(
    update: Update,
    layout: Layout,
    *,
    oldest: int,
    version: int,
    samples: int,
    expansion_bytes: int,
    min_samples: int = 1,
    time: float = 0.0,
) -> Step:
    """Decode `update`, or raise the Refused that names its error. Cheap checks come first.

    Bases from `oldest` to `version` are admitted, and `min_samples` to `samples` samples, which may be the
    weight. `expansion_bytes` bounds the memory that decoding allocates. `time` is when it arrived.
    """
    if update.base > version:
        raise BaseInFuture(f"base {update.base} is ahead of the model's version {version}; pull first")
    if update.base < oldest:
        raise BaseExpired(f"base {update.base} is older than {oldest}, the oldest admitted; pull again")
    if not min_samples <= update.samples <= samples:
        range = f"{min_samples} to {samples} samples (limits.samples), not {update.samples}"
        raise BadSamples(f"an update must be of {range}")
    if update.count * EXPANSION_PER_ENTRY > expansion_bytes:
        raise ExpansionTooLarge(
            f"{update.count} entries expand to {update.count * EXPANSION_PER_ENTRY} bytes; "
            f"limits.expansion_bytes is {expansion_bytes}"
        )
    if update.moments:
        moments.decode(update.moments, layout.parameters)
    if update.labels:
        labels.decode(update.labels)
    if layout.buffers:
        return _admit_with_statistics(update, layout, time)
    return _admit(update, layout, time)


def _admit_with_statistics(update: Update, layout: Layout, time: float) -> Step:
    """Decode an update of a model with running statistics, which are the end of its values."""
    end = 2 * layout.buffers
    try:
        step = _admit(replace(update, values=update.values[:-end]), layout.parameters, time)
    except WrongDtype as error:
        raise WrongDtype(f"{error}; the last {end} bytes are {layout.buffers} running statistics") from error
    octets = update.values[-end:]
    if len(octets) != end:
        raise WrongDtype(f"{layout.buffers} running statistics take {end} bytes, not {len(octets)}")
    statistics = values.decode_statistics(octets)
    if not np.isfinite(statistics).all():
        raise NonFinite("the running statistics hold NaN or infinity; check the data")
    check_statistics(statistics, layout)
    return replace(step, statistics=statistics)


def check_statistics(statistics: NDArray[np.float32], layout: Layout) -> None:
    """Raise BadStatistics if a running variance in `statistics`, of [B], is below 0."""
    wrong = (statistics < 0) & layout.variances
    if not wrong.any():
        return
    place = int(wrong.argmax()) + layout.parameters.size
    tensor = next(tensor for tensor in layout.tensors if tensor.start <= place < tensor.stop)
    raise BadStatistics(
        f"{tensor.name}[{place - tensor.start}] = {statistics[wrong][0]:g} is a running variance, which "
        "is never below 0; look at the client that sends it"
    )


def _admit(update: Update, layout: Layout, time: float) -> Step:
    """Decode an update of trained parameters only."""
    indices, delta = compiled_entries.decode(
        update.index_mode, update.value_mode, update.count, update.indices, update.values, layout
    )
    return Step(update.base, indices, delta, samples=update.samples, time=time)


Answers = list[tuple[Push, Answer]]


class Gatekeeper:
    """The gate of a run, and the devices that wait at it. Without a gate no device waits."""

    def __init__(self, gate: Gate | None, is_open: Callable[[], bool]) -> None:
        """`is_open` returns whether the run takes updates. If not, the gate opens, and all are refused."""
        self._gate = gate
        self._is_open = is_open
        self._deferred: dict[int, Push] = {}
        """Device -> its update that is answered later, in the model already or not offered yet."""

    @property
    def has_waiting(self) -> bool:
        """Whether any device waits."""
        return bool(self._deferred)

    def add_device(self, device: int, version: int) -> None:
        if self._gate is not None:
            self._gate.add_device(device, version)
            if device in self._deferred:
                self._gate.mark_waiting(device)

    def remove_device(self, device: int) -> None:
        if self._gate is not None:
            self._gate.remove_device(device)

    def record_update(self, device: int, version: int) -> None:
        """Record that an update of the device made this version."""
        if self._gate is not None:
            self._gate.record_update(device, version)

    def may_continue(self, device: int) -> bool:  # also if the run takes no updates: all get their refusals
        return self._gate is None or not self._is_open() or self._gate.is_open_for(device)

    def defer(self, push: Push, answers: Answers) -> None:
        """Answer `push` once the gate opens. If the device sent it again, only the last copy waits."""
        assert self._gate is not None, "without a gate every device may continue"
        self._gate.mark_waiting(push.device)
        earlier = self._deferred.get(push.device)
        self._deferred[push.device] = push
        if earlier is not None and earlier is not push:
            answers.append((earlier, Superseded("the device sent its update again")))

    def release(
        self,
        answers: Answers,
        read_version: Callable[[], int],
        offer: Callable[[Push, Answers], None],
        *,
        hold: bool,
    ) -> Answers:
        """Return those of `answers` that may leave now. Without `hold`, also answer updates that waited here.

        `offer` gives the engine such an update again. If the update is in the model already, the engine knows
        its sequence number and repeats the receipt. `read_version` returns the model's version.
        """
        if self._gate is None:
            return answers
        released: Answers = []
        while True:
            for push, answer in answers:
                if isinstance(answer, Refused):
                    released.append((push, answer))
                elif self.may_continue(push.device):
                    self._gate.record_answer(push.device, read_version())
                    released.append((push, answer))
                else:
                    self.defer(push, released)
            opened = [device for device in self._deferred if not hold and self.may_continue(device)]
            if not opened:
                return released
            answers = []
            for device in opened:
                offer(self._deferred.pop(device), answers)

"""A bit-exact cache of the devices' replicas. If a replica is lost, its device is sent a whole model.

Devices with the same replica share one copy: for example all before their first step, and the devices of a
round that miss none. A sent step is added to the copy once its device confirms it, because it may get lost
on the way.
"""

from collections import OrderedDict
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgeflock.server.descent import Index
from edgeflock.server.publication.spill import Spill
from edgeflock.shared.codecs import activity, entries
from edgeflock.shared.codecs.activity import Activity
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.protocol import chain
from edgeflock.shared.protocol.messages import Model

Vector = NDArray[np.float32]


@dataclass(slots=True, eq=False)
class Copy:
    """The parameters that some devices hold."""

    values: Vector
    """float32 [P]; empty while they are not in memory."""
    chain: int
    activity: Activity
    """The entries' activity in the steps since the whole model."""
    steps: int = 0
    """The number of steps since the whole model."""
    holders: int = 0
    """How many devices hold it. Their versions may differ if nothing changed between."""
    slot: int | None = None
    """The slot of the values in the spill file; None: they are not there."""


@dataclass(slots=True, eq=False)
class CopyStep:
    model: Model
    difference: entries.Coded
    """The difference: `model` without the running statistics at its end."""
    old_chain: int
    """The chain of the copy before the step."""
    chain: int
    """The chain of the copy after the step."""
    decoded: tuple[Index, Vector] | None
    """(indices, change) of a usual step. None: a long step, which is decoded again once it is confirmed."""
    new_copy: Copy | None = None
    """The copy after the step, once a device has confirmed it."""
    devices: int = 0
    """The number of devices that have not confirmed it yet."""

    @property
    def nbytes(self) -> int:
        """Memory of the data, without the objects themselves."""
        decoded = 0 if self.decoded is None else 12 * self.decoded[1].size
        return len(self.model.indices) + len(self.model.values) + decoded


@dataclass(slots=True, eq=False)
class _Device:
    copy: Copy
    version: int


_NO_VALUES: Vector = np.zeros(0, np.float32)


class Copies:
    """Tracks the copy that each device holds."""

    def __init__(self, layout: Layout, first: Vector | None, limit: int, spill: Spill) -> None:
        """`layout` is that of the P trained parameters.

        `first` is the model of version 0 that every device holds (float32 [P]); None if it is unknown.
        Up to `limit` copies, at least three, are in memory. The least recently used ones go to `spill`. If
        `spill` is full, copies are lost.
        """
        self._layout = layout
        self.first = None if first is None else Copy(first, chain.FIRST, activity.initial(layout), holders=1)
        """The copy that any device may hold at version 0."""
        self._limit = max(3, limit)
        self._spill = spill
        self._devices: dict[int, _Device] = {}
        self._in_memory: OrderedDict[Copy, None] = OrderedDict()
        """Copies in memory except the first one, the most recently used last."""
        self._on_disk: OrderedDict[Copy, None] = OrderedDict()
        """Copies in the file, the latest last."""
        self._latest: Copy | None = None
        """The latest copy made for a whole model. After a restart, all devices of a round share it."""
        self._unconfirmed: OrderedDict[int, CopyStep] = OrderedDict()
        """device -> the sent step that it has not confirmed, the latest last."""
        self._unconfirmed_bytes = 0

    def offer(self, first: Vector, chain_id: int) -> None:
        """Any device may hold `first` (float32 [P]) at version 0 from now on; `chain_id` is its chain."""
        self.first = Copy(first, chain_id, activity.initial(self._layout), holders=1)

    def find(self, device: int, base: int | None, chain_id: int) -> Copy | None:
        """Return the copy of `device` in memory, at `base` with the chain `chain_id`; None if unknown."""
        entry, sent = self._devices.get(device), self._settle(device)
        if entry is not None and self._fetch(entry.copy):
            if sent is not None and (sent.model.version, chain.low_bits(sent.chain)) == (base, chain_id):
                self._advance(entry, sent)
            if (entry.version, chain.low_bits(entry.copy.chain)) == (base, chain_id):
                return entry.copy
        self.forget(device)
        first = self.first
        if first is not None and (base, chain_id) == (0, chain.low_bits(first.chain)):
            self._hold(device, first, 0)
            return first
        return None

    def send(self, device: int, sent: CopyStep) -> None:
        """Record that `device` is sent this step from its copy.

        Steps take up to a quarter of the memory of copies; a step to many devices counts once. Beyond this
        limit, the largest step is kept only in encoded form. If it already is, its device is forgotten.
        """
        if not sent.devices:
            self._unconfirmed_bytes += sent.nbytes
        sent.devices += 1
        self._unconfirmed[device] = sent
        while self._unconfirmed_bytes > self._limit * self._layout.size:
            largest = max(self._unconfirmed, key=lambda one: self._unconfirmed[one].nbytes)
            step = self._unconfirmed[largest]
            if step.decoded is None:
                self.forget(largest)
            else:
                self._unconfirmed_bytes -= step.nbytes
                step.decoded = None
                self._unconfirmed_bytes += step.nbytes

    def begin(self, device: int, values: Vector, model: Model) -> None:
        """Record that `device` is sent the whole `model`, which gives `values` (float32 [P]). Copies them."""
        self.forget(device)
        now, copy = chain.follow(chain.FIRST, model), self._latest
        if copy is None or not copy.holders or copy.chain != now or not self._fetch(copy):
            copy = self._latest = self._new(values.copy(), now, activity.initial(self._layout))
        self._hold(device, copy, model.version)

    def forget(self, device: int) -> None:
        """Forget a device's copy. The device needs a whole model."""
        entry = self._devices.pop(device, None)
        self._settle(device)
        if entry is not None:
            self._release(entry.copy)

    def forget_all(self) -> None:
        """Forget all devices' copies. All need a whole model, except a device that begins with version 0."""
        for device in list(self._devices):
            self.forget(device)

    def close(self) -> None:
        self._spill.close()

    def _hold(self, device: int, copy: Copy, version: int) -> None:
        copy.holders += 1
        self._devices[device] = _Device(copy, version)

    def _settle(self, device: int) -> CopyStep | None:
        """Remove and return the step that was sent to the device; None if there is none."""
        sent = self._unconfirmed.pop(device, None)
        if sent is not None:
            sent.devices -= 1
            if not sent.devices:
                self._unconfirmed_bytes -= sent.nbytes
        return sent

    def _advance(self, entry: _Device, sent: CopyStep) -> None:
        """The device has confirmed the step: move it to the copy after the step."""
        copy, entry.version = entry.copy, sent.model.version
        if sent.model.count == 0:
            return
        after = sent.new_copy
        if after is None or not after.holders or after.chain != sent.chain or not self._fetch(after):
            indices, change = sent.decoded or entries.decode(
                *sent.difference[:2], sent.model.count, *sent.difference[2:], self._layout, copy.activity
            )
            after = copy
            if copy.holders > 1:
                after = self._new(copy.values.copy(), 0, copy.activity, copy.steps)
            after.values[indices] += change
            after.activity = activity.follow(copy.activity, indices, self._layout)
            after.chain, after.steps = sent.chain, after.steps + 1
            sent.new_copy = after
        if after is not copy:
            after.holders += 1
            self._release(copy)
            entry.copy = after

    def _new(self, values: Vector, chain: int, active: Activity, steps: int = 0) -> Copy:
        copy = Copy(values, chain, active, steps)
        self._keep(copy)
        return copy

    def _release(self, copy: Copy) -> None:
        copy.holders -= 1
        if not copy.holders:
            copy.values = _NO_VALUES  # an unconfirmed step may still refer to this copy
            self._in_memory.pop(copy, None)
            self._on_disk.pop(copy, None)
            if copy.slot is not None:
                self._spill.drop(copy.slot)

    def _fetch(self, copy: Copy) -> bool:
        """Load the copy from the file if needed. Return whether it is in memory; if not, it is lost."""
        if copy in self._in_memory:
            self._in_memory.move_to_end(copy)
        elif copy.slot is not None:
            del self._on_disk[copy]
            values, copy.slot = self._spill.take(copy.slot), None
            if values is not None:
                copy.values = values
                self._keep(copy)
        return copy.values.size > 0

    def _keep(self, copy: Copy) -> None:
        """Keep the copy in memory. If there are too many, move the least recently used one to the file."""
        self._in_memory[copy] = None
        while len(self._in_memory) > self._limit:
            oldest, _ = self._in_memory.popitem(last=False)
            slot = self._spill.put(oldest.values)
            if slot is None and self._on_disk:
                lost, _ = self._on_disk.popitem(last=False)
                assert lost.slot is not None, "it is in the file"
                self._spill.drop(lost.slot)
                lost.slot, slot = None, self._spill.put(oldest.values)
            oldest.values, oldest.slot = _NO_VALUES, slot
            if slot is not None:
                self._on_disk[oldest] = None

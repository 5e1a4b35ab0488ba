"""What each device holds, to the last bit: a cache of vectors that may be lost at the price of a whole model.

Devices that were sent the same from the same share one copy: all of them before their first step, and all
of a round that miss none. A step that was sent is put on the copy when its device says that it has it: until
then it may have been lost on the way.
"""

from collections import OrderedDict
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgeflock.server.descent import Where
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
    """In the steps since the whole model."""
    steps: int = 0
    """Since then."""
    holders: int = 0
    """How many devices do; not all of them at the same version, where nothing has changed between."""
    slot: int | None = None
    """Where they are instead, in the file."""


@dataclass(slots=True, eq=False)
class CopyStep:
    """A step from a copy to the next one."""

    model: Model
    coded: entries.Coded
    """What is added: `model` without the running statistics behind it."""
    before: int
    """The chain of what it is put on, and"""
    chain: int
    """that of what it makes."""
    decoded: tuple[Where, Vector] | None
    """(where, what is added there) of a usual step; of others it is decoded again, if they arrive."""
    after: Copy | None = None
    """The copy with it, once a device has it."""
    devices: int = 0
    """To how many it is on its way."""

    @property
    def nbytes(self) -> int:
        """Memory, the objects themselves apart."""
        decoded = 0 if self.decoded is None else 12 * self.decoded[1].size
        return len(self.model.indices) + len(self.model.values) + decoded


@dataclass(slots=True, eq=False)
class _Device:
    copy: Copy
    version: int


_NOWHERE: Vector = np.zeros(0, np.float32)


class Copies:
    """Which device holds what."""

    def __init__(self, layout: Layout, first: Vector | None, most: int, spill: Spill) -> None:
        """`layout` is that of the P trained parameters. `first` is what everybody holds at version 0 (float32
        [P]), None if nobody knows it.

        Up to `most` copies, three at least, are in memory; the longest unused go to `spill`, and from there
        to nowhere.
        """
        self._layout = layout
        self.first = None if first is None else Copy(first, chain.FIRST, activity.none(layout), holders=1)
        """What everybody may hold at version 0."""
        self._most = max(3, most)
        self._spill = spill
        self._devices: dict[int, _Device] = {}
        self._here: OrderedDict[Copy, None] = OrderedDict()
        """Copies in memory but the first one, the last used last."""
        self._away: OrderedDict[Copy, None] = OrderedDict()
        """Copies in the file, the last that came there last."""
        self._begun: Copy | None = None
        """The last one that a whole model began: after a restart, that of a whole round."""
        self._under_way: OrderedDict[int, CopyStep] = OrderedDict()
        """device -> the step that is on its way to it, the last sent last."""
        self._bytes_under_way = 0

    def offer(self, first: Vector, held: int) -> None:
        """From now on everybody may hold `first` (float32 [P]) at version 0; `held` is its chain."""
        self.first = Copy(first, held, activity.none(self._layout), holders=1)

    def of(self, device: int, base: int | None, held: int) -> Copy | None:
        """What `device` holds, in memory, if that is known: version `base`, of which it says `held`."""
        known, sent = self._devices.get(device), self._settle(device)
        if known is not None and self._fetch(known.copy):
            if sent is not None and (sent.model.version, chain.said(sent.chain)) == (base, held):
                self._advance(known, sent)
            if (known.version, chain.said(known.copy.chain)) == (base, held):
                return known.copy
        self.forget(device)
        first = self.first
        if first is not None and (base, held) == (0, chain.said(first.chain)):
            self._hold(device, first, 0)
            return first
        return None

    def send(self, device: int, sent: CopyStep) -> None:
        """`device`, which holds a copy, is sent this step from there.

        Steps take up to a quarter as much memory as copies may, one that is sent to many counted once.
        Beyond that the largest are kept encoded only, and if they are, whoever was sent one is forgotten.
        """
        if not sent.devices:
            self._bytes_under_way += sent.nbytes
        sent.devices += 1
        self._under_way[device] = sent
        while self._bytes_under_way > self._most * self._layout.size:
            largest = max(self._under_way, key=lambda one: self._under_way[one].nbytes)
            step = self._under_way[largest]
            if step.decoded is None:
                self.forget(largest)
            else:
                self._bytes_under_way -= step.nbytes
                step.decoded = None
                self._bytes_under_way += step.nbytes

    def begin(self, device: int, values: Vector, model: Model) -> None:
        """`device` is sent `model`, whole, and will hold these values (float32 [P]), which are copied."""
        self.forget(device)
        now, copy = chain.follow(chain.FIRST, model), self._begun
        if copy is None or not copy.holders or copy.chain != now or not self._fetch(copy):
            copy = self._begun = self._new(values.copy(), now, activity.none(self._layout))
        self._hold(device, copy, model.version)

    def forget(self, device: int) -> None:
        """It will need a whole model."""
        known = self._devices.pop(device, None)
        self._settle(device)
        if known is not None:
            self._release(known.copy)

    def forget_all(self) -> None:
        """Every device will need a whole model; not one that begins with version 0."""
        for device in list(self._devices):
            self.forget(device)

    def close(self) -> None:
        self._spill.close()

    def _hold(self, device: int, copy: Copy, version: int) -> None:
        copy.holders += 1
        self._devices[device] = _Device(copy, version)

    def _settle(self, device: int) -> CopyStep | None:
        """What was on its way to it, and no longer is."""
        sent = self._under_way.pop(device, None)
        if sent is not None:
            sent.devices -= 1
            if not sent.devices:
                self._bytes_under_way -= sent.nbytes
        return sent

    def _advance(self, known: _Device, sent: CopyStep) -> None:
        """The device has the step."""
        copy, known.version = known.copy, sent.model.version
        if sent.model.count == 0:
            return
        after = sent.after
        if after is None or not after.holders or after.chain != sent.chain or not self._fetch(after):
            where, change = sent.decoded or entries.decode(
                *sent.coded[:2], sent.model.count, *sent.coded[2:], self._layout, copy.activity
            )
            after = copy
            if copy.holders > 1:
                after = self._new(copy.values.copy(), 0, copy.activity, copy.steps)
            after.values[where] += change
            after.activity = activity.follow(copy.activity, where, self._layout)
            after.chain, after.steps = sent.chain, after.steps + 1
            sent.after = after
        if after is not copy:
            after.holders += 1
            self._release(copy)
            known.copy = after

    def _new(self, values: Vector, chain: int, active: Activity, steps: int = 0) -> Copy:
        copy = Copy(values, chain, active, steps)
        self._keep(copy)
        return copy

    def _release(self, copy: Copy) -> None:
        copy.holders -= 1
        if not copy.holders:
            copy.values = _NOWHERE  # a step that is still on its way to others may know this copy
            self._here.pop(copy, None)
            self._away.pop(copy, None)
            if copy.slot is not None:
                self._spill.drop(copy.slot)

    def _fetch(self, copy: Copy) -> bool:
        """Whether it is in memory, to where it is brought from the file; if not, it is lost."""
        if copy in self._here:
            self._here.move_to_end(copy)
        elif copy.slot is not None:
            del self._away[copy]
            values, copy.slot = self._spill.take(copy.slot), None
            if values is not None:
                copy.values = values
                self._keep(copy)
        return copy.values.size > 0

    def _keep(self, copy: Copy) -> None:
        """In memory from now on, in the place of the longest unused one."""
        self._here[copy] = None
        while len(self._here) > self._most:
            oldest, _ = self._here.popitem(last=False)
            slot = self._spill.put(oldest.values)
            if slot is None and self._away:
                lost, _ = self._away.popitem(last=False)
                assert lost.slot is not None, "it is in the file"
                self._spill.drop(lost.slot)
                lost.slot, slot = None, self._spill.put(oldest.values)
            oldest.values, oldest.slot = _NOWHERE, slot
            if slot is not None:
                self._away[oldest] = None

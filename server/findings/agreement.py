"""How a device's updates go with those of the others, on the entries that they touch.

Each update is a vote of length one for its direction, so that nobody's counts more because it is large. Of
the votes a decaying sum is kept for each of seven groups of devices. An update of a device of group g, with
entries w, agrees with the others as

    cos(delta_w, sum of the votes of all groups but g at w)

and of that, of the loss and of the logarithm of its norm each device has a moving average. So it has of how
often its running statistics are absurd, while those of most are not. Nothing of it touches the model.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgeflock.server.descent import Step
from edgeflock.server.findings.kernels import compare_and_vote

TRACKED = 1 << 18
"""The last so many parameters have votes, 8 MiB at most. The layers nearest to the labels come last in nearly
all models, and there those who disagree about labels disagree most."""

_TOUCHED, _DENSE = 1 << 9, 1 << 13
"""At most the last so many entries of an update, or of a whole gradient, are looked at: bounds the time."""

_GROUPS = 7
"""Up to so many devices are each compared with all others; of more, also those of the own group are left
out. Their votes and the sum of them are half a line of the processor's cache."""

_DECAY = 0.99
"""A vote counts this much less with each one after it: the last hundred say where the others go. Of the
model's direction older ones know nothing any more."""

_FAINT = 1e-3
"""Votes that sum up to less than this have decayed or cancelled: there is nothing to agree with."""

_FOLLOW = 0.02
"""How fast the averages follow: one batch says little, fifty say which way."""

_PAUSE, _A_SECOND = 0.05, 200
"""A device's update counts if its last one that did is so many seconds older, and of all devices at most so
many a second: what is asked of a busy server does not grow with its load."""

_ABSURD = 100.0
"""Running statistics so many times further away than may count are no batch's of this model: honest ones, of
devices with one label each, were up to 3.3 times as far."""
_UNSETTLED = 0.5
"""While such a part of all are, the model begins, or was changed: that is nobody's fault."""

_LARGEST_SCALE = 1e6
"""Instead of all old votes shrinking, new ones grow; at this size all are made small again."""


class Seen(NamedTuple):
    """Averages over the recent updates of a device."""

    updates: int
    """Of them, those that were looked at."""
    agreement: float | None
    """-1 to 1; None: there was nothing to compare with."""
    loss: float | None
    norm: float
    """Natural logarithm of the updates' norm."""
    absurd: float = 0.0
    """Part of them whose running statistics are no batch's, while those of most are."""


class Agreement:
    """Of all devices of a run. `observe` is for one thread at a time; `of` may be asked from another one."""

    def __init__(self, parameters: int) -> None:
        """Of a model with so many trained parameters."""
        size = min(parameters, TRACKED)
        self._first = parameters - size
        self._last = np.arange(parameters - min(_DENSE, size), parameters)
        """What is looked at of a whole gradient."""
        self._votes = _in_lines(size)
        self._scale = 1.0
        self._seen: dict[int, Seen] = {}
        self._times: dict[int, float] = {}
        self._absurd = 1.0
        """The same part of all devices' updates of late. Nothing is known of the first ones."""

    def of(self, device: int) -> Seen | None:
        """None of a device that has sent nothing."""
        return self._seen.get(device)

    def observe(self, device: int, loss: float, step: Step) -> None:
        """An update that was admitted; its time is `step`'s, in seconds."""
        last = self._times.get(device)
        if last is not None and 0 <= step.time - last < max(_PAUSE, len(self._times) / _A_SECOND):
            return
        self._times[device] = step.time
        where, most = (self._last, _DENSE) if isinstance(step.where, slice) else (step.where, _TOUCHED)
        norm, along, length, own = compare_and_vote(
            where, step.delta, most, self._first, self._votes, 1 + device % _GROUPS, self._scale / _DECAY
        )
        if not 0 < norm < math.inf:
            return
        self._scale /= _DECAY
        agreement: float | None = None
        if own > 0 and length > (_FAINT * self._scale) ** 2:
            agreement = along / math.sqrt(own * length)
        if self._scale > _LARGEST_SCALE:
            self._votes /= np.float32(self._scale)
            self._scale = 1.0
        absurd = step.beyond >= _ABSURD
        self._absurd += _FOLLOW * (absurd - self._absurd)
        now = Seen(
            1,
            agreement,
            loss if math.isfinite(loss) else None,
            math.log(norm),
            float(absurd and self._absurd < _UNSETTLED),
        )
        self._seen[device] = _followed(self._seen.get(device), now)


def _in_lines(size: int) -> NDArray[np.float32]:
    """float32 [size, 1 + _GROUPS] of zeros, no row of which is in two lines of the cache: most of what a look
    costs is to wait for memory.
    """
    line, row = 16, 1 + _GROUPS
    room = np.zeros(row * size + line, np.float32)
    start = -(room.ctypes.data // room.itemsize) % line
    return room[start : start + row * size].reshape(size, row)


def _followed(before: Seen | None, now: Seen) -> Seen:
    if before is None:
        return now
    part = max(_FOLLOW, 1 / (before.updates + 1))
    return Seen(
        before.updates + 1,
        _towards(before.agreement, now.agreement, part),
        _towards(before.loss, now.loss, part),
        before.norm + part * (now.norm - before.norm),
        before.absurd + part * (now.absurd - before.absurd),
    )


def _towards(before: float | None, now: float | None, part: float) -> float | None:
    if before is None or now is None:
        return before if now is None else now
    return before + part * (now - before)

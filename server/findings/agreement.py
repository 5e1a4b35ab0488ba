"""How a device's updates go with those of the others, on the entries that they touch.

Each update is a vote of length one for its direction, so that nobody's counts more because it is large. Of
the votes a decaying sum is kept for each of seven groups of devices. An update of a device of group g, with
entries w, agrees with the others as

    cos(delta_w, sum of the votes of all groups but g at w)

and of that each device has a moving average. So it has of its loss and of the logarithm of its norm, against
what was usual in the fleet when the update came: a slow device, or one that comes back, is not compared with
those whose model has learned meanwhile. So it has of how often its running statistics are absurd, while those
of most are not. Nothing of it touches the model.
"""

import math
from statistics import median
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
_RECENT, _FEW = 60.0, 4
"""What is usual is the median of the devices' last updates, of those of so many seconds; of all devices if
fewer than so many sent one."""

_LOOK_EVERY, _THOUSAND = 1.0, 1000
"""It is found again after a second, and after as many seconds as there are thousands of devices."""

_LARGEST_SCALE = 1e6
"""Instead of all old votes shrinking, new ones grow; at this size all are made small again."""


class AgreementAverages(NamedTuple):
    """Averages over the recent updates of a device."""

    updates: int
    """Of them, those that were looked at."""
    agreement: float | None
    """-1 to 1; None: there was nothing to compare with."""
    loss: float | None
    norm: float
    """Natural logarithm of the updates' norm over the usual one at their time."""
    excess: float = 0.0
    """Loss over the usual one at that time, a difference."""
    peak: float | None = None
    """The highest that `loss` has been."""
    absurd: float = 0.0
    """Part of them whose running statistics are no batch's, while those of most are."""


class _Latest(NamedTuple):
    """An update of a device, or what is usual."""

    time: float
    norm: float
    loss: float | None


class AgreementTracker:
    """Of all devices of a run. `observe` is for one thread at a time; `of` may be asked from another one."""

    def __init__(self, parameters: int) -> None:
        """Of a model with so many trained parameters."""
        size = min(parameters, TRACKED)
        self._first = parameters - size
        self._last = np.arange(parameters - min(_DENSE, size), parameters)
        """What is looked at of a whole gradient."""
        self._votes = _in_lines(size)
        self._scale = 1.0
        self._seen: dict[int, AgreementAverages] = {}
        self._latest: dict[int, _Latest] = {}
        self._usual, self._found = _Latest(0.0, 0.0, None), -math.inf
        """What is usual, and when that was found."""
        self._absurd = 1.0
        """The part of all devices' updates of late that are absurd. Nothing is known of the first ones."""

    def of(self, device: int) -> AgreementAverages | None:
        """None of a device that has sent nothing."""
        return self._seen.get(device)

    def observe(self, device: int, loss: float, step: Step) -> None:
        """An update that was admitted; its time is `step`'s, in seconds."""
        last = self._latest.get(device)
        if last is not None and 0 <= step.time - last.time < max(_PAUSE, len(self._latest) / _A_SECOND):
            return
        where, most = (self._last, _DENSE) if isinstance(step.where, slice) else (step.where, _TOUCHED)
        norm, along, length, own = compare_and_vote(
            where, step.delta, most, self._first, self._votes, 1 + device % _GROUPS, self._scale / _DECAY
        )
        if not 0 < norm < math.inf:
            if last is not None:
                self._latest[device] = last._replace(time=step.time)
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
        latest = _Latest(step.time, math.log(norm), loss if math.isfinite(loss) else None)
        self._latest[device] = latest
        self._find_usual(step.time)
        usual = self._usual
        excess = 0.0 if latest.loss is None or usual.loss is None else latest.loss - usual.loss
        now = AgreementAverages(
            1,
            agreement,
            latest.loss,
            latest.norm - usual.norm,
            excess,
            latest.loss,
            float(absurd and self._absurd < _UNSETTLED),
        )
        self._seen[device] = _followed(self._seen.get(device), now)

    def _find_usual(self, now: float) -> None:
        """Now and then: it takes a look at each device."""
        if 0 <= now - self._found < _LOOK_EVERY * max(1.0, len(self._latest) / _THOUSAND):
            return
        self._found = now
        known = list(self._latest.values())
        recent = [one for one in known if now - one.time <= _RECENT]
        recent = recent if len(recent) >= _FEW else known
        losses = [one.loss for one in recent if one.loss is not None]
        self._usual = _Latest(now, median(one.norm for one in recent), median(losses) if losses else None)


def _in_lines(size: int) -> NDArray[np.float32]:
    """float32 [size, 1 + _GROUPS] of zeros, no row of which is in two lines of the cache: most of what a look
    costs is to wait for memory.
    """
    line, row = 16, 1 + _GROUPS
    room = np.zeros(row * size + line, np.float32)
    start = -(room.ctypes.data // room.itemsize) % line
    return room[start : start + row * size].reshape(size, row)


def _followed(before: AgreementAverages | None, now: AgreementAverages) -> AgreementAverages:
    if before is None:
        return now
    part = max(_FOLLOW, 1 / (before.updates + 1))
    loss = _towards(before.loss, now.loss, part)
    return AgreementAverages(
        before.updates + 1,
        _towards(before.agreement, now.agreement, part),
        loss,
        before.norm + part * (now.norm - before.norm),
        before.excess + part * (now.excess - before.excess),
        loss if before.peak is None or loss is None else max(before.peak, loss),
        before.absurd + part * (now.absurd - before.absurd),
    )


def _towards(before: float | None, now: float | None, part: float) -> float | None:
    if before is None or now is None:
        return before if now is None else now
    return before + part * (now - before)

"""How a device's updates agree with those of the others, on the entries that they touch.

Each update is a vote of length one for its direction, so that a large update has no more weight. A decaying
sum of the votes is kept for each of seven groups of devices. An update of a device of group g, with entries
w, agrees with the others as

    cos(delta_w, sum of the votes of all groups but g at w)

Each device has a moving average of this agreement, of its loss and of the logarithm of its norm. Loss and
norm are relative to the usual values when the update came, so that a slow device is not compared with a later
model. A fourth average is how often its running statistics are absurd, while those of most are not. None of
this changes the model.
"""

import math
from statistics import median
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgeflock.server.descent import Step
from edgeflock.server.findings.kernels import compare_and_vote

TRACKED = 1 << 18
"""Only the last parameters have votes, 8 MiB at most. The layers nearest to the labels come last in nearly
all models, and devices that disagree about labels disagree most there."""

_MAX_SPARSE, _MAX_DENSE = 1 << 9, 1 << 13
"""The most entries, at the end of an update and of a whole gradient, that are compared: bounds the time."""

_GROUPS = 7
"""Up to this many devices are each compared with all others. With more devices, the own group is left out as
well. The votes of the groups and their sum fill half a cache line."""

_DECAY = 0.99
"""The factor by which a vote decays with each later one: the last hundred say where the others go. Older
votes no longer describe the model's direction."""

_MIN_VOTES = 1e-3
"""A sum of votes below this has decayed or cancelled: there is nothing to agree with."""

_WEIGHT = 0.02
"""The weight of a new value in the averages: one batch says little, fifty show the direction."""

_MIN_SECONDS, _MAX_RATE = 0.05, 200
"""The least seconds between two compared updates of a device, and the most compared updates a second of all
devices. So the cost does not grow with the server's load."""

_ABSURD = 100.0
"""Running statistics this many times the allowed distance away are absurd: no batch of this model has them.
Honest devices with one label each were up to 3.3 times as far."""
_MAX_ABSURD = 0.5
"""While this part of all updates is absurd, the model begins or was changed: no device is at fault."""
_RECENT_SECONDS, _MIN_RECENT = 60.0, 4
"""The usual value is the median of the devices' last updates within this many seconds. It covers all devices
if fewer than this many sent one."""

_USUAL_SECONDS, _USUAL_DEVICES = 1.0, 1000
"""The usual value is computed each second, or in as many seconds as there are thousands of devices."""

_LARGEST_SCALE = 1e6
"""New votes grow instead of all old votes shrinking; at this scale all votes are divided by it."""


class AgreementAverages(NamedTuple):
    """Averages over the recent updates of a device."""

    updates: int
    """Updates that were compared."""
    agreement: float | None
    """From -1 to 1; None: there was nothing to compare with."""
    loss: float | None
    norm: float
    """Natural logarithm of the updates' norm divided by the usual norm at their time."""
    excess: float = 0.0
    """Loss minus the usual loss at that time."""
    peak: float | None = None
    """The highest that `loss` has been."""
    absurd_share: float = 0.0
    """Part of the updates whose running statistics are absurd, while those of most are not."""


class _Latest(NamedTuple):
    """The figures of a device's last update, or the usual ones."""

    time: float
    norm: float
    loss: float | None


class AgreementTracker:
    """The averages of all devices. Call `observe` from one thread at a time, `of` from any."""

    def __init__(self, parameters: int) -> None:
        """`parameters` is the model's number of trained parameters."""
        size = min(parameters, TRACKED)
        self._first = parameters - size
        self._last = np.arange(parameters - min(_MAX_DENSE, size), parameters)
        """The entries of a whole gradient that are compared."""
        self._votes = _allocate_votes(size)
        self._scale = 1.0
        self._averages: dict[int, AgreementAverages] = {}
        self._latest: dict[int, _Latest] = {}
        self._usual, self._usual_time = _Latest(0.0, 0.0, None), -math.inf
        """The usual values, and when they were computed."""
        self._absurd = 1.0
        """The part of recent updates that are absurd. It starts at 1, so the first ones are not blamed."""

    def averages(self, device: int) -> AgreementAverages | None:
        """Return the averages of a device; None if it has sent nothing."""
        return self._averages.get(device)

    def observe(self, device: int, loss: float, step: Step) -> None:
        """Observe an admitted update. Its time is `step.time`, in seconds."""
        last = self._latest.get(device)
        if last is not None and 0 <= step.time - last.time < max(_MIN_SECONDS, len(self._latest) / _MAX_RATE):
            return
        indices, limit = (
            (self._last, _MAX_DENSE) if isinstance(step.indices, slice) else (step.indices, _MAX_SPARSE)
        )
        norm, dot, others, own = compare_and_vote(
            indices, step.delta, limit, self._first, self._votes, 1 + device % _GROUPS, self._scale / _DECAY
        )
        if not 0 < norm < math.inf:
            if last is not None:
                self._latest[device] = last._replace(time=step.time)
            return
        self._scale /= _DECAY
        agreement: float | None = None
        if own > 0 and others > (_MIN_VOTES * self._scale) ** 2:
            agreement = dot / math.sqrt(own * others)
        if self._scale > _LARGEST_SCALE:
            self._votes /= np.float32(self._scale)
            self._scale = 1.0
        absurd = step.excess >= _ABSURD
        self._absurd += _WEIGHT * (absurd - self._absurd)
        latest = _Latest(step.time, math.log(norm), loss if math.isfinite(loss) else None)
        self._latest[device] = latest
        self._find_usual(step.time)
        usual = self._usual
        excess = 0.0 if latest.loss is None or usual.loss is None else latest.loss - usual.loss
        new = AgreementAverages(
            1,
            agreement,
            latest.loss,
            latest.norm - usual.norm,
            excess,
            latest.loss,
            float(absurd and self._absurd < _MAX_ABSURD),
        )
        self._averages[device] = _moving_averages(self._averages.get(device), new)

    def _find_usual(self, now: float) -> None:
        """Compute the usual values now and then, since this goes through all devices."""
        if 0 <= now - self._usual_time < _USUAL_SECONDS * max(1.0, len(self._latest) / _USUAL_DEVICES):
            return
        self._usual_time = now
        latest = list(self._latest.values())
        recent = [one for one in latest if now - one.time <= _RECENT_SECONDS]
        recent = recent if len(recent) >= _MIN_RECENT else latest
        losses = [one.loss for one in recent if one.loss is not None]
        self._usual = _Latest(now, median(one.norm for one in recent), median(losses) if losses else None)


def _allocate_votes(size: int) -> NDArray[np.float32]:
    """Return float32 [size, 1 + _GROUPS] of zeros.

    No row spans two cache lines, because waiting for memory is most of the cost.
    """
    line, row = 16, 1 + _GROUPS
    buffer = np.zeros(row * size + line, np.float32)
    start = -(buffer.ctypes.data // buffer.itemsize) % line
    return buffer[start : start + row * size].reshape(size, row)


def _moving_averages(before: AgreementAverages | None, now: AgreementAverages) -> AgreementAverages:
    if before is None:
        return now
    part = max(_WEIGHT, 1 / (before.updates + 1))
    loss = _move(before.loss, now.loss, part)
    return AgreementAverages(
        before.updates + 1,
        _move(before.agreement, now.agreement, part),
        loss,
        before.norm + part * (now.norm - before.norm),
        before.excess + part * (now.excess - before.excess),
        loss if before.peak is None or loss is None else max(before.peak, loss),
        before.absurd_share + part * (now.absurd_share - before.absurd_share),
    )


def _move(before: float | None, now: float | None, part: float) -> float | None:
    if before is None or now is None:
        return before if now is None else now
    return before + part * (now - before)

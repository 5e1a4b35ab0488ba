"""The defences: pure functions that return the part of an update that counts."""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgeflock.server.defence.standing import Cosines
from edgeflock.server.descent import Index
from edgeflock.shared.plugins import Table

MIN_LIMIT = 3.0
"""In any fleet, an update may be this many times as large as usual."""

MAX_LIMIT = 5.0
"""The largest limit, as a multiple of the usual norm."""

DEVIATIONS = 3.0
"""Between MIN_LIMIT and MAX_LIMIT, the limit is this many standard deviations of the norms' logarithms.
Honest norms differ more if each device holds only its own kind of samples than if samples are dealt at
random."""

_SIGMA_PER_MAD = 1.4826
"""The standard deviation of a normal distribution over its median absolute deviation."""

WORST = -1.0
"""Updates of a device with a lower standing do not count."""


@dataclass(frozen=True, slots=True)
class AdmittedUpdate:
    """An admitted update, and what is known about it."""

    indices: Index
    delta: NDArray[np.float32]
    norm: float
    """|delta| times the weight by samples. Times the learning rate, it is the most that theta changes."""
    usual: float
    """`UsualNorms.usual`, the median norm of the latest updates. 0: too few are known (norms.MIN_NORMS).
    Infinity: none is known and none is required."""
    spread: float
    """More than half of these norms differ from `usual` by at most this factor."""
    agreement: Cosines | None = None
    """Cosines of the update with the trusted directions; None: there are none."""
    standing: float | None = None
    """The evidence for or against the device, this update included (standing.py). A new device starts at 0.
    None: nothing is known."""
    spent: bool = False
    """Whether the device, or all new devices together, have used up their part of the updates (recent.py)."""


@dataclass(frozen=True, slots=True)
class DefenceKind:
    share: Callable[[AdmittedUpdate], float]
    """Returns the part of the update that counts: 1 all of it, 0 nothing. NaN and infinity mean 0."""
    trusts: bool = False
    """Whether it uses trusted gradients, for which the server sets samples apart."""


def norm_limit(usual: float, spread: float) -> float:
    """Return the largest norm allowed: u exp(DEVIATIONS d) with d the deviation of ln |g|.

    It is at least MIN_LIMIT u and at most MAX_LIMIT u.
    """
    times = MAX_LIMIT if spread >= MAX_LIMIT else spread ** (DEVIATIONS * _SIGMA_PER_MAD)
    return usual * min(MAX_LIMIT, max(MIN_LIMIT, times))


def norm_to_record(share: float, norm: float, usual: float) -> float:
    """Return the norm to record of an update of which `share` counted, at the `usual` norm of that time.

    An update that was too large counts as at most MIN_LIMIT times the usual norm, so that the usual norm can
    still grow. A much smaller one counts as at least usual / MIN_LIMIT. Otherwise tiny updates would
    make the usual norm tiny, and all others too large for long. While there is no usual norm, the whole norm
    is recorded, though the update does not count. 0: no norm is recorded.
    """
    if not usual or usual == inf or not norm:
        return norm
    if not share:
        return 0.0
    return max(norm if share == 1 else min(norm, MIN_LIMIT * usual), usual / MIN_LIMIT)


def clip(update: AdmittedUpdate) -> float:
    """Return 1 for a norm up to `norm_limit`, else u / |g|: a larger update counts as much as a usual one.

    If large updates were cut to `norm_limit`, each would move the model three times as far as an honest one.
    Return 0 while there is no usual norm, or if the device has used up its part.
    """
    if update.spent or not update.usual:
        return 0.0
    return update.usual / update.norm if norm_limit(update.usual, update.spread) < update.norm else 1.0


def score(update: AdmittedUpdate) -> float:
    """Return 0 if the device's updates disagree with the trusted gradients, else `clip`.

    It is based on Zeno++ (C. Xie, S. Koyejo, I. Gupta, ICML 2020, section 4), which scores a single update.
    Here a device's updates are scored together. One honest update with few entries may disagree, but not all
    updates of an honest device.
    """
    if update.standing is not None and update.standing < WORST:
        return 0.0
    return clip(update)


def kind_of(found: Any) -> DefenceKind | None:
    """Return a DefenceKind from a DefenceKind or a function of an AdmittedUpdate; else None."""
    if isinstance(found, DefenceKind):
        return found
    return DefenceKind(found) if callable(found) else None


DEFENCES: Table[DefenceKind] = Table(
    "edgeflock.defences",
    {
        "none": DefenceKind(lambda seen: 1.0),
        "clip": DefenceKind(clip),
        "score": DefenceKind(score, trusts=True),
    },
    kind_of,
)
"""Defences by their name in `defence.mode`."""

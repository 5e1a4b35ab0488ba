"""The defences: what part of an update counts, from what is seen of it. Pure."""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgeflock.server.defence.trusted import Cosines
from edgeflock.server.descent import Where
from edgeflock.shared.plugins import Table

LEAST = 3.0
"""An update may be so many times as large as usual in any fleet,"""

MOST = 5.0
"""and so many times at most,"""

DEVIATIONS = 3.0
"""and between these by so many deviations of the logarithms of what is usual: where devices hold samples of
their own kind alone, honest norms differ more than where samples were dealt at random."""

_OF_A_SPREAD = 1.4826
"""Deviations of a normal distribution that its median absolute one is the inverse of."""

WORST = -1.0
"""A device that stands lower is not let through."""


@dataclass(frozen=True, slots=True)
class AdmittedUpdate:
    """An admitted update, and what is known beside it."""

    where: Where
    delta: NDArray[np.float32]
    norm: float
    """|delta| by the samples that it is weighed with: times the learning rate, the most that it changes."""
    usual: float
    """The median norm of those that counted lately; 0: too few are known (norms.HELD);
    infinity: none is, nor waited for."""
    spread: float
    """More than half of these are no more than so many times larger or smaller than usual."""
    agreement: Cosines | None = None
    """Of the update with what the server trusts; None: there is nothing."""
    standing: float | None = None
    """What its device's updates, this one too, say for the device, or against it (standing.py); of a new one
    nothing is known, 0."""
    spent: bool = False
    """Whether its device, or all new ones together, had their part of the latest updates (recent.py)."""


@dataclass(frozen=True, slots=True)
class DefenceKind:
    """A kind of defence."""

    share: Callable[[AdmittedUpdate], float]
    """The part of the update that counts: 1 all of it, 0 nothing. What is no number is 0."""
    trusts: bool = False
    """Whether it goes by a trusted gradient, for which the server sets samples apart."""


def most(usual: float, spread: float) -> float:
    """How large an update may be: u exp(DEVIATIONS d), d the deviation of ln |g|; LEAST u to MOST u."""
    times = MOST if spread >= MOST else spread ** (DEVIATIONS * _OF_A_SPREAD)
    return usual * min(MOST, max(LEAST, times))


def remembered(share: float, norm: float, usual: float) -> float:
    """What is known from then on of an update with this norm, of which `share` counted, when this was usual.

    Of one that was too large at most LEAST usual ones: if only usual ones were known, what is usual could
    never grow. Of one that is much smaller as much the other way: tiny updates would make what is usual tiny,
    and all others too large for long. While nothing is usual, all of it, though nothing of it counts; 0:
    nothing.
    """
    if not usual or usual == inf or not norm:
        return norm
    if not share:
        return 0.0
    return max(norm if share == 1 else min(norm, LEAST * usual), usual / LEAST)


def clip(seen: AdmittedUpdate) -> float:
    """All of an update up to `most`; u / |g| of what is beyond it, which then counts as much as a usual one.

    Cut to `most` itself, many that are too large would be as many that each move the model three times as
    far as an honest one: a learning rate that nobody chose. Nothing counts before anything is usual, nor of
    a device that had its part.
    """
    if seen.spent or not seen.usual:
        return 0.0
    return seen.usual / seen.norm if most(seen.usual, seen.spread) < seen.norm else 1.0


def score(seen: AdmittedUpdate) -> float:
    """0 where the device's updates disagree with the trusted gradient, else as `clip`.

    In the spirit of Zeno++ (C. Xie, S. Koyejo, I. Gupta, ICML 2020, section 4), whose score of one update is
    put together here over its device's: an honest one of few entries may well disagree, all of a device's do
    not.
    """
    if seen.standing is not None and seen.standing < WORST:
        return 0.0
    return clip(seen)


def kind_of(found: Any) -> DefenceKind | None:
    """A DefenceKind, or a function of an AdmittedUpdate."""
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
"""By the name that `defence.mode` gives them."""

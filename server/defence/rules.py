"""The defences: what part of an update counts, from what is seen of it. Pure."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgeflock.server.descent import Where
from edgeflock.shared.plugins import Table

MOST = 3.0
"""An update may be so many times as large as usual."""

LEAST = -0.005
"""A device that stands lower is not let through. Honest ones stand above 0 once they are known, and not
far below it before."""


@dataclass(frozen=True, slots=True)
class Seen:
    """An admitted update, and what is known beside it."""

    where: Where
    delta: NDArray[np.float32]
    norm: float
    """|delta| by the samples that it is weighed with: times the learning rate, the most that it changes."""
    usual: float
    """The median norm of those that counted lately; 0: there are none."""
    agreement: float | None = None
    """Of the update with the trusted gradient, -1 to 1; None: there is none."""
    standing: float | None = None
    """The same over its device's updates, this one too; of a new one nothing is expected, 0."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of defence."""

    share: Callable[[Seen], float]
    """The part of the update that counts: 1 all of it, 0 nothing. What is no number is 0."""
    trusts: bool = False
    """Whether it goes by a trusted gradient, for which the server sets samples apart."""


def clip(seen: Seen) -> float:
    """min(1, MOST u / |g|), u the usual norm."""
    most = MOST * seen.usual
    return most / seen.norm if 0 < most < seen.norm else 1.0


def score(seen: Seen) -> float:
    """0 where the device's updates disagree with the trusted gradient, else as `clip`.

    In the spirit of Zeno++ (C. Xie, S. Koyejo, I. Gupta, ICML 2020, section 4), whose score of one update is
    averaged here over its device's: an honest one of few entries may well disagree, all of a device's do not.
    """
    if seen.standing is not None and seen.standing < LEAST:
        return 0.0
    return clip(seen)


def kind_of(found: Any) -> Kind | None:
    """A Kind, or a function of what is seen."""
    if isinstance(found, Kind):
        return found
    return Kind(found) if callable(found) else None


DEFENCES: Table[Kind] = Table(
    "edgeflock.defences",
    {"none": Kind(lambda seen: 1.0), "clip": Kind(clip), "score": Kind(score, trusts=True)},
    kind_of,
)
"""By the name that `defence.mode` gives them."""

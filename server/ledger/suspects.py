"""Find the update that may have broken the model: the one with the largest step in the journal."""

from dataclasses import dataclass
from statistics import median

import numpy as np

from edgeflock.server.journal.journal import Journal
from edgeflock.server.ledger.recovery import steps
from edgeflock.shared.model.layout import Layout


@dataclass(frozen=True, slots=True)
class Suspect:
    """An update in the journal."""

    version: int
    """The version that it made."""
    device: str
    sequence: int
    is_large: bool = True
    """Whether it is much larger than the others' steps at that time, as far as there are enough."""
    is_outlier: bool = True
    """Whether it is certainly much larger."""


_MIN_OTHERS, _FACTOR = 3, 30.0
"""The least number of other devices, and the factor over the median of their last steps. If the learning rate
is too high, all steps grow, each by less than that, and no device is to blame."""


def largest_step(journal: Journal, layout: Layout, after: int, until: int) -> Suspect | None:
    """Find the first version after `after` up to `until` with an outlier, else the largest step.

    A step's size is its largest entry, times its samples if the run counts them. None without kept records,
    and in a private run, whose devices must not show. Steps of two learning rates or stalenesses are not
    quite comparable: the result is a hint, not a proof.
    """
    first = journal.first_stored()
    begin = max(after, journal.last_rollback(), (first or until + 1) - 1)
    regime = journal.regimes()[-1].regime
    if regime.method.bound:
        return None
    counts = regime.rounds or regime.base_batch > 0
    largest, worst = -1.0, 0
    last: dict[str, float] = {}
    for version, step in enumerate(steps(journal, layout, begin, until) if begin < until else (), begin + 1):
        size = float(np.abs(step.delta).max(initial=0)) * (step.samples if counts else 1)
        device, sequence = journal.update_origin(version)
        others = [other for name, other in last.items() if name != device]
        if len(others) >= _MIN_OTHERS and size > _FACTOR * median(others):
            return Suspect(version, device, sequence)
        last[device] = size
        if size > largest:
            largest, worst = size, version
    return Suspect(worst, *journal.update_origin(worst), len(last) <= _MIN_OTHERS, False) if worst else None

"""Which update may have broken the model: the one with the largest step, of those that the journal has."""

from dataclasses import dataclass

import numpy as np

from edgeflock.server.ledger.journal import Journal
from edgeflock.server.ledger.recovery import steps
from edgeflock.shared.model.layout import Layout


@dataclass(frozen=True, slots=True)
class Suspect:
    """An update in the journal."""

    version: int
    """The one that it made."""
    device: str
    sequence: int


def largest_step(journal: Journal, layout: Layout, after: int, until: int) -> Suspect | None:
    """That of the versions after `after` up to `until` whose largest entry is the largest, samples counted if
    the run counts them. None if no record of these is kept.

    Between two rates or of different staleness it compares what is not quite alike: a hint, no proof.
    """
    kept = journal.first_kept()
    begin = max(after, journal.last_rollback(), (kept or until + 1) - 1)
    regime = journal.regimes()[-1].regime
    counts = regime.rounds or regime.base_batch > 0
    largest, found = -1.0, 0
    for version, step in enumerate(steps(journal, layout, begin, until) if begin < until else (), begin + 1):
        size = float(np.abs(step.delta).max(initial=0)) * (step.samples if counts else 1)
        if size > largest:
            largest, found = size, version
    return Suspect(found, *journal.maker(found)) if found else None

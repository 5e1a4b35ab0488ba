"""How often devices have taken part in a private run, and whether they may again.

A device takes part at most once in a tree, and at most as often as its budget allows. The journal has all
that this depends on.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

import msgpack

from edgeflock.server.privacy.accounting import Accountant
from edgeflock.shared.protocol.frames import PrivacySpent


class Participations:
    """Counts the updates of devices."""

    def __init__(self, accountant: Accountant, counts: Mapping[int, int], group: int) -> None:
        """`counts` has the updates of each device so far. `group` is how many devices make a step."""
        self._accountant = accountant
        self._counts = Counter({device: count for device, count in counts.items() if count})
        self._group = group
        self.present: set[int] = set()
        """The devices that are connected."""
        self._highest = max(self._counts.values(), default=0)

    @property
    def spent(self) -> PrivacySpent:
        """What the run has cost."""
        return self._accountant.spent(self._highest)

    def add(self, device: int) -> None:
        """Count an update of a device."""
        self._counts[device] += 1
        self._highest = max(self._highest, self._counts[device])

    def add_refused(self, device: int) -> None:
        """Count an update that is refused: one that hides examples from the server has cost as much.

        Refusals are not in the journal, so a restart forgets them.
        """
        if self._accountant.hides_examples:
            self.add(device)

    def has_left(self, device: int) -> bool:
        """Whether the budget of the device has a participation left."""
        return not self._accountant.limit or self._counts[device] < self._accountant.limit

    def farewell(self, device: int) -> str | None:
        """Return why the run is over for a device; None: it is not."""
        if self.has_left(device):
            return None
        limit = self._accountant.limit
        return (
            f"the run is over for this device: its {limit} update{'s' * (limit != 1)} spent its "
            "privacy budget (privacy.epsilon, privacy.participations)"
        )

    def end_reason(self, waiting: int) -> str | None:
        """Return why the run is over, if too few devices have a participation left for another step.

        `waiting` updates are part of it already.
        """
        limit = self._accountant.limit
        if not limit or self._highest < limit:
            return None
        known = self.present | self._counts.keys()
        if sum(self.has_left(device) for device in known) >= self._group - waiting:
            return None
        spent = self.spent
        return (
            f"its privacy budget is spent: epsilon = {spent.text} at delta = {spent.delta:.3g}, after "
            f"{spent.participations} update{'s' * (spent.participations != 1)} of a device; to go on, begin "
            "a new run with more noise, or a larger privacy.epsilon"
        )


def pack_summed(devices: Iterable[int]) -> bytes:
    """Encode the devices whose secure sum an update is, for the journal."""
    return bytes(msgpack.packb(list(devices)))


def count_updates(rows: Iterable[tuple[int, bytes | None]]) -> Counter[int]:
    """Return how many updates each device had a part in: rows of (device, `pack_summed(...)` or None)."""
    counts: Counter[int] = Counter()
    for device, summed in rows:
        counts.update((device,) if summed is None else msgpack.unpackb(summed))
    return counts

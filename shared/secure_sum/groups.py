"""The groups of a round: each makes a secure sum of its own, and all take each step together.

A bad device spoils the sum of its group alone. So an aggregate of the groups' means, such as their median,
tolerates bad devices although nobody sees a single gradient. Usually a round is one group. Devices do not
notice: to each of them, its group is the round. No I/O and no clock.
"""

import hashlib
from collections.abc import Mapping, Sequence, Set

from edgeflock.shared.secure_sum.aggregator import Aggregator
from edgeflock.shared.secure_sum.keys import PublicKeys
from edgeflock.shared.secure_sum.messages import SumAbandoned, SumStep


class GroupedRound:
    """One round of one group or more."""

    def __init__(self, groups: Sequence[Aggregator]) -> None:
        """The groups have no device in common, and the same terms, ranges and entries."""
        self.groups = list(groups)
        """Those that have not failed."""
        self.base, self.ranges, self.entries = groups[0].terms.base, groups[0].ranges, groups[0].entries
        self._group_of = {device: group for group in groups for device in group.positions}
        self._fewest = len(groups) // 2 + 1
        self._failures: dict[bytes, str] = {}

    @property
    def failures(self) -> Sequence[str]:
        """Why groups have no sum."""
        return list(self._failures.values())

    @property
    def step(self) -> SumStep:
        """What the devices are to send now."""
        return self.groups[0].step

    @property
    def devices(self) -> Set[int]:
        """The devices of all groups, those of failed ones included."""
        return self._group_of.keys()

    @property
    def missing(self) -> Set[int]:
        """The devices that are in the round and have not sent what they are to send."""
        return {device for group in self.groups for device in group.missing}

    @property
    def summed(self) -> Set[int]:
        """The devices whose vectors the sums have."""
        return {device for group in self.groups for device in group.summed}

    @property
    def wrong(self) -> Set[int]:
        """The devices that revealed a wrong share."""
        return {device for group in set(self._group_of.values()) for device in group.wrong}

    def digest(self, device: int) -> bytes:
        """Return the digest of the device's round; empty: the device is in none."""
        group = self._group_of.get(device)
        return b"" if group is None else group.digest

    def at_position(self, device: int, position: int) -> int | None:
        """Return the device at this position of the group of `device`."""
        group = self._group_of.get(device)
        places: Mapping[int, int] = {} if group is None else group.positions
        return next((other for other, place in places.items() if place == position), None)

    def failure(self, device: int) -> str:
        """Return why the group of a device of the round has failed; empty: it has not."""
        return self._failures.get(self._group_of[device].digest, "")

    def receive(self, device: int, step: int, body: bytes) -> None:
        """Take what a device of the round sends. Raises Malformed, and SumAbandoned if it is late."""
        if reason := self.failure(device):
            raise SumAbandoned(reason)
        self._group_of[device].receive(device, step, body)

    def answer(self, device: int) -> bytes:
        """Return the answer to the last step that a device has sent. Its group has not failed."""
        return self._group_of[device].answer(device)

    def leave(self, device: int) -> None:
        """Wait no more for a device, which may be in the round."""
        if (group := self._group_of.get(device)) is not None:
            group.leave(device)

    def advance(self) -> None:
        """Go on to the next step. A group with too few devices fails alone.

        Raises SumAbandoned if no more than half of the groups are left.
        """
        for group in list(self.groups):
            try:
                group.advance()
            except SumAbandoned as abandoned:
                self._failures[group.digest] = str(abandoned)
                if len(self.groups) <= self._fewest:
                    raise
                self.groups.remove(group)


def deal(keys: Mapping[int, PublicKeys], groups: int) -> list[dict[int, PublicKeys]]:
    """Deal the devices of a round out to groups of nearly equal size.

    The order follows from the keys of all, which no device knows before the round begins. So none chooses its
    group.
    """
    together = b"".join(sorted(one.channel for one in keys.values()))

    def place(device: int) -> bytes:
        return hashlib.sha256(keys[device].channel + together).digest()

    order = sorted(keys, key=place)
    return [{device: keys[device] for device in order[first::groups]} for first in range(groups)]

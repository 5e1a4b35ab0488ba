"""Samples from one device to the others (ScaDLES, section IV: data injection).

Each goes to one of them: whoever shares gives away what another one then trains on in its place, so that no
sample counts more than another (client/data/injection.py). They reach a device along with the next answer to
it, since it reads then. What comes before that waits here, in bounded space: handing samples over never waits
for anybody.
"""

import itertools
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from edgeflock.shared.errors import FrameTooLarge, Malformed, UnexpectedRecord
from edgeflock.shared.protocol import wire
from edgeflock.shared.protocol.messages import Samples
from edgeflock.shared.settings.traffic import InjectionSettings

WAITING_BYTES = 1 << 22
"""The most that waits for one device, unless it is one record: the oldest go first."""

_LEAST = 1 << 12
"""A small record counts as so many bytes, which bounds how many wait."""

Parcel = tuple[int, bytes]
"""(number of samples, the record's bytes)."""

Post = Callable[[Parcel], None]


class Relay:
    """Deals the samples of each device that shares out among all others that do and are connected."""

    def __init__(self, injection: InjectionSettings, most: int) -> None:
        """A record has `most` samples at most."""
        self._on = injection.alpha > 0 and injection.beta > 0
        self._most = most
        self._boxes: dict[int, _Box] = {}
        self.samples = 0
        """Shared so far."""
        self.dropped = 0
        """Of them, those that no device got: they waited too long for one, or it left."""
        self._turn = 0
        """Whose turn it is to get one more, if a record cannot be dealt out evenly."""

    def join(self, device: int, post: Post | None = None) -> None:
        """A device that shares is connected; if it is to a gateway, `post` gets what is for it."""
        if self._on:
            self._boxes[device] = _Mailbox() if post is None else _Posted(post)

    def leave(self, device: int) -> None:
        """It is no longer; or it never shared."""
        self.dropped += sum(count for count, _ in self.take(device))
        self._boxes.pop(device, None)

    def share(self, device: int, samples: Samples, octets: bytes) -> None:
        """`octets`, which hold `samples`, are for the others, in equal parts; for `device`, who sent them, if
        there are none.

        Raises UnexpectedRecord if it may not share, FrameTooLarge or Malformed.
        """
        self.check(device, samples)
        self.samples += samples.count
        others = [box for other, box in self._boxes.items() if other != device]
        if len(others) < 2:
            (box,) = others or [self._boxes[device]]
            self.dropped += box.put((samples.count, octets))
            return
        first = self._turn % len(others)
        for box, part in zip([*others[first:], *others[:first]], parts(samples, len(others)), strict=False):
            self.dropped += box.put((part.count, wire.encode(part)))
        self._turn = (first + samples.count) % len(others)

    def hand(self, device: int, parcel: Parcel) -> int:
        """Let it wait for `device`; how many samples reach nobody for that."""
        box = self._boxes.get(device)
        return parcel[0] if box is None else box.put(parcel)

    def take(self, device: int) -> list[Parcel]:
        """What waits for `device`, oldest first, and then waits no more."""
        box = self._boxes.get(device)
        return box.take() if box is not None else []

    def check(self, device: int, samples: Samples) -> None:
        """Raises UnexpectedRecord if the device may not share, FrameTooLarge or Malformed. Of what shape a
        sample is, only devices know.
        """
        if not self._on:
            raise UnexpectedRecord("this run shares no samples (injection.alpha, injection.beta)")
        if device not in self._boxes:
            raise UnexpectedRecord("this device did not say that it shares samples (client.share)")
        count, x, y = samples.count, len(samples.x), len(samples.y)
        if count > self._most:
            raise FrameTooLarge(
                f"at most {self._most} samples are shared at once (limits.samples), not {count}"
            )
        if count < 1 or not _divides(count * (1 if samples.octets else 4), x) or not _divides(4 * count, y):
            raise Malformed(f"{count} samples cannot have {x} bytes of x and {y} of y")


def parts(samples: Samples, most: int) -> list[Samples]:
    """`samples` in up to `most` parts, as equal as can be, the larger ones first, and none of them empty."""
    number = min(most, samples.count)
    each, more = divmod(samples.count, number)
    ends = [part * each + min(part, more) for part in range(number + 1)]
    x, y = len(samples.x) // samples.count, len(samples.y) // samples.count
    return [
        replace(samples, count=b - a, x=samples.x[a * x : b * x], y=samples.y[a * y : b * y])
        for a, b in itertools.pairwise(ends)
    ]


class _Box(Protocol):
    """Where samples for one device go."""

    def put(self, parcel: Parcel) -> int:
        """How many samples had to go for it."""

    def take(self) -> list[Parcel]: ...


class _Posted:
    """Nothing waits here."""

    def __init__(self, post: Post) -> None:
        self._post = post

    def put(self, parcel: Parcel) -> int:
        self._post(parcel)
        return 0

    def take(self) -> list[Parcel]:
        return []


class _Mailbox:
    """What waits for one device."""

    def __init__(self) -> None:
        self._parcels: deque[Parcel] = deque()
        self._octets = 0

    def put(self, parcel: Parcel) -> int:
        self._parcels.append(parcel)
        self._octets += _size(parcel)
        dropped = 0
        while self._octets > WAITING_BYTES and len(self._parcels) > 1:
            oldest = self._parcels.popleft()
            self._octets -= _size(oldest)
            dropped += oldest[0]
        return dropped

    def take(self) -> list[Parcel]:
        parcels = list(self._parcels)
        self._parcels.clear()
        self._octets = 0
        return parcels


def _size(parcel: Parcel) -> int:
    return max(len(parcel[1]), _LEAST)


def _divides(part: int, whole: int) -> bool:
    return whole >= part and whole % part == 0

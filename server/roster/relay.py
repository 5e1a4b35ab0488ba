"""Relays samples from one device to the others (ScaDLES, section IV: data injection).

Each sample goes to one device, which trains on it in the sender's place. So no sample counts more than
another (client/data/injection.py). A device gets its samples along with the next answer, since it reads then.
Until then they wait here, in bounded space. Sharing never waits for another device.
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
"""The most bytes that wait for one device, unless it is one record. The oldest are dropped first."""

_LEAST = 1 << 12
"""The least bytes that a record counts as, which bounds how many wait."""

Parcel = tuple[int, bytes]
"""(number of samples, the record's bytes)."""

Post = Callable[[Parcel], None]


class Relay:
    """Deals each device's shared samples out among the other connected devices that share."""

    def __init__(self, injection: InjectionSettings, most: int) -> None:
        """A record may have at most `most` samples."""
        self._on = injection.alpha > 0 and injection.beta > 0
        self._most = most
        self._boxes: dict[int, _Box] = {}
        self.samples = 0
        """Samples shared so far."""
        self.dropped = 0
        """Shared samples that no device got, since they waited too long or their device left."""
        self._turn = 0
        """The device that gets one more, if a record cannot be dealt out evenly."""

    def join(self, device: int, post: Post | None = None) -> None:
        """Add a connected device that shares. At a gateway, `post` sends it its samples."""
        if self._on:
            self._boxes[device] = _Mailbox() if post is None else _Posted(post)

    def leave(self, device: int) -> None:
        """Remove a device. A device that does not share is ignored."""
        self.dropped += sum(count for count, _ in self.take(device))
        self._boxes.pop(device, None)

    def share(self, device: int, samples: Samples, octets: bytes) -> None:
        """Deal `samples`, encoded as `octets`, out among the others in equal parts.

        If there are no others, `device` gets its own samples back.

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
        """Queue a parcel for `device`. Return how many samples this drops."""
        box = self._boxes.get(device)
        return parcel[0] if box is None else box.put(parcel)

    def take(self, device: int) -> list[Parcel]:
        """Remove and return what waits for `device`, oldest first."""
        box = self._boxes.get(device)
        return box.take() if box is not None else []

    def check(self, device: int, samples: Samples) -> None:
        """Raises UnexpectedRecord if the device may not share, FrameTooLarge or Malformed.

        The server does not know a sample's shape, so it checks sizes only."""
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
    """Split `samples` into up to `most` parts of nearly equal size, the larger ones first, none empty."""
    number = min(most, samples.count)
    each, more = divmod(samples.count, number)
    ends = [part * each + min(part, more) for part in range(number + 1)]
    x, y = len(samples.x) // samples.count, len(samples.y) // samples.count
    return [
        replace(samples, count=b - a, x=samples.x[a * x : b * x], y=samples.y[a * y : b * y])
        for a, b in itertools.pairwise(ends)
    ]


class _Box(Protocol):
    """The destination of samples for one device."""

    def put(self, parcel: Parcel) -> int:
        """Add a parcel. Return how many samples were dropped for it."""

    def take(self) -> list[Parcel]: ...


class _Posted:
    """Posts each parcel at once, so that none waits here."""

    def __init__(self, post: Post) -> None:
        self._post = post

    def put(self, parcel: Parcel) -> int:
        self._post(parcel)
        return 0

    def take(self) -> list[Parcel]:
        return []


class _Mailbox:
    """The parcels that wait for one device."""

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

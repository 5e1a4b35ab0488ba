"""Samples from one device to the others, as the bytes that came (ScaDLES, section IV: data injection).

They reach a device along with the next answer to it, since it reads then. What comes before that waits here,
in bounded space: handing samples over never waits for anybody.
"""

from collections import deque

from edgeflock.shared.errors import FrameTooLarge, Malformed, UnexpectedRecord
from edgeflock.shared.protocol.messages import Samples
from edgeflock.shared.settings.config import InjectionSettings

WAITING_BYTES = 1 << 22
"""The most that waits for one device, unless it is one record: the oldest go first."""

_LEAST = 1 << 12
"""A small record counts as so many bytes, which bounds how many wait."""

Parcel = tuple[int, bytes]
"""(number of samples, the record's bytes)."""


class Relay:
    """Hands samples of each device that shares to all others that do and are connected."""

    def __init__(self, injection: InjectionSettings, most: int) -> None:
        """A record has `most` samples at most."""
        self._on = injection.alpha > 0 and injection.beta > 0
        self._most = most
        self._boxes: dict[int, _Mailbox] = {}
        self.samples = 0
        """Shared so far."""
        self.dropped = 0
        """Copies of them that no device got: they waited too long for one, or it left."""

    def join(self, device: int) -> None:
        """A device that shares is connected."""
        if self._on:
            self._boxes[device] = _Mailbox()

    def leave(self, device: int) -> None:
        """It is no longer; or it never shared."""
        self.dropped += sum(count for count, _ in self.take(device))
        self._boxes.pop(device, None)

    def share(self, device: int, samples: Samples, octets: bytes) -> None:
        """`octets`, which hold `samples`, are for all but `device`, who sent them.

        Raises UnexpectedRecord if it may not share, FrameTooLarge or Malformed.
        """
        if not self._on:
            raise UnexpectedRecord("this run shares no samples (injection.alpha, injection.beta)")
        if device not in self._boxes:
            raise UnexpectedRecord("this device did not say that it shares samples (client.share)")
        self._check(samples)
        self.samples += samples.count
        parcel = samples.count, octets
        for other, box in self._boxes.items():
            if other != device:
                self.dropped += box.put(parcel)

    def take(self, device: int) -> list[Parcel]:
        """What waits for `device`, oldest first, and then waits no more."""
        box = self._boxes.get(device)
        return box.take() if box is not None else []

    def _check(self, samples: Samples) -> None:
        """Of what shape a sample is, only devices know."""
        count, x, y = samples.count, len(samples.x), len(samples.y)
        if count > self._most:
            raise FrameTooLarge(
                f"at most {self._most} samples are shared at once (limits.samples), not {count}"
            )
        if count < 1 or not _divides(count * (1 if samples.octets else 4), x) or not _divides(4 * count, y):
            raise Malformed(f"{count} samples cannot have {x} bytes of x and {y} of y")


class _Mailbox:
    """What waits for one device."""

    def __init__(self) -> None:
        self._parcels: deque[Parcel] = deque()
        self._octets = 0

    def put(self, parcel: Parcel) -> int:
        """How many samples had to go for it."""
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

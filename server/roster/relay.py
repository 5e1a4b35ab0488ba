"""Relays samples from one device to the others (ScaDLES, section IV: data injection).

Each sample goes to one device, which trains on it in the sender's place. So no sample counts more than
another (client/data/injection.py). A device gets its samples along with the next answer, since it reads then.
Until then they wait here, in bounded space. Sharing never waits for another device.
"""

import itertools
from collections import deque
from collections.abc import Callable
from dataclasses import replace

from edgeflock.shared.errors import FrameTooLarge, Malformed, UnexpectedRecord
from edgeflock.shared.protocol import wire
from edgeflock.shared.protocol.messages import Samples
from edgeflock.shared.settings.traffic import InjectionSettings

WAITING_BYTES = 1 << 22
"""The most bytes that wait for one device, unless it is one record. The oldest are dropped first."""

_MIN_RECORD_BYTES = 1 << 12
"""The least bytes that a record counts as, which bounds how many wait."""

SampleRecord = tuple[int, bytes]
"""(number of samples, the record's bytes)."""

SendSamples = Callable[[SampleRecord], None]


class Relay:
    """Deals each device's shared samples out among the other connected devices that share."""

    def __init__(self, injection: InjectionSettings, limit: int) -> None:
        """A record may have at most `limit` samples."""
        self._enabled = injection.alpha > 0 and injection.beta > 0
        self._limit = limit
        self._queues: dict[int, _Queue] = {}
        self.samples = 0
        """Samples shared so far."""
        self.dropped = 0
        """Shared samples that no device got, since they waited too long or their device left."""
        self._turn = 0
        """The device that gets one more, if a record cannot be dealt out evenly."""

    def join(self, device: int, send: SendSamples | None = None) -> None:
        """Add a connected device that shares. At a gateway, `send` sends it its samples."""
        if self._enabled:
            self._queues[device] = _Queue(send)

    def leave(self, device: int) -> None:
        """Remove a device. A device that does not share is ignored."""
        self.dropped += sum(count for count, _ in self.take(device))
        self._queues.pop(device, None)

    def share(self, device: int, samples: Samples, octets: bytes) -> None:
        """Deal `samples`, encoded as `octets`, out among the others in equal parts.

        If there are no others, `device` gets its own samples back.

        Raises UnexpectedRecord if it may not share, FrameTooLarge or Malformed.
        """
        self.check(device, samples)
        self.samples += samples.count
        others = [queue for other, queue in self._queues.items() if other != device]
        if len(others) < 2:
            (queue,) = others or [self._queues[device]]
            self.dropped += queue.put((samples.count, octets))
            return
        first = self._turn % len(others)
        for queue, part in zip([*others[first:], *others[:first]], parts(samples, len(others)), strict=False):
            self.dropped += queue.put((part.count, wire.encode(part)))
        self._turn = (first + samples.count) % len(others)

    def queue(self, device: int, record: SampleRecord) -> int:
        """Queue a parcel for `device`. Return how many samples this drops."""
        queue = self._queues.get(device)
        return record[0] if queue is None else queue.put(record)

    def take(self, device: int) -> list[SampleRecord]:
        """Remove and return what waits for `device`, oldest first."""
        queue = self._queues.get(device)
        return queue.take() if queue is not None else []

    def check(self, device: int, samples: Samples) -> None:
        """Raises UnexpectedRecord if the device may not share, FrameTooLarge or Malformed.

        The server does not know a sample's shape, so it checks sizes only.
        """
        if not self._enabled:
            raise UnexpectedRecord("this run shares no samples (injection.alpha, injection.beta)")
        if device not in self._queues:
            raise UnexpectedRecord("this device did not say that it shares samples (client.share)")
        count, x, y = samples.count, len(samples.x), len(samples.y)
        if count > self._limit:
            raise FrameTooLarge(
                f"at most {self._limit} samples are shared at once (limits.samples), not {count}"
            )
        if count < 1 or not _divides(count * (1 if samples.octets else 4), x) or not _divides(4 * count, y):
            raise Malformed(f"{count} samples cannot have {x} bytes of x and {y} of y")


def parts(samples: Samples, limit: int) -> list[Samples]:
    """Split `samples` into up to `limit` parts of nearly equal size, the larger ones first, none empty."""
    number = min(limit, samples.count)
    each, more = divmod(samples.count, number)
    ends = [part * each + min(part, more) for part in range(number + 1)]
    x, y = len(samples.x) // samples.count, len(samples.y) // samples.count
    return [
        replace(samples, count=b - a, x=samples.x[a * x : b * x], y=samples.y[a * y : b * y])
        for a, b in itertools.pairwise(ends)
    ]


class _Queue:
    """The parcels that wait for one device. At a gateway, `send` sends each at once, so that none waits."""

    def __init__(self, send: SendSamples | None) -> None:
        self._send = send
        self._records: deque[SampleRecord] = deque()
        self._octets = 0

    def put(self, record: SampleRecord) -> int:
        """Add a parcel. Return how many samples were dropped for it."""
        if self._send is not None:
            self._send(record)
            return 0
        self._records.append(record)
        self._octets += _size(record)
        dropped = 0
        while self._octets > WAITING_BYTES and len(self._records) > 1:
            oldest = self._records.popleft()
            self._octets -= _size(oldest)
            dropped += oldest[0]
        return dropped

    def take(self) -> list[SampleRecord]:
        records = list(self._records)
        self._records.clear()
        self._octets = 0
        return records


def _size(record: SampleRecord) -> int:
    return max(len(record[1]), _MIN_RECORD_BYTES)


def _divides(part: int, whole: int) -> bool:
    return whole >= part and whole % part == 0

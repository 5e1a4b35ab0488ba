"""Data injection for non-IID data: devices train on some of each other's samples (ScaDLES, section IV).

At each step a device shares with probability alpha, so on average alpha D of D devices share. It then shares
beta S of the S samples it took, drawn without replacement. The server distributes them among the other
devices that share, and to no others. Raw samples leave the device: run and owner must both enable it.

One device trains on a shared sample, once: the receiver in place of the owner. So in expectation the fleet's
gradient is that of all its samples, whichever devices share. ScaDLES sends a copy to each of the D - 1
others, which gives shared samples D times the weight of others.
"""

import math
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgeflock.client.backends import Backend
from edgeflock.client.data.batcher import Batch, Batches, EvaluatedBatches
from edgeflock.client.data.checks import Classes
from edgeflock.client.data.records import Broken, Skipped
from edgeflock.shared.data.samples import IGNORED
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.model.fields import Fields
from edgeflock.shared.protocol.messages import Facts, Samples, Welcome

MAX_BYTES = 1 << 25
"""Limit on the bytes kept of others' samples, as float32, and of samples to send; also on one record."""

_HEAD = 64
"""Upper bound of the bytes of a Samples record in addition to x and y."""

LONGEST_RECORD = MAX_BYTES + _HEAD

MIN_OWN_SAMPLES = 2
"""The fewest samples a device keeps of each batch when it shares: BatchNorm accepts no single sample."""

OUTLIER_FACTOR = 1000.0
"""A number above this, and this many times the device's own largest, is broken: it would dominate."""


class Injection:
    """A device's own batches without the samples it shares, followed by others' samples.

    `take` draws the samples to share, and the `ready` after `settle` sends them. The calls of `take` after
    the next `ready` divide the received samples evenly. After `take_back` own and others' samples return, and
    the drawn samples are not sent.

    `receive` may be called while another thread runs `take`.
    """

    def __init__(
        self,
        batches: Batches,
        send: Callable[[Samples], Awaitable[None]],
        random: np.random.Generator,
        limit: int,
    ) -> None:
        """Keep at most `limit` samples of others: the newest."""
        self._batches = batches
        self._send = send
        self._random = random
        self._limit = limit
        self._alpha = self._beta = 0.0
        self._frame_bytes = 0
        self._classes: Classes | None = None
        self._outbox = _Newest(limit)
        self._inbox = _Newest(limit)
        self._lock = threading.Lock()
        """Guards `_inbox`."""
        self._largest_x = self._largest_y = 1.0
        """The largest |x| and |y| of own samples, 1 at least."""
        self._has_begun = False
        self._steps = 1
        self._unused: Batch | None = None
        """Others' samples for the batches of the next steps."""
        self._used: list[Batch] = []
        """Others' samples that joined batches since the last `settle`."""
        self._tally = Skipped()
        self.shared = 0
        """Samples sent so far."""
        self.received = 0
        """Others' samples that joined a batch so far."""

    def begin(self, welcome: Welcome, backend: Backend) -> None:
        """Join the run of `welcome`, which `backend` trains, and discard the samples of an earlier run."""
        self._batches.begin(welcome, backend)
        self._alpha, self._beta = welcome.alpha, welcome.beta
        self._frame_bytes = welcome.frame_bytes
        self._classes = Classes(backend)
        self._has_begun = False
        self._unused = None
        self._used.clear()
        self._outbox.take()
        with self._lock:
            self._inbox.take()

    async def ready(self, steps: int) -> None:
        """Send the drawn samples, then wait as Batches.ready does."""
        self._steps = steps
        for samples in self._outbox.take():
            await self._send(samples)
            self.shared += samples.count
        await self._batches.ready(steps)

    def take(self, size: int) -> Batch:
        """Return (x, y): own samples from Batches.take without those drawn for sharing, then others'."""
        own = self._batches.take(size)
        if isinstance(own[0], Fields):
            raise ConfigError("client.share = true: samples of several fields cannot be shared; leave it out")
        self._learn(own)
        own = self._draw(own)
        if not self._has_begun:  # the first batch shows that model and own data fit
            self._has_begun = True
            return own
        x, y = self._take_others(own)
        count = math.ceil(len(y) / self._steps)
        self._steps = max(1, self._steps - 1)
        self._unused = (x[count:], y[count:]) if count < len(y) else None
        self.received += count
        if count:
            self._used.append((x[:count], y[:count]))
        return (np.concatenate((own[0], x[:count])), np.concatenate((own[1], y[:count]))) if count else own

    def record_result(self, loss: float, right: float | None) -> None:
        """Record the result on the batch, which includes others' samples if some joined it."""
        self._batches.record_result(loss, right)

    def settle(self) -> None:
        self._batches.settle()
        self._used.clear()

    def take_back(self) -> None:
        self._batches.take_back()
        self._outbox.take()
        if self._used:
            parts = [*self._used, *([self._unused] if self._unused else [])]
            self._unused = np.concatenate([x for x, _ in parts]), np.concatenate([y for _, y in parts])
            self.received -= sum(len(y) for _, y in self._used)
            self._used.clear()

    def evaluate(self, theta: NDArray[np.float32]) -> None:
        """Evaluate the model on held-out samples of the device's own data, if it has such."""
        if isinstance(self._batches, EvaluatedBatches):
            self._batches.evaluate(theta)

    def telemetry(self) -> Facts:
        """Return the facts of the device's own data."""
        return self._batches.telemetry()

    def receive(self, samples: Samples) -> None:
        """Keep another device's samples. Above the limits, the oldest are dropped."""
        with self._lock:
            self._inbox.add(samples)

    def _take_others(self, own: Batch) -> Batch:
        """Return others' samples that fit `own`, oldest first."""
        with self._lock:
            records = self._inbox.take()
        x, y = self._unused or (own[0][:0], own[1][:0])
        arrived = [batch for record in records if (batch := self._admit(record, own)) is not None]
        if not arrived:
            return x, y
        x = np.concatenate((x, *(x for x, _ in arrived)))[-self._limit :]
        return x, np.concatenate((y, *(y for _, y in arrived)))[-self._limit :]

    def _learn(self, own: Batch) -> None:
        x, y = own
        self._largest_x = max(self._largest_x, _largest(x))
        if _is_labels(y):
            assert self._classes is not None, "begin comes before take"
            self._classes.record_accepted(y.astype(np.int64, copy=False))
        else:
            self._largest_y = max(self._largest_y, _largest(y))

    def _draw(self, own: Batch) -> Batch:
        """Return `own` without the beta S(i) samples to send, if this step shares."""
        if not self._alpha * self._beta or self._random.random() >= self._alpha:
            return own
        x, y = own
        # beta is a float32, so allow for rounding: a third of 3 is 1.
        count = min(math.ceil(self._beta * len(y) * (1 - 1e-6)), len(y) - MIN_OWN_SAMPLES)
        if count < 1 or not self._outbox.has_room(count, count * (x.nbytes + y.nbytes) // len(y)):
            return own
        chosen = self._random.choice(len(y), count, replace=False)
        try:
            samples = encode(x[chosen], y[chosen], self._frame_bytes)
        except Broken as broken:
            self._tally.add(broken.kind, broken.detail)
            return own
        self._outbox.add(samples)
        kept = np.delete(np.arange(len(y)), chosen[: samples.count])
        return x[kept], y[kept]

    def _admit(self, record: Samples, own: Batch) -> Batch | None:
        """Return the samples of a record if they can be trained on together with `own`, else None."""
        try:
            x, y = decode(record, own)
            _check_range(x, "x", OUTLIER_FACTOR * self._largest_x)
            if not record.labels:
                _check_range(y, "y", OUTLIER_FACTOR * self._largest_y)
            elif self._has_unknown_class(x, y.astype(np.int64, copy=False)):
                raise Broken("of another target", "the model has no such class")
        except Broken as broken:
            self._tally.add(broken.kind, broken.detail)
            return None
        return x, y

    def _has_unknown_class(self, x: NDArray[np.float32], y: NDArray[np.integer]) -> bool:
        """Return whether a sample has a class that the model lacks."""
        assert self._classes is not None, "begin comes before take"
        return bool(((y < 0) & (y != IGNORED)).any() or self._classes.find_refused(x, y).any())


class _Newest:
    """The newest records, limited by MAX_BYTES and a number of samples. The oldest are dropped first."""

    def __init__(self, samples: int) -> None:
        self._limit = samples
        self._records: deque[Samples] = deque()
        self._count = 0
        self._octets = 0

    def add(self, record: Samples) -> None:
        self._records.append(record)
        self._count += record.count
        self._octets += _float_bytes(record)
        while len(self._records) > 1 and (
            self._octets > MAX_BYTES or self._count - self._records[0].count >= self._limit
        ):
            oldest = self._records.popleft()
            self._count -= oldest.count
            self._octets -= _float_bytes(oldest)

    def has_room(self, count: int, octets: int) -> bool:
        """Return whether `count` samples of `octets` bytes fit without dropping others."""
        return self._count + count <= self._limit and self._octets + octets <= MAX_BYTES

    def take(self) -> list[Samples]:
        """Remove and return all records, oldest first."""
        records = list(self._records)
        self._records.clear()
        self._count = self._octets = 0
        return records


def encode(x: NDArray[np.float32], y: NDArray[np.generic], frame_bytes: int) -> Samples:
    """Encode x float32 [n, ...] and y [n, ...] as a record of at most `frame_bytes`; omit excess samples.

    If all values are k / 255, as shared/data/datasets.py scales images, each takes one byte. Raises Broken if
    a label is beyond int32 or no sample fits.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        pixels = np.rint(x * np.float32(255))
    small = bool(((pixels >= 0) & (pixels <= 255) & (pixels / np.float32(255) == x)).all())
    labels = _is_labels(y)
    sent_x = pixels.astype(np.uint8) if small else x.astype("<f4")
    sent_y = y.astype("<i4" if labels else "<f4")
    if labels and not (sent_y == y).all():
        raise Broken("not to be sent", f"labels go from -2^31 to 2^31 - 1; here up to {np.abs(y).max()}")
    each = (sent_x.nbytes + sent_y.nbytes) // len(y)
    fitting = min((frame_bytes - _HEAD) // each, MAX_BYTES // (x.nbytes // len(y) + sent_y.nbytes // len(y)))
    if fitting < 1:
        raise Broken("not to be sent", f"a sample of {each} bytes; a message has at most {frame_bytes}")
    sent_x, sent_y = sent_x[:fitting], sent_y[:fitting]
    return Samples(len(sent_y), small, sent_x.tobytes(), labels, sent_y.tobytes())


def decode(record: Samples, own: Batch) -> Batch:
    """Decode `record` as x float32 [n, ...] and y [n, ...], with the shapes and target type of `own`.

    Finiteness of the numbers is not checked. Raises Broken.
    """
    like_x, like_y = (part.shape[1:] for part in own)
    octets = record.count * math.prod(like_x) * (1 if record.octets else 4)
    if record.count < 1 or (len(record.x), len(record.y)) != (octets, 4 * record.count * math.prod(like_y)):
        detail = f"{record.count} samples in {len(record.x)} and {len(record.y)} bytes"
        raise Broken("of another shape", f"{detail}; one has {list(like_x)} and {list(like_y)}")
    if record.labels != _is_labels(own[1]):
        raise Broken("of another target", f"labels are {record.labels}, here {not record.labels}")
    if _float_bytes(record) > MAX_BYTES:
        raise Broken("too large", f"{_float_bytes(record)} bytes as float32; at most {MAX_BYTES} are taken")
    if record.octets:
        x = np.frombuffer(record.x, np.uint8).astype(np.float32) / np.float32(255)
    else:
        x = np.frombuffer(record.x, "<f4").astype(np.float32)
    y = np.frombuffer(record.y, "<i4" if record.labels else "<f4").astype(own[1].dtype)
    return x.reshape(record.count, *like_x), y.reshape(record.count, *like_y)


def _largest(numbers: NDArray[Any]) -> float:
    return float(np.abs(numbers).max(initial=0, where=np.isfinite(numbers)))


def _check_range(numbers: NDArray[Any], name: str, limit: float) -> None:
    """Raises Broken if a number is NaN or its absolute value is above `limit`."""
    if not (np.abs(numbers) <= limit).all():
        raise Broken("out of range", f"{name} is not finite or beyond {limit:g}, far from this device's own")


def _float_bytes(record: Samples) -> int:
    """Return the bytes of a record with x as float32."""
    return len(record.x) * (4 if record.octets else 1) + len(record.y)


def _is_labels(y: NDArray[np.generic]) -> bool:
    return y.dtype.kind in "iu"

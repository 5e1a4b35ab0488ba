"""Corrects for labels that devices hold unevenly: adjusts logits, and weighs rare classes more.

A device whose data lack a class pushes that class down in each step. A slow device that alone holds it cannot
push it up as often. Let p be the shares of the classes in the device's batches, and q their mean over the
fleet. Let e be that mean weighted by each device's latest updates (server/engine/labels.py).

    r = log((1 - a) p + a q) - log q        is added to the logits
    a = max(0.01, (1 - sum min(p, q))^2)
    w = sum p q / e, from 1/10 to 10        is how many times the update counts

So the model that a device's loss asks for is the fleet's, whatever the device's own shares are. Where all
devices hold the same classes and are equally fast, r = 0 and w = 1.

Devices with few classes each pull the model back and forth. They do so the more, the less noise their
gradients have, so with large batches. So w is divided by 1 + 2 s^2. Here s is max(0, 1 - 2 o) times the part
of the way from 10 to 32 that the samples of a batch make up, and o = sum min(p, q) is the overlap. If w is at
least 2, it stays: then the device's classes are rare, and nobody else pulls them up.

Logits are calibrated by local shares as in J. Zhang et al., "Federated learning with label distribution skew
via logits calibration", ICML 2022. The difference to the fleet's shares is the logit adjustment of Menon et
al., "Long-tail learning via logit adjustment", ICLR 2021. A device that holds few of the fleet's classes
would learn nothing of the others by p alone. So it keeps a part of q, which is a.

To add r to the logits is to add it to the bias of the last layer. So backends need not know of it. Gradients
tell which tensor that is. The gradient of this bias under the cross entropy of a softmax is the mean
prediction less the shares of the batch's labels. So their sum has no negative entries, and adds up to 1.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from edgeflock.shared.codecs import labels
from edgeflock.shared.codecs.labels import MAX_CLASSES
from edgeflock.shared.model.layout import Layout

Vector = NDArray[np.float32]

_EVIDENCE = 2
"""Gradients that must identify a tensor as the bias."""

_ROUNDING_ERROR = 1e-4
"""The largest rounding error of a mean prediction."""

_MIN_FLEET_PART = 0.01
"""The least a."""

_PRIOR_SAMPLES = 2
"""q counts as so many samples of each class in p, since few batches say little."""

_MAX_W = 10.0
"""The largest w; the smallest is its inverse."""

_RARE_W = 2.0
"""The least w of a device whose classes are rare."""

_NOISY, _CLEAR = 10, 32
"""Samples of a batch whose gradient has much noise, and little."""

_EARLY_REPORTS = 8
"""A device reports with each of its first updates, up to this number."""


class Calibration:
    """The label shares of a device and of the fleet, and the adjustments they give."""

    def __init__(self, layout: Layout, batch: int = 1) -> None:
        """`layout` is that of the P trained parameters, `batch` the samples of a gradient."""
        self._clarity = min(1.0, max(0.0, (batch - _NOISY) / (_CLEAR - _NOISY)))
        self._evidence = {
            (tensor.start, tensor.stop): 0
            for tensor in layout.tensors
            if len(tensor.shape) == 1 and 2 <= tensor.stop - tensor.start <= MAX_CLASSES
        }
        """(start, stop) of each tensor that may be the output bias -> the gradients that confirmed it."""
        self._bias: slice | None = None
        self._reports = ReportSchedule(lambda update: update <= _EARLY_REPORTS)
        self._counts = np.zeros(0)
        """Number of labels of each class so far: [K], or fewer while the last classes were not seen."""
        self._shift: Vector | None = None
        """r, float32 [K]."""
        self.overlap = 1.0
        """sum min(p, q): what part of the fleet's labels the device's are; 1 until it is known."""
        self.importance = 1.0
        """w."""

    def shift(self, theta: Vector) -> Vector:
        """Return theta, float32 [P + B], with r added to its output bias: a copy, unless r is not known."""
        if self._shift is None or self._bias is None:
            return theta
        theta = theta.copy()
        theta[self._bias] += self._shift
        return theta

    def observe(self, gradient: Vector, y: NDArray[np.generic]) -> None:
        """Record a batch of targets and the gradient of its loss, float32 [P]."""
        if y.dtype.kind not in "iu":
            return
        classes = y.astype(np.int64)
        labelled = classes[classes >= 0]
        if not labelled.size or labelled.max() >= MAX_CLASSES:
            return
        counts = np.bincount(labelled)
        if self._bias is None:
            self._search(gradient, counts / labelled.size)
        length = max(len(self._counts), len(counts))
        self._counts = _padded(self._counts, length) + _padded(counts, length)

    def report(self, base: int) -> bytes:
        """Return the device's shares to send with the update just made from `base`: usually none."""
        is_due, own = self._reports.is_due(base), self._label_counts()
        return labels.encode(own / own.sum()) if is_due and own is not None else b""

    def take(self, octets: bytes) -> None:
        """Store q and e of a Receipt; empty: it has none. Raises WrongDtype if they are invalid."""
        if not octets:
            return
        fleet, lately = labels.decode(octets, rows=2)
        own = self._label_counts()
        if own is None or len(own) != len(fleet):
            return
        held = fleet > 0
        prior = _PRIOR_SAMPLES * len(own)
        shares = (own + prior * fleet) / (own.sum() + prior)
        self.overlap = float(np.minimum(shares, fleet).sum())
        kept = max(_MIN_FLEET_PART, (1 - self.overlap) ** 2)
        shift = np.zeros(len(own))
        shift[held] = np.log(((1 - kept) * shares + kept * fleet)[held] / fleet[held])
        self._shift = shift.astype(np.float32)
        rare = np.minimum(_MAX_W, fleet[held] / np.maximum(lately[held], fleet[held] / _MAX_W))
        self.importance = min(_MAX_W, max(1 / _MAX_W, float(shares[held] @ rare)))
        if self.importance < _RARE_W:
            swing = self._clarity * max(0.0, 1 - 2 * self.overlap)
            self.importance /= 1 + 2 * swing**2

    def _label_counts(self) -> NDArray[np.float64] | None:
        """The labels of each class so far: [K]. None while the output bias is not known."""
        classes = 0 if self._bias is None else self._bias.stop - self._bias.start
        return _padded(self._counts, classes) if len(self._counts) <= classes else None

    def _search(self, gradient: Vector, shares: NDArray[np.float64]) -> None:
        """Exclude tensors that are not the output bias. A gradient of almost 0 tells nothing."""
        for start, stop in tuple(self._evidence):
            of_bias = gradient[start:stop].astype(np.float64)
            if np.abs(of_bias).max() < _ROUNDING_ERROR:
                continue
            if not _is_mean_prediction(of_bias, shares):
                del self._evidence[start, stop]
                continue
            self._evidence[start, stop] += 1
            if self._evidence[start, stop] == _EVIDENCE:
                self._bias = slice(start, stop)


def _is_mean_prediction(gradient: NDArray[np.float64], shares: NDArray[np.float64]) -> bool:
    """Whether `gradient` of K entries and `shares` of at most K classes add up to one."""
    if len(shares) > len(gradient):
        return False
    mean = gradient + _padded(shares, len(gradient))
    return bool((mean >= -_ROUNDING_ERROR).all()) and abs(float(mean.sum()) - 1) <= _ROUNDING_ERROR


def _padded(numbers: NDArray[np.generic], length: int) -> NDArray[np.float64]:
    padded = np.zeros(length)
    padded[: len(numbers)] = numbers
    return padded


_MIN_VERSIONS = 160
"""The fewest versions between two reports, after the early ones."""
_EVERY = 4
"""Later reports go only with every fourth update of the device."""


class ReportSchedule:
    """Decides which of a device's updates have a report."""

    def __init__(self, is_early: Callable[[int], bool]) -> None:
        """`is_early` selects updates, counted from 1, that always have a report."""
        self._is_early = is_early
        self._updates = 0
        self._reported = 0
        """The version from which the last update with a report was made."""

    def is_due(self, base: int) -> bool:
        """Return whether the next update, made from version `base`, has a report."""
        self._updates += 1
        is_late = self._updates % _EVERY == 0 and base - self._reported >= _MIN_VERSIONS
        if not (is_late or self._is_early(self._updates)):
            return False
        self._reported = base
        return True

"""How data lie on devices: for each device, which samples it holds, and which devices are slow.

even         equal random shares
dirichlet    of each group, parts by Dirichlet(0.1) (T.-M. H. Hsu, H. Qi and M. Brown, "Measuring the
             effects of non-identical data distribution", arXiv 1909.06335, section 3)
label        one group a device; devices of a group have equal parts of it
two-labels   two parts a device, of twice as many parts as devices in which the samples lie sorted by group
             (McMahan et al., AISTATS 2017, section 3)
slow-label   the last two groups lie on a tenth of the devices alone, one at least, and these are ten times
             slower; the others have equal random shares of the rest
crashes      equal random shares, and half of the devices crash, on average, one by one: each is as likely to
             after any gradient, once its update has arrived, and never comes back
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

SPLITS = ("even", "dirichlet", "label", "two-labels", "slow-label", "crashes")
CONCENTRATION = 0.1
SLOWER = 10
"""How many times slower the slow devices of slow-label are."""

Indices = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Shares:
    """The samples of each device."""

    of: list[Indices]
    slow: frozenset[int] = frozenset()
    """Devices that are `SLOWER`."""
    crashing: bool = False
    """Whether half of them crash."""

    def crash(self, gradients: int) -> float:
        """The probability of a crash after each of so many gradients, on all devices together."""
        return len(self.of) / (2 * gradients) if self.crashing else 0.0


def deal(split: str, groups: Indices, devices: int, least: int, seed: int) -> Shares:
    """Shares of at least `least` samples, a function of the seed. Raises ValueError if there are too few."""
    if devices * least > groups.size:
        raise ValueError(f"{groups.size} samples are too few for {devices} devices with {least} each")
    random = np.random.default_rng([seed, 5])
    if split in ("even", "crashes"):
        return Shares(_even(random.permutation(groups.size), devices), crashing=split == "crashes")
    if split == "dirichlet":
        return Shares(_filled(_dirichlet(groups, devices, random), least))
    if split == "label":
        return Shares(_filled(_by_label(groups, devices, random), least))
    if split == "two-labels":
        return Shares(_filled(_by_two_labels(groups, devices, random), least))
    if split == "slow-label":
        return _slow(groups, devices, random)
    raise ValueError(f"split {split!r} is unknown; known are {', '.join(SPLITS)}")


def _even(order: Indices, devices: int) -> list[Indices]:
    return [order[device::devices] for device in range(devices)]


def _dirichlet(groups: Indices, devices: int, random: np.random.Generator) -> list[Indices]:
    parts: list[list[Indices]] = [[] for _ in range(devices)]
    for group in np.unique(groups):
        samples = random.permutation(np.flatnonzero(groups == group))
        shares = random.dirichlet([CONCENTRATION] * devices)
        cuts = (np.cumsum(shares) * samples.size).astype(np.int64)[:-1]
        for part, some in zip(parts, np.split(samples, cuts), strict=True):
            part.append(some)
    return [random.permutation(np.concatenate(part)) for part in parts]


def _by_label(groups: Indices, devices: int, random: np.random.Generator) -> list[Indices]:
    """With fewer devices than groups a device has a group alone, and the other groups lie nowhere."""
    names = np.unique(groups)
    parts: list[Indices] = [np.zeros(0, np.int64)] * devices
    for place, group in enumerate(names[:devices]):
        holders = range(place, devices, len(names))
        samples = random.permutation(np.flatnonzero(groups == group))
        for holder, part in zip(holders, _even(samples, len(holders)), strict=True):
            parts[holder] = part
    return parts


def _by_two_labels(groups: Indices, devices: int, random: np.random.Generator) -> list[Indices]:
    order = random.permutation(groups.size)
    parts = np.array_split(order[np.argsort(groups[order], kind="stable")], 2 * devices)
    dealt = random.permutation(2 * devices)
    return [
        random.permutation(np.concatenate((parts[one], parts[other])))
        for one, other in zip(dealt[:devices], dealt[devices:], strict=True)
    ]


def _slow(groups: Indices, devices: int, random: np.random.Generator) -> Shares:
    slow = max(1, devices // 10)
    order = random.permutation(groups.size)
    rare = np.isin(groups[order], np.unique(groups)[-2:])
    own, rest = _even(order[rare], slow), _even(order[~rare], devices - slow)
    return Shares([*own, *rest], frozenset(range(slow)))


def _filled(parts: list[Indices], least: int) -> list[Indices]:
    """Who has fewer than `least` samples gets some of whoever has the most."""
    for device in range(len(parts)):
        while parts[device].size < least:
            richest = max(range(len(parts)), key=lambda one: parts[one].size)
            moved = min(least - parts[device].size, parts[richest].size - least)
            parts[device] = np.concatenate((parts[device], parts[richest][:moved]))
            parts[richest] = parts[richest][moved:]
    return parts

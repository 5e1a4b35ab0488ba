"""Epsilon and delta of a run, by dp-accounting (Rényi differential privacy; I. Mironov, CSF 2017).

With `server`, a device's part in a tree is one event of tree aggregation (arXiv:2103.00039, appendix D), for
neighbouring runs in which one device sends zeros. With `local`, each step of a device is a Gaussian mechanism
on a Poisson sample, for neighbouring data sets of which one has one more example.
"""

from bisect import bisect_right
from functools import lru_cache
from typing import Any, NamedTuple

from edgeflock.shared.environments import is_environment
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.extras import install_command
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.protocol.frames import PrivacySpent, finite_or_none
from edgeflock.shared.settings.config import Config
from edgeflock.shared.settings.privacy import PrivacySettings

_WHOLE_ORDERS = (*range(2, 65), 128, 256, 512)
"""Orders for sampled noise, for which the library sums finitely many terms."""

_MANY = 1 << 30
"""Participations that no device reaches."""


class Accountant:
    """Epsilon by the number of updates of one device. Raises ConfigError without dp-accounting."""

    def __init__(self, config: Config) -> None:
        privacy = config.privacy
        self._cost = _Cost(privacy, config.local.batch, config.local.steps)
        self._budget, self.delta, self.noise = privacy.epsilon, privacy.probability_delta, noise_of(config)
        self.limit = self._limit(privacy.participations)
        """The most updates of one device that count; 0: no limit."""
        if self._budget and not self.limit:
            raise ConfigError(
                f"privacy.epsilon = {self._budget:g}: one update costs {self.epsilon(1):.4g} at "
                f"privacy.noise = {self.noise:g}; raise privacy.noise or privacy.epsilon"
            )

    @property
    def hides_examples(self) -> bool:
        """Whether devices hide examples, also from the server; else the server hides devices."""
        return bool(self._cost.chance)

    @property
    def local_terms(self) -> str:
        """The settings that the cost of an update follows from, if devices add the noise; else ""."""
        privacy, batch, steps = self._cost
        if not self.hides_examples:
            return ""
        return (
            f"privacy.clip {privacy.clip:.6g}, noise {self.noise:.6g}, examples {privacy.examples}; "
            f"local.batch {batch}, steps {steps}"
        )

    def epsilon(self, participations: int) -> float:
        """Return epsilon after so many updates of one device."""
        return _epsilon(self._cost, self.noise, participations)

    def spent(self, participations: int) -> PrivacySpent:
        """Return what a run costs in which no device has taken part more often."""
        return PrivacySpent(
            unit="example" if self.hides_examples else "device",
            epsilon=finite_or_none(self.epsilon(participations)),
            delta=self.delta,
            budget=self._budget,
            participations=participations,
            limit=self.limit,
            noise=self.noise,
        )

    def _limit(self, wanted: int) -> int:
        """Return `wanted`, or fewer updates if epsilon would exceed the budget; 0 without both."""
        if not self._budget:
            return wanted
        return bisect_right(range(1, (wanted or _MANY) + 1), self._budget, key=self.epsilon)


class _Cost(NamedTuple):
    """What an update costs, but for its noise."""

    privacy: PrivacySettings
    batch: int
    steps: int

    @property
    def chance(self) -> float:
        """The chance of an example to be in a batch; 0: devices are hidden."""
        privacy = self.privacy
        return min(1.0, self.batch / privacy.examples) if privacy.mode == "local" else 0.0

    def event(self, noise: float, participations: int) -> Any:
        """Return the library's event of so many updates of a device."""
        dp = _library()
        if self.chance:
            sampled = dp.PoissonSampledDpEvent(self.chance, dp.GaussianDpEvent(noise))
            return dp.SelfComposedDpEvent(sampled, participations * self.steps)
        tree = dp.SingleEpochTreeAggregationDpEvent(noise, self.privacy.tree)
        return dp.SelfComposedDpEvent(tree, participations)

    def accountant(self) -> Any:
        """Return an accountant of the library that has seen no event."""
        relation, accountant = _library().NeighboringRelation, _library().rdp.RdpAccountant
        if self.chance:
            return accountant(_WHOLE_ORDERS, relation.ADD_OR_REMOVE_ONE)
        return accountant(neighboring_relation=relation.REPLACE_SPECIAL)


def noise_of(config: Config) -> float:
    """Return the noise multiplier, as set or as the budget needs it."""
    cost = _Cost(config.privacy, config.local.batch, config.local.steps)
    return config.privacy.noise or _least_noise(cost)


@lru_cache(maxsize=16)
def _least_noise(cost: _Cost) -> float:
    dp, privacy = _library(), cost.privacy
    return float(
        dp.calibrate_dp_mechanism(
            cost.accountant,
            lambda noise: cost.event(noise, privacy.participations),
            privacy.epsilon,
            privacy.probability_delta,
            dp.LowerEndpointAndGuess(1e-2, 1.0),
        )
    )


@lru_cache(maxsize=1024)
def _epsilon(cost: _Cost, noise: float, participations: int) -> float:
    if not participations:
        return 0.0
    accountant = cost.accountant().compose(cost.event(noise, participations))
    return float(accountant.get_epsilon(cost.privacy.probability_delta))


def _library() -> Any:
    try:
        import dp_accounting
    except ImportError as error:
        raise ConfigError(
            f"privacy.mode needs dp-accounting, which is not installed: {install_command('privacy')}"
        ) from error
    return dp_accounting


def check_privacy(config: Config, layout: Layout) -> None:
    """Raise ConfigError if the model or its data report something that noise does not cover."""
    if config.privacy.mode == "none":
        return
    if layout.buffers:
        raise ConfigError(
            f"privacy.mode = {config.privacy.mode!r}: the model keeps {layout.buffers} running statistics of "
            "the devices' batches (BatchNorm), which carry no noise; use GroupNorm or LayerNorm"
        )
    if is_environment(config.model.data):
        raise ConfigError(
            f"privacy.mode = {config.privacy.mode!r}: devices that act report what their episodes return, "
            f"which carries no noise; model.data = {config.model.data!r} needs privacy.mode = 'none'"
        )

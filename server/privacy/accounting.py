"""Epsilon and delta of a run, by dp-accounting (Rényi differential privacy; I. Mironov, CSF 2017).

With `server`, a device's part in a tree is one event of tree aggregation (arXiv:2103.00039, appendix D), for
neighbouring runs in which one device sends zeros. With `local`, each step of a device is a Gaussian mechanism
on a Poisson sample, for neighbouring data sets of which one has one more example.
"""

from functools import lru_cache
from typing import Any, NamedTuple

from edgeflock.shared.environments import is_environment
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.extras import install_command
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.settings.config import Config

_MANY = 1 << 30
"""Participations that no device reaches."""


class Spent(NamedTuple):
    """What a run has cost so far."""

    unit: str
    """What is hidden: a `device` or an `example`."""
    epsilon: float
    """Of the device that has taken part most often; with `example`, of the one with the fewest examples."""
    delta: float
    budget: float
    """The epsilon at which the run ends; 0: none."""
    participations: int
    """The most updates of one device that count so far, and"""
    limit: int
    """how many may count; 0: no limit."""
    noise: float
    """The noise multiplier."""


class Accountant:
    """Epsilon by the number of updates of one device. Raises ConfigError without dp-accounting."""

    def __init__(self, config: Config) -> None:
        privacy = config.privacy
        self._steps = config.local.steps
        self._chance = min(1.0, config.local.batch / privacy.examples) if privacy.mode == "local" else 0.0
        self._tree, self._budget, self.delta = privacy.tree, privacy.epsilon, privacy.probability_delta
        self.noise = privacy.noise or _noise_for(self, privacy.participations, privacy.epsilon)
        """The noise multiplier, as set or as the budget needs it."""
        self.limit = self._limit(privacy.participations)
        """The most updates of one device that count; 0: no limit."""
        if self._budget and not self.limit:
            raise ConfigError(
                f"privacy.epsilon = {self._budget:g}: one update costs {self.epsilon(1):.4g} at "
                f"privacy.noise = {self.noise:g}; raise privacy.noise or privacy.epsilon"
            )

    def event(self, noise: float, participations: int) -> Any:
        """Return the event of so many updates of a device, at this noise multiplier."""
        dp = _library()
        if self._chance:
            sampled = dp.PoissonSampledDpEvent(self._chance, dp.GaussianDpEvent(noise))
            return dp.SelfComposedDpEvent(sampled, participations * self._steps)
        tree = dp.SingleEpochTreeAggregationDpEvent(noise, self._tree)
        return dp.SelfComposedDpEvent(tree, participations)

    def fresh(self) -> Any:
        """Return an accountant of the library that has seen no event."""
        relation = _library().NeighboringRelation
        return _library().rdp.RdpAccountant(
            neighboring_relation=relation.ADD_OR_REMOVE_ONE if self._chance else relation.REPLACE_SPECIAL
        )

    @lru_cache(maxsize=256)  # noqa: B019  # a server has one
    def epsilon(self, participations: int) -> float:
        """Return epsilon after so many updates of one device."""
        if not participations:
            return 0.0
        return float(self.fresh().compose(self.event(self.noise, participations)).get_epsilon(self.delta))

    def spent(self, participations: int) -> Spent:
        """Return what a run costs in which no device has taken part more often."""
        unit = "example" if self._chance else "device"
        epsilon = self.epsilon(participations)
        return Spent(unit, epsilon, self.delta, self._budget, participations, self.limit, self.noise)

    def _limit(self, wanted: int) -> int:
        """Return `wanted`, or fewer updates if epsilon would exceed the budget; 0 without both."""
        if not self._budget:
            return wanted
        low, high = 0, wanted or _MANY
        while low < high:  # epsilon(low) is within the budget
            middle = (low + high + 1) // 2 if high < _MANY else min(_MANY, 2 * low + 1)
            if self.epsilon(middle) <= self._budget:
                low = middle
            else:
                high = middle - 1
        return low


def _noise_for(accountant: Accountant, participations: int, epsilon: float) -> float:
    """Return the least noise multiplier for this epsilon after so many updates of a device."""
    dp = _library()
    return float(
        dp.calibrate_dp_mechanism(
            accountant.fresh,
            lambda noise: accountant.event(noise, participations),
            epsilon,
            accountant.delta,
            dp.LowerEndpointAndGuess(1e-2, 1.0),
        )
    )


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

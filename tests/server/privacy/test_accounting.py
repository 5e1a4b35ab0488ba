"""Epsilon by dp-accounting, against published values, and what a run may cost."""

import sys
from math import log

import dp_accounting
import numpy as np
import pytest

from edgeflock.server.privacy import Accountant, check_privacy
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.settings import config
from tests.server.privacy.private_runs import BUFFER

LOCAL = ("local.optimizer=sgd", "privacy.mode=local", "privacy.delta=1e-5")


def accountant(*overrides: str) -> Accountant:
    return Accountant(config.parse(overrides=overrides))


def test_dp_sgd_on_mnist_costs_what_the_tutorial_says() -> None:
    """TensorFlow Privacy's tutorial: noise 1.1, batch 256 of 60,000, 60 epochs, delta 1e-5: epsilon 3.0.

    It converts Rényi differential privacy as I. Mironov did (CSF 2017, proposition 3). The library converts
    more tightly since (C. Canonne et al., NeurIPS 2020), to 2.60.
    """
    found = accountant(*LOCAL, "local.batch=256", "privacy.examples=60000", "privacy.noise=1.1")
    steps = 60 * 60_000 // 256
    sampled = dp_accounting.PoissonSampledDpEvent(256 / 60_000, dp_accounting.GaussianDpEvent(1.1))
    library = dp_accounting.rdp.RdpAccountant().compose(sampled, steps)
    assert np.min(library.rdp + log(1e5) / (library.orders - 1)) == pytest.approx(3.0, abs=0.05)
    assert found.epsilon(steps) == pytest.approx(2.597, abs=0.005)


@pytest.mark.parametrize(("noise", "published"), [(1.13, 19.74), (8.83, 2.04)])
def test_trees_cost_at_most_what_dp_ftrl_says(noise: float, published: float) -> None:
    """Kairouz et al., StackOverflow: one tree of 1,600 steps at delta 1e-6.

    The library's own test has these values as upper bounds, since its conversion is tighter.
    """
    settings = (f"privacy.noise={noise}", "privacy.tree=1600", "privacy.delta=1e-6")
    epsilon = accountant(*BUFFER, *settings).epsilon(1)
    assert 0.8 * published < epsilon < published


def test_independent_steps_cost_as_much_as_gaussian_noise() -> None:
    found = accountant(*BUFFER, "privacy.noise=4")
    gauss = dp_accounting.rdp.RdpAccountant().compose(dp_accounting.GaussianDpEvent(4.0), 25)
    assert found.epsilon(25) == pytest.approx(gauss.get_epsilon(found.delta), rel=1e-9)


def test_delta_follows_from_the_number_of_devices() -> None:
    assert accountant(*BUFFER).delta == pytest.approx(100**-1.1)


@pytest.mark.parametrize("more", [BUFFER, (*LOCAL, "privacy.examples=1000")])
def test_noise_follows_from_a_budget(more: tuple[str, ...]) -> None:
    budget = ("privacy.epsilon=2", "privacy.participations=50", "privacy.noise=0")
    found = accountant(*more, *budget)
    assert found.limit == 50
    assert found.epsilon(50) == pytest.approx(2.0, abs=1e-3)
    assert found.epsilon(50) <= 2.0 < found.epsilon(51)


def test_participations_follow_from_a_budget_and_noise() -> None:
    found = accountant(*BUFFER, "privacy.noise=5", "privacy.epsilon=3")
    assert found.epsilon(found.limit) <= 3 < found.epsilon(found.limit + 1)
    assert found.spent(2) == ("device", found.epsilon(2), found.delta, 3.0, 2, found.limit, 5.0)


def test_a_budget_that_one_update_exceeds_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"privacy.epsilon = 0.1: one update costs .* raise privacy.noise"):
        accountant(*BUFFER, "privacy.epsilon=0.1")


def test_a_missing_library_is_named_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(ConfigError, match=r"not installed: pip install '.*\[privacy\]'"):
        accountant(*BUFFER, "privacy.delta=0.123").epsilon(1)


def test_running_statistics_and_episodes_are_refused() -> None:
    normed = Layout.from_shapes([("w", (2,)), ("mean", (2,), True)])
    with pytest.raises(ConfigError, match="2 running statistics .* use GroupNorm"):
        check_privacy(config.parse(overrides=BUFFER), normed)
    acting = config.parse(overrides=(*BUFFER, "model.data=gym:CartPole-v1"))
    with pytest.raises(ConfigError, match="what their episodes return"):
        check_privacy(acting, Layout.from_shapes([("w", (2,))]))

"""Weight rules: the expected value is the formula."""

import numpy as np
import pytest

from edgeflock.server.descent.step import Step
from edgeflock.server.descent.weighting import RULES, batch_share

BASE = 1000

SPARSE = Step(BASE, np.array([0, 2, 3]), np.ones(3, np.float32))
DENSE = Step(BASE, slice(None), np.ones(4, np.float32))

every_step = pytest.mark.parametrize("step", [SPARSE, DENSE], ids=["sparse", "dense"])


@every_step
@pytest.mark.parametrize("delay", [0, 1, 2, 3, 7, 255, 4095, 65535])
def test_tau_is_one_over_the_delay_of_the_update(step: Step, delay: int) -> None:
    assert RULES["tau"].weight(step, BASE + delay) == (1 / delay if delay else 1)


@every_step
@pytest.mark.parametrize("rule", ["adacomp", "none"])
@pytest.mark.parametrize("delay", [0, 1, 99])
def test_the_others_weigh_every_update_alike(step: Step, rule: str, delay: int) -> None:
    assert RULES[rule].weight(step, BASE + delay) == 1


def test_only_adacomp_divides_by_each_parameters_own_staleness() -> None:
    assert [name for name, rule in RULES.items() if rule.per_parameter] == ["adacomp"]


def test_shares_under_linear_scaling_are_a_round_of_scadles() -> None:
    """Equations (4a) to (4c): learning rate x sum S / B, times the mean of the gradients weighted by S_i."""
    samples, base = [8, 30, 1024], 64
    gradients = np.random.default_rng(0).standard_normal((3, 5))
    steps = [Step(BASE, slice(None), np.ones(5, np.float32), samples=count) for count in samples]
    one_by_one = sum(batch_share(step.samples, base) * g for step, g in zip(steps, gradients, strict=True))
    r = np.array(samples) / sum(samples)
    np.testing.assert_allclose(one_by_one, sum(samples) / base * (r @ gradients))
    assert [batch_share(step.samples, 0) for step in steps] == [1, 1, 1]

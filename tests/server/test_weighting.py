"""Weight rules: the expected value is the formula."""

import numpy as np
import pytest

from edgeflock.server.admission import Step
from edgeflock.server.weighting import RULES

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
    assert {name: rule.per_parameter for name, rule in RULES.items()} == {
        "adacomp": True,
        "tau": False,
        "none": False,
    }

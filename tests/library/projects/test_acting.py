"""edgeflock check of a project whose devices act."""

import pytest

from edgeflock.api.graphs import export_graphs
from edgeflock.projects.acting import check_policy
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.settings.config import Config, parse
from tests.shared.environments.worlds import HERE

POLICY = "edgeflock.client.zoo:ActorCritic(observations=2, actions=2)"


def config(*overrides: str) -> Config:
    usual = (f"model.module={POLICY}", "model.loss=a2c", f"model.data={HERE}Corridor?episodes=2")
    return parse(overrides=[*usual, *overrides])


@pytest.mark.slow
def test_it_says_what_a_policy_comes_to() -> None:
    found = check_policy(config("local.batch=12", f"client.data={HERE}Corridor?envs=3&length=5"))
    lines = list(found.lines())
    assert lines[0] == f"model   {POLICY}, {found.parameters:,} parameters"
    assert "observations [2], 2 actions" in lines[1]
    assert lines[2].startswith("return  ")
    assert lines[3].startswith("step    acts and learns from 12 in")
    assert 0 <= found.first_return <= 3
    assert 0 < found.update < 4 * found.parameters
    assert list(found.advice()) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (["client.data=digits:"], "client.data = 'digits:' is no environment"),
        ([f"client.data={HERE}Target"], "mean"),
        ([f"client.data={HERE}Pictures"], r"have the shape \[3, 4\]"),
        (["model.loss=mse"], "set model.loss = 'a2c' or 'ppo'"),
        (["model.data=gym:NoSuchThing-v0"], "NoSuchThing"),
    ],
)
def test_what_cannot_work(overrides: list[str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        check_policy(config(*overrides))


@pytest.mark.slow
def test_graphs_of_a_policy() -> None:
    graphs = export_graphs(POLICY, "ppo", None, f"{HERE}Corridor")
    assert graphs.step
    assert graphs.evaluation

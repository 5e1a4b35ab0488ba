"""The settings whose choices only the server knows."""

import pytest

from edgeflock.server.descent.weighting import RULES, Rule, full, rule
from edgeflock.server.hosting.choices import CHOICES
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.settings.combinations import BUILTIN
from edgeflock.shared.settings.config import parse


@pytest.mark.parametrize("name", RULES)
def test_every_rule_can_be_set(name: str) -> None:
    mode = "elastic" if name == "elastic" else "async"
    settings = [f"coordination.rule={name}", f"coordination.mode={mode}"]
    assert parse(overrides=settings, tables=CHOICES).coordination.rule == name


@pytest.mark.parametrize(
    ("override", "complaint"),
    [
        (
            "coordination.rule=adacom",
            "--set: coordination.rule = 'adacom': must be 'adacomp', 'tau', 'sqrt', 'none' or 'elastic'; "
            "did you mean 'adacomp'?",
        ),
        (
            "coordination.mode=asynch",
            "--set: coordination.mode = 'asynch': must be 'async', 'buffer', 'rounds', 'cohort', 'private', "
            "'tasks' or 'elastic'; did you mean 'async'?",
        ),
        (
            "evaluation.trackers=jsonl,excel",
            "--set: evaluation.trackers = 'jsonl,excel': must be 'jsonl', 'tensorboard', 'mlflow' or 'wandb'",
        ),
    ],
)
def test_another_one_is_refused_where_the_settings_are_read(override: str, complaint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(overrides=[override], tables=CHOICES)
    assert str(caught.value) == complaint


def test_a_rule_that_is_added_is_a_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = Rule(full)
    monkeypatch.setitem(RULES, "mine", mine)
    assert parse(overrides=["coordination.rule=mine"], tables=CHOICES).coordination.rule == "mine"
    assert rule("mine") is mine


def test_a_rule_that_is_not_there_is_refused_by_name() -> None:
    with pytest.raises(
        ConfigError, match=r"coordination\.rule = 'x' must be one of adacomp, tau, sqrt, none"
    ):
        rule("x")


@pytest.mark.parametrize("key", BUILTIN)
def test_what_choices_of_ours_need_is_known(key: str) -> None:
    assert set(BUILTIN[key].split("|")) == set(CHOICES[key])

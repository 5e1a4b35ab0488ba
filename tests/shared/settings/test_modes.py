"""The traits of modes, and what a mode chooses where the settings do not."""

import pytest

from edgeflock.shared.errors import ConfigError
from edgeflock.shared.settings.config import Config, parse
from edgeflock.shared.settings.coordination import CoordinationSettings
from edgeflock.shared.settings.modes import MODES, Mode


@pytest.mark.parametrize("name", MODES)
def test_a_mode_has_defaults_that_settings_override(name: str) -> None:
    config = parse(overrides=[f"coordination.mode={name}"])
    mode = MODES[name]
    assert config.coordination.traits is mode
    assert {key: getattr(config.coordination, key) for key in mode.defaults} == mode.defaults
    assert config.downlink.mode == mode.downlink
    assert (config.local.optimizer == "adafactor") == mode.adafactor


def test_a_cohort_may_have_another_size() -> None:
    assert parse(overrides=["coordination.mode=cohort"]).coordination.cohort == 20
    assert parse(overrides=["coordination.mode=cohort", "coordination.cohort=3"]).coordination.cohort == 3


def test_the_mode_of_another_package_has_no_traits() -> None:
    config = parse(overrides=["coordination.mode=wary"])
    assert config.coordination.traits == Mode()
    assert config.local.optimizer == "sgd"


@pytest.mark.parametrize("name", ["cohort", "tasks"])
def test_rounds_of_an_earlier_file_are_told_their_mode(name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(f'[coordination]\nmode = "rounds"\n{name} = 20\n')
    assert str(caught.value).startswith(
        f"edgeflock.toml line 3: coordination.{name} = 20: it is the number of"
    )
    modes = {"cohort": "'async' or 'cohort' or 'private'", "tasks": "'tasks'"}[name]
    assert f"set coordination.mode = {modes}, or leave coordination.{name} out" in str(caught.value)


def test_a_section_that_was_read_counts_as_given() -> None:
    config = Config(coordination=CoordinationSettings(mode="elastic"))
    assert (config.downlink.mode, config.local.optimizer) == ("exact", "sgd")
    assert Config(coordination=CoordinationSettings()).local.optimizer == "sgd"

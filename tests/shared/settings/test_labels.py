"""Labels of a device, which its owner gives and operators select by."""

import pytest

from edgeflock.shared.errors import ConfigError
from edgeflock.shared.settings import config
from edgeflock.shared.settings.client import MAX_LABELS, parse_labels


def test_a_label_is_a_name_and_a_value() -> None:
    settings = config.parse("", "none", overrides=["client.labels=site=north, floor=2"])
    assert parse_labels(settings.client.labels) == {"site": "north", "floor": "2"}


@pytest.mark.parametrize(
    "label", ["north", "site=", "=north", "site=a b", "si te=north", "site=" + 61 * "n", 41 * "s" + "=n"]
)
def test_anything_else_is_refused_with_an_example(label: str) -> None:
    with pytest.raises(ConfigError, match=r"must be NAME=VALUE, e\.g\. site=north"):
        config.parse(f'[client]\nlabels = ["{label}"]', "device.toml")


def test_a_name_comes_once_and_there_are_few() -> None:
    with pytest.raises(ValueError, match="a name of its own"):
        parse_labels(["site=north", "site=south"])
    many = [f"label{number}=x" for number in range(MAX_LABELS + 1)]
    assert len(parse_labels(many[:-1])) == MAX_LABELS
    with pytest.raises(ValueError, match=f"at most {MAX_LABELS} labels"):
        parse_labels(many)

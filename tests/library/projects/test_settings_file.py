"""One setting of a file of settings changes; the rest stays."""

import pytest

from edgeflock.projects.beginning import replace_setting
from edgeflock.shared.errors import ConfigError

NAME = "coordination.learning_rate"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", "[coordination]\nlearning_rate = 0.2\n"),
        ("[local]\nbatch = 3", "[local]\nbatch = 3\n\n[coordination]\nlearning_rate = 0.2\n"),
        (
            "# mine\n[coordination]  # how\nrule = 'none'\n\n[model]\nseed = 1\n",
            "# mine\n[coordination]  # how\nlearning_rate = 0.2\nrule = 'none'\n\n[model]\nseed = 1\n",
        ),
        (
            "[coordination]\nrule='none'\n  learning_rate   =  0.05   # guessed\n[local]\n",
            "[coordination]\nrule='none'\n  learning_rate   =  0.2   # guessed\n[local]\n",
        ),
        (
            "[optimizer]\nlearning_rate = 7\n[coordination]",
            "[optimizer]\nlearning_rate = 7\n[coordination]\nlearning_rate = 0.2\n",
        ),
    ],
)
def test_one_line_changes(before: str, after: str) -> None:
    assert replace_setting(before, "mine.toml", NAME, 0.2) == after
    assert replace_setting(after, "mine.toml", NAME, 0.2) == after


def test_a_text_is_quoted() -> None:
    given = "[local]\noptimizer = 'adam'        # mine\n"
    after = '[local]\noptimizer = "adafactor"        # mine\n'
    assert replace_setting(given, "mine.toml", "local.optimizer", "adafactor") == after


@pytest.mark.parametrize(
    "text",
    [
        "coordination.learning_rate = 0.1\n",
        "coordination = {learning_rate = 0.1}\n",
        "[local]\ntext = '''\n[coordination]\n'''\n",
        '["coordination"]\nlearning_rate = 1\n',
    ],
)
def test_what_stands_there_in_another_way_is_left_alone(text: str) -> None:
    with pytest.raises(ConfigError, match=r"mine.toml says .* set learning_rate = 0.2 yourself"):
        replace_setting(text, "mine.toml", NAME, 0.2)

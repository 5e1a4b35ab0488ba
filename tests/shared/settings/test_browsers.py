"""What a run that lets browsers take part cannot have: its server says so as it starts."""

import pytest

from edgeflock.shared.errors import ConfigError
from edgeflock.shared.settings.config import parse

WITH_BROWSERS = "server.browsers=true"
LOCAL = [
    "privacy.mode=local",
    "privacy.clip=1",
    "privacy.noise=1",
    "privacy.delta=1e-6",
    "privacy.examples=500",
    "local.optimizer=sgd",
]
ALONE = "set coordination.mode = 'async' or 'buffer' or 'rounds' or 'cohort'"


@pytest.mark.parametrize(
    ("settings", "needed"),
    [
        (["coordination.mode=tasks"], ALONE),
        (
            ["coordination.mode=elastic"],
            ALONE,
        ),
        (['model.lora={"rank": 8, "targets": ["*.q"]}'], "set model.lora.targets = []"),
        (["coordination.mode=private"], ALONE),
        (LOCAL, "set privacy.mode = 'none' or 'server'"),
        (["server.client_certificates=devices"], "set server.client_certificates = ''"),
    ],
)
def test_a_run_for_browsers_needs_what_browsers_can_do(settings: list[str], needed: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(overrides=[WITH_BROWSERS, *settings])
    assert "server.browsers = 'true': it lets" in str(caught.value)
    assert needed in str(caught.value)
    assert "or leave server.browsers out" in str(caught.value)
    parse(overrides=settings)


@pytest.mark.parametrize("mode", ["async", "rounds", "cohort", "buffer"])
def test_other_modes_take_browsers(mode: str) -> None:
    assert parse(overrides=[WITH_BROWSERS, f"coordination.mode={mode}"]).server.browsers

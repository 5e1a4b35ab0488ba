"""How `edgeflock status` says which mode applies updates."""

import pytest

from edgeflock.operations.status import _describe_rule
from edgeflock.shared.settings.config import parse


@pytest.mark.parametrize(
    ("mode", "reported"),
    [
        ("async", "adacomp, learning rate 0.01"),
        ("buffer", "buffers of 10, sqrt, learning rate 0.05"),
        ("cohort", "cohort, learning rate 0.05"),
        ("elastic", "elastic, moving rate 0.1, chunks of 100,000"),
    ],
)
def test_a_mode_is_named_with_what_it_applies(mode: str, reported: str) -> None:
    coordination = parse(overrides=[f"coordination.mode={mode}"]).coordination.model_dump()
    assert _describe_rule(coordination) == reported

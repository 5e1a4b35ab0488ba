"""What a journal has no room for is said before a run begins."""

import pytest

from edgeflock.server.engine import check_limits
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.settings.config import parse


@pytest.mark.parametrize(
    ("most", "settings"),
    [
        (250_000_000, ("coordination.average=0",)),
        (125_000_000, ("coordination.average=8",)),
        (50_000_000, ("coordination.average=8", "optimizer.kind=adam")),
        (83_333_333, ("coordination.average=8", "coordination.mode=buffer")),
    ],
)
def test_a_snapshot_must_fit_into_a_row(most: int, settings: tuple[str, ...]) -> None:
    config = parse(overrides=["limits.inflight_bytes=4000000000", *settings])
    check_limits(config, Layout.of([("w", (most,))]))
    larger = Layout.of([("w", (most + 1,))])
    with pytest.raises(ConfigError, match=f"a snapshot of {most + 1} parameters .* set coordination.average"):
        check_limits(config, larger)
    check_limits(
        parse(overrides=[*settings, "limits.inflight_bytes=4000000000", "journal.url=postgresql://h/d"]),
        larger,
    )

"""What a journal has no room for is said before a run begins; how often a device comes that sends no more."""

import pytest

from edgeflock.server.engine import check_limits
from edgeflock.server.engine.limits import select_interval, usual_fraction
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
    check_limits(config, Layout.from_shapes([("w", (most,))]))
    larger = Layout.from_shapes([("w", (most + 1,))])
    with pytest.raises(ConfigError, match=f"a snapshot of {most + 1} parameters .* set coordination.average"):
        check_limits(config, larger)
    check_limits(
        parse(overrides=[*settings, "limits.inflight_bytes=4000000000", "journal.url=postgresql://h/d"]),
        larger,
    )


@pytest.mark.parametrize(
    ("settings", "times"),
    [
        ((), 1),
        (("local.batch=20",), 2**1.2),
        (("local.batch=32",), 3.2**1.2),
        (("local.batch=1000",), 16),
        (("local.batch=5",), 1),
        (("local.batch=64", "model.data=gym:CartPole-v1", "model.loss=a2c"), 1),
        (("compression.select=0.1", "local.batch=32"), 10),
        (("coordination.mode=rounds", "local.batch=32"), 1),
        (("coordination.mode=elastic", "local.batch=32"), 1),
    ],
)
def test_of_a_large_batch_more_is_sent_than_the_root_of_p(settings: tuple[str, ...], times: float) -> None:
    config = parse(overrides=settings)
    assert usual_fraction(config, Layout.from_shapes([("w", (10_000,))])) == pytest.approx(times / 100)


@pytest.mark.parametrize(
    ("settings", "interval"),
    [
        ((), 5),
        (("compression.select=0.1",), 0),
        (("coordination.mode=rounds",), 0),
        (("coordination.mode=elastic",), 0),
    ],
)
def test_who_may_send_more_because_it_comes_rarely(settings: tuple[str, ...], interval: int) -> None:
    assert select_interval(parse(overrides=settings)) == interval

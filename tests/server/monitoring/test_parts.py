"""A gateway's rates, of what was counted when somebody looked."""

from types import SimpleNamespace
from typing import cast

from edgeflock.server.monitoring.parts import row
from edgeflock.server.roster.hub import RecentRates
from edgeflock.server.sessions import GatewayConnection


def line(updates: int) -> GatewayConnection:
    """One that has passed on so many updates, of 100 bytes each, and was sent 10 for each."""
    meter = SimpleNamespace(ingress=100 * updates, egress=10 * updates)
    reported = {"name": "one", "address": "192.0.2.1", "start_time": 5.0, "devices": 3, "waiting": 7}
    return cast(GatewayConnection, SimpleNamespace(**reported, updates=updates, meter=meter))


def test_rates_are_of_the_last_ten_seconds() -> None:
    read = RecentRates()
    first = row(line(0), read, 100.0)
    assert (first.devices, first.waiting, first.since) == (3, 7, 5.0)
    assert (first.updates_per_s, first.ingress_rate, first.egress_rate) == (None, None, None)
    assert row(line(1), read, 100.5).updates_per_s is None  # too soon to say
    for second in range(1, 31):
        one = row(line(4 * second), read, 100.0 + second)
        assert (one.updates_per_s, one.ingress_rate, one.egress_rate) == (4.0, 400.0, 40.0)
    assert len(read._readings) <= 12
    assert row(line(240), read, 190.0).updates_per_s == 2.0  # nobody looked for a minute
    assert row(line(240), read, 201.0).updates_per_s == 0.0

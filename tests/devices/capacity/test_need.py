"""What a fleet needs, held against figures of docs/benchmarks.md."""

from dataclasses import replace

import pytest

from edgeflock.devices.capacity import Fleet, Machine, largest, need_of
from edgeflock.devices.capacity.need import busy, push_seconds

CNN = 211_690
SMALL = Fleet(100, 20, 19_146, tls=False)
HERE = Machine()
WITHIN = 0.25


def push(devices: int, parameters: int, fraction: float) -> float:
    """Microseconds of a push without an answer, of devices that push as fast as they can."""
    fleet = Fleet(devices, 1.0, parameters)
    return push_seconds(fleet, devices, round(fraction * parameters)) * 1e6


@pytest.mark.parametrize(
    ("devices", "parameters", "fraction", "measured"),
    [
        (1, CNN, 0.01, 533),
        (16, CNN, 0.01, 210),
        (200, CNN, 0.01, 157),
        (16, CNN, 0.001, 124),
        (16, CNN, 0.1, 522),
        (16, 9_985, 0.01, 99),
        (16, 9_999_985, 0.01, 8170),
    ],
)
def test_a_push_costs_what_was_measured(
    devices: int, parameters: int, fraction: float, measured: float
) -> None:
    """How the cost grows. Fitted to c = .001 and .1, to one device against sixteen, and to ten million."""
    assert push(devices, parameters, fraction) == pytest.approx(measured, rel=WITHIN)


def test_as_many_pushes_as_one_writer_takes() -> None:
    """How the cost grows: 200 devices that push as fast as they can, 6,046 a second."""
    assert 1e6 / push(10**9, CNN, 0.01) == pytest.approx(6046, rel=WITHIN)


@pytest.mark.parametrize(
    ("devices", "seconds", "receipts", "percent", "megabytes"),
    [
        (100, 42, 195, 1.3, 231.1),
        (1000, 42, 1869, 16.1, 258.5),
        (2000, 1800, 179_724, 30, 293.9),
    ],
)
def test_a_fleet_of_connected_devices(
    devices: int, seconds: float, receipts: int, percent: float, megabytes: float
) -> None:
    """A server that is mostly idle. Updates are not answered with the model, so that it keeps no copies."""
    need = need_of(replace(SMALL, devices=devices), HERE)
    assert need.updates_per_second == pytest.approx(receipts / seconds, rel=WITHIN)
    alone = push_seconds(SMALL, 1)
    assert 100 * busy(receipts / seconds, alone) == pytest.approx(percent, rel=WITHIN)
    assert need.memory_bytes / 1e6 - 4 * SMALL.parameters * devices / 1e6 == pytest.approx(
        megabytes, rel=0.02
    )


@pytest.mark.parametrize(
    ("parameters", "up", "down"), [(38_282, 195, 210), (CNN, 5.07e6 / 12_000, 6.51e6 / 12_000)]
)
def test_bytes_of_an_update_and_its_answer(parameters: int, up: float, down: float) -> None:
    """As it comes: digits with four clients, to which it was fitted, and MNIST with eight."""
    need = need_of(Fleet(8, 1, parameters), HERE)
    assert (need.up_bytes, need.down_bytes) == pytest.approx((up, down), rel=WITHIN)


def test_a_journal_grows_as_one_did() -> None:
    """2,000 updates of the digits: 475,136 bytes of rows."""
    need = need_of(Fleet(4, 4 * 86_400 / 2000, 38_282), HERE)
    assert need.journal_bytes_a_day == pytest.approx(475_136, rel=WITHIN)


def test_the_first_resource_to_end_is_named_and_its_end_found() -> None:
    for machine, name in (
        (Machine(memory=1.5e9, disk=1e12), "memory"),
        (Machine(files=500), "sockets"),
        (Machine(disk=1e9), "disk"),
        (Machine(egress=1000), "egress"),
        (Machine(memory=1e12, disk=1e15, files=10**7, egress=1e12), "cores"),
    ):
        fleet = Fleet(1, 10)
        most = largest(fleet, machine)
        assert most > 0
        fits, more = (need_of(replace(fleet, devices=most + one), machine) for one in (0, 1))
        assert more.first == name
        assert fits.shares[name] <= 1 < more.shares[name]
    assert largest(Fleet(1, 10, 10**9), Machine(memory=1e9)) == 0


def test_a_server_is_never_more_than_busy() -> None:
    shares = [busy(rate, 0.5e-3) for rate in (0, 1, 10, 100, 1000, 2000, 5000)]
    assert shares == sorted(shares)
    assert (shares[0], shares[-2], shares[-1]) == (0, 1, 1)

"""What a fleet needs, held against figures of docs/benchmarks.md."""

import pytest

from edgeflock.devices.capacity import FleetLoad, Machine, Need, ServerParts, costs, estimate_needs
from edgeflock.devices.capacity.need import (
    answer_bytes,
    busy_fraction,
    journal_bytes_a_day,
    leader,
    push_seconds,
    relayed_push_seconds,
    shard_fractions,
    step_seconds,
    update_bytes,
)
from edgeflock.server.descent.staleness import Staleness

CNN = 211_690
HERE = Machine()
ALONE = ServerParts()
WITHIN = 0.25


def push(devices: int, parameters: int, fraction: float) -> float:
    """Microseconds of a push without an answer, of devices that push as fast as they can, with window 256."""
    fleet = FleetLoad(100, 1.0, parameters, tls=False)
    seconds = push_seconds(fleet, ALONE, round(fraction * parameters))
    return (seconds + costs.COMMIT_SECONDS / devices) * 1e6


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
    ("devices", "tls", "gateways", "rate", "answered", "leads", "holds"),
    [
        (100, False, 0, 10.0, 570, 2.3, None),
        (100, False, 1, 10.0, 570, 1.6, 1.5),
        (100, False, 2, 10.0, 570, 1.7, 0.9),
        (1_000, False, 0, 100.1, 1_028, 16.5, None),
        (1_000, False, 1, 100.1, 625, 10.4, 11.4),
        (1_000, False, 2, 100.1, 523, 11.4, 7.5),
        (10_000, False, 0, 275.6, 1, 25.0, None),
        (10_000, False, 1, 259.5, 1, 15.6, 15.9),
        (10_000, False, 2, 262.8, 1, 17.0, 11.1),
        (1_000, True, 0, 100.3, 949, 17.7, None),
        (1_000, True, 1, 100.3, 549, 10.0, 12.0),
        (10_000, True, 2, 995.7, 500, 29.4, 34.7),
        (1_200, True, 0, 302.3, 712, 30.5, None),
        (4_000, True, 0, 1011.9, 734, 68.1, None),
        (1_200, True, 1, 302.4, 1_088, 16.2, 25.7),
        (4_000, True, 1, 1012.1, 671, 27.2, 59.4),
        (1_200, True, 2, 302.5, 859, 17.8, 17.1),
        (4_000, True, 2, 1012.7, 959, 31.8, 39.0),
        (8_000, True, 2, 2018.7, 964, 31.5, 58.9),
        (1_200, True, 4, 302.2, 911, 20.3, 11.9),
        (4_000, True, 4, 1012.9, 889, 32.2, 24.1),
    ],
)
def test_connected_devices_take_what_they_took(
    devices: int, tls: bool, gateways: int, rate: float, answered: int, leads: float, holds: float | None
) -> None:
    """Gateways, percent of a core; most of 10,000 were not fitted. The last ten rows are of a quiet machine,
    and nine of them not fitted either.
    """
    fleet = FleetLoad(devices, devices / rate, 19_146, 11, tls, answered, torch=False)
    needs = estimate_needs(fleet, HERE, ServerParts(gateways=gateways))
    assert 100 * needs[0].cores == pytest.approx(leads, rel=WITHIN)
    if holds is not None:
        assert 100 * needs[1].cores == pytest.approx(holds, rel=WITHIN)


@pytest.mark.parametrize(
    ("devices", "gateways", "leads", "holds"),
    [
        (100, 0, 270, None),
        (100, 2, 255, 256),
        (1_000, 0, 375, None),
        (1_000, 1, 278, 349),
        (1_000, 2, 277, 299),
        (10_000, 0, 1_270, None),
    ],
)
def test_connected_devices_take_so_many_megabytes(
    devices: int, gateways: int, leads: float, holds: float | None
) -> None:
    """The same runs, when all devices held something of their own."""
    fleet = FleetLoad(devices, 10, 19_146, tls=False, torch=False)
    needs = estimate_needs(fleet, HERE, ServerParts(gateways=gateways))
    assert needs[0].memory_bytes / 1e6 == pytest.approx(leads, rel=0.1)
    if holds is not None:
        assert needs[1].memory_bytes / 1e6 == pytest.approx(holds, rel=0.1)


@pytest.mark.parametrize(
    ("devices", "period", "torch", "measured"),
    [
        (1, 10, False, 225),
        (1, 10, True, 446),
        (100, 10, True, 471),
        (300, 5, True, 512),
        (1_000, 10, True, 651),
    ],
)
def test_a_leader_takes_what_its_kind_of_model_takes(
    devices: int, period: float, torch: bool, measured: float
) -> None:
    """Memory of a leader, docs/scale.md: servers of `edgeflock server` with held-out data."""
    fleet = FleetLoad(devices, period, 38_282, tls=False, torch=torch)
    assert leader(fleet, HERE, ALONE).memory_bytes / 1e6 == pytest.approx(measured, rel=0.15)


def test_a_cohort_works_in_turn() -> None:
    """As many updates and as short a window as of a fleet of its size; sockets and memory as of all."""
    every, few, cohort = FleetLoad(1_000, 10), FleetLoad(20, 10), FleetLoad(1_000, 10, cohort=20)
    assert (cohort.rate, cohort.window) == (few.rate, few.window)
    own, as_few, as_all = (leader(fleet, HERE, ALONE) for fleet in (cohort, few, every))
    assert (own.cores, own.shares["window"]) == (as_few.cores, as_few.shares["window"])
    assert own.shares["sockets"] == as_all.shares["sockets"]
    assert as_few.memory_bytes < own.memory_bytes < as_all.memory_bytes
    assert FleetLoad(10, 10, cohort=20).rate == FleetLoad(10, 10).rate


@pytest.mark.parametrize(
    ("parameters", "up", "down"), [(38_282, 195, 210), (CNN, 5.07e6 / 12_000, 6.51e6 / 12_000)]
)
def test_bytes_of_an_update_and_its_answer(parameters: int, up: float, down: float) -> None:
    """As it comes: digits with four clients, to which it was fitted, and MNIST with eight."""
    fleet = FleetLoad(8, 1, parameters)
    assert (update_bytes(fleet), answer_bytes(fleet, ALONE)) == pytest.approx((up, down), rel=WITHIN)


@pytest.mark.parametrize(("devices", "measured"), [(4, 2_000), (16, 5_700), (200, 20_100)])
def test_bytes_of_an_exact_answer(devices: int, measured: float) -> None:
    """What devices are sent, of the record: 106 entries."""
    fleet = FleetLoad(devices, 1, CNN, entries=106)
    assert answer_bytes(fleet, ServerParts(shards=2)) == pytest.approx(measured, rel=WITHIN)


def test_a_journal_grows_as_one_did() -> None:
    """2,000 updates of the digits: 475,136 bytes of rows."""
    fleet = FleetLoad(4, 4 * 86_400 / 2000, 38_282)
    assert journal_bytes_a_day(fleet) == pytest.approx(475_136, rel=WITHIN)


@pytest.mark.parametrize("devices", [1, 170, 171, 2_000, 50_000])
def test_staleness_takes_what_it_says(devices: int) -> None:
    """A window for which no update is too old, up to the largest, and the bytes of it."""
    fleet = FleetLoad(devices, 60, 10)
    assert fleet.window >= min(65_536, 1.5 * devices)
    assert Staleness(10, fleet.window).nbytes == 10 * fleet.staleness_bytes


def test_shares_are_of_what_there_is() -> None:
    fleet = FleetLoad(1_000, 10)
    some = leader(fleet, HERE, ALONE)
    half = leader(fleet, Machine(HERE.memory / 2, HERE.disk / 2, HERE.files // 2, HERE.egress / 2), ALONE)
    for name in ("memory", "disk", "sockets", "network"):
        assert half.shares[name] == pytest.approx(2 * some.shares[name])
    for name in ("processor", "window", "rows"):
        assert half.shares[name] == some.shares[name]


def of(part: str, needs: list[Need]) -> Need:
    return next(need for need in needs if need.part == part)


def test_gateways_take_sockets_answers_and_decoding_off_the_leader() -> None:
    fleet = FleetLoad(10_000, 10)
    direct, through = (
        of("leader", estimate_needs(fleet, HERE, ServerParts(gateways=count))) for count in (0, 4)
    )
    assert through.shares["sockets"] == 4 / HERE.files
    assert through.shares["processor"] < 0.5 * direct.shares["processor"]
    assert through.memory_bytes < direct.memory_bytes
    assert through.shares["disk"] < direct.shares["disk"]  # what devices hold lies at the gateways


def test_each_gateway_follows_all_updates() -> None:
    """So that more of them help less and less, and cost the leader's line."""
    fleet = FleetLoad(1_000_000, 60)
    few, many = (estimate_needs(fleet, HERE, ServerParts(gateways=count)) for count in (100, 1_000))
    follow = fleet.rate * (costs.FOLLOW_SECONDS + costs.FOLLOW_ENTRY_SECONDS * fleet.sent_entries)
    assert follow < many[1].shares["processor"] < few[1].shares["processor"]
    assert many[0].shares["network"] > 9 * few[0].shares["network"]


def test_shards_pay_for_large_models_alone() -> None:
    """docs/shards.md: twice the server's time at 211,690 parameters, 0.028 of it at a hundred million."""
    small, large = FleetLoad(100, 10), FleetLoad(100, 10, 100_000_000)
    assert shard_fractions(CNN) == pytest.approx((2.0, 1.0))
    for fleet, pays in ((small, False), (large, True)):
        alone, apart = (
            relayed_push_seconds(fleet, ServerParts(gateways=1, shards=count)) for count in (0, 4)
        )
        assert (apart < alone) == pays
    assert step_seconds(large) > step_seconds(small)
    whole, slices = (estimate_needs(large, HERE, ServerParts(shards=count)) for count in (0, 4))
    assert of("leader", slices).memory_bytes < 0.3 * of("leader", whole).memory_bytes
    assert of("shard", slices).memory_bytes < 0.3 * of("leader", whole).memory_bytes


def test_a_model_in_shards_takes_what_was_measured() -> None:
    """docs/shards.md: a hundred million in one process and in four shards, window 64 where this has 256."""
    large = FleetLoad(10, 10, 100_000_000, torch=False)
    less = (large.staleness_bytes - Staleness(10, 64).nbytes / 10) * large.parameters
    (alone,) = estimate_needs(large, HERE, ALONE)
    copies = min(costs.COPIES_BYTES, 4 * 10 * large.parameters)
    sockets = 10 * (costs.PLAIN_BYTES + costs.TLS_SOCKET_BYTES)
    assert alone.memory_bytes - less - copies - sockets == pytest.approx(3_611e6, rel=WITHIN)
    apart = estimate_needs(large, HERE, ServerParts(shards=4))
    assert of("leader", apart).memory_bytes - costs.RAY_BYTES == pytest.approx(968e6, rel=WITHIN)
    assert of("shard", apart).memory_bytes - less / 4 == pytest.approx(793e6, rel=WITHIN)


def test_a_database() -> None:
    fleet = FleetLoad(10_000, 10)
    rates = {}
    for journal in costs.ROWS_PER_SECOND:
        needs = estimate_needs(fleet, HERE, ServerParts(journal=journal))
        keeps = needs[0] if journal == "sqlite" else of("database", needs)
        rates[journal] = keeps.shares["rows"]
        assert keeps.shares["disk"] > 1
    assert rates["sqlite"] < rates["postgresql"] < rates["synchronous"]


def test_a_process_is_never_more_than_busy() -> None:
    fleets = [FleetLoad(devices, 10) for devices in (1, 10, 100, 1000, 10_000, 20_000, 50_000)]
    shares = [busy_fraction(fleet, 0.5e-3, 2e-3) for fleet in fleets]
    assert shares == sorted(shares)
    assert (shares[-2], shares[-1]) == (1, 1)
    assert shares[0] == pytest.approx(0.1 * (0.5e-3 + 2e-3))  # one device's updates come by themselves

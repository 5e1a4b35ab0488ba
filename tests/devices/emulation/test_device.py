"""Emulated devices: how long what takes, and who leaves, comes back, crashes and is refused."""

import math
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from edgeflock.devices.emulation.config import PROFILES, DeviceClass, load_profile, parse
from edgeflock.devices.emulation.session import ClassTotals
from edgeflock.devices.emulation.speed import DeviceSpeed
from edgeflock.shared.codecs import sparse
from edgeflock.shared.errors import BaseExpired, RunComplete
from edgeflock.shared.protocol.messages import Hello, Model, Pull, Receipt, Refusal, Samples, Update, Welcome
from tests.devices.emulation.fleets import MIXED, ONE, Ran, fleet_of, run

# Paces


@pytest.mark.parametrize("name", PROFILES)
def test_a_step_takes_its_overhead_and_its_operations(name: str) -> None:
    made = load_profile(name)
    pace = DeviceSpeed.from_class(DeviceClass.model_validate({"profile": name}), flops=3_000_000_000)
    assert pace.step == pytest.approx(made.overhead_ms / 1000 + 3 / made.gflops)
    assert pace.uplink == made.uplink_mbps * 1e6 / 8
    assert pace.downlink == made.downlink_mbps * 1e6 / 8
    assert pace.latency == made.latency_ms / 1000
    assert pace.spread == made.spread


def test_what_a_class_says_itself_wins_over_its_profile() -> None:
    own = DeviceClass(profile="laptop", step_ms=250, spread=0, uplink_mbps=8, downlink_mbps=16, latency_ms=0)
    assert DeviceSpeed.from_class(own, flops=10**12) == DeviceSpeed(0.25, 0, False, 1e6, 2e6, 0)


def test_without_a_profile_the_network_takes_no_time() -> None:
    pace = DeviceSpeed.from_class(DeviceClass(step_ms=5, timing="exponential"), flops=10**12)
    assert pace == DeviceSpeed(0.005, 0, True, math.inf, math.inf, 0)


@pytest.mark.parametrize(
    ("spread", "exponential", "deviation"),
    [(0.0, False, 0.0), (0.3, False, 0.3), (2.0, False, 2.0), (0, True, 1)],
)
def test_drawn_times_have_the_mean_and_the_deviation(
    spread: float, exponential: bool, deviation: float
) -> None:
    pace = DeviceSpeed(0.2, spread, exponential, math.inf, math.inf, 0)
    random = np.random.default_rng(0)
    drawn = np.array([pace.draw(random) for _ in range(20_000)])
    assert drawn.min() > 0
    assert drawn.mean() == pytest.approx(0.2, rel=0.05)
    assert drawn.std() == pytest.approx(0.2 * deviation, rel=0.1, abs=1e-9)


# One device: every second is accounted for


def test_seconds_are_latency_bytes_and_steps() -> None:
    """Between an update's arrival and the next one's: the receipt down, one step, the update up."""
    link = ["uplink_mbps=0.1", "downlink_mbps=0.4", "latency_ms=20", "spread=0"]
    ran = run(fleet_of(ONE, *(f"devices.pi.{setting}" for setting in link)))
    up, down, latency, step = 0.1e6 / 8, 0.4e6 / 8, 0.02, 0.1
    first = ran.rows[0]  # Hello, Welcome, Pull, Model, Update
    assert first.time == pytest.approx(5 * latency + first.ingress / up + first.egress / down + step)
    for before, after in pairwise(ran.rows):
        sent, received = after.ingress - before.ingress, after.egress - before.egress
        assert sent > 0
        assert received > 0
        expected = 2 * latency + sent / up + received / down + step
        assert after.time - before.time == pytest.approx(expected)
    assert len(ran.rows) == 20


TEN = ("devices.pi.batch_min=10", "devices.pi.batch_max=10", "devices.pi.buffer=persistence")


@pytest.mark.parametrize("rate", [2.0, 40.0])
def test_a_stream_bounds_the_updates(rate: float) -> None:
    """Ten samples an update: the k-th step begins when 10 k have come in."""
    ran = run(fleet_of(ONE, f"devices.pi.rate={rate}", *TEN))
    assert [row.time for row in ran.rows] == pytest.approx([10 * k / rate + 0.1 for k in range(1, 21)])


def test_a_stream_faster_than_the_device_holds_nobody_up() -> None:
    ran = run(fleet_of(ONE, "devices.pi.rate=1000", *TEN))
    # The first samples come after a tick of the source.
    assert [row.time for row in ran.rows] == pytest.approx([0.05 + 0.1 * k for k in range(1, 21)])


def test_a_batch_is_what_streams_in_within_a_second() -> None:
    """A step takes 0.1 s, so the stream is what there is to wait for."""
    ran = run(fleet_of(ONE, "devices.pi.rate=40"))
    samples = [arrival.push.update.samples for arrival in ran.server.arrivals]
    assert all(36 <= count <= 40 for count in samples)
    (stream,) = ran.result.streams.values()
    assert (stream.rate, stream.samples, stream.drops) == (40.0, sum(samples), 0)
    assert 0.8 <= ran.rows[-1].time - ran.rows[-2].time <= 1.0
    assert 0.8 <= stream.gap <= 1.0


@pytest.mark.parametrize("buffer", ["truncation", "persistence"])
def test_what_a_slow_device_does_not_take_is_kept_or_dropped(buffer: str) -> None:
    """A step takes 2 s in which 80 samples arrive, and takes 40 of them (ScaDLES, equation 2)."""
    settings = ("devices.pi.rate=40", "devices.pi.step_ms=2000", "devices.pi.spread=0")
    ran = run(fleet_of(ONE, *settings, f"devices.pi.buffer={buffer}"))
    (stream,) = ran.result.streams.values()
    arrived = 40 * ran.rows[-1].time  # when one more step had begun
    if buffer == "truncation":
        assert 36 <= stream.depth <= stream.deepest <= 44
        assert stream.drops == pytest.approx(arrived - stream.samples - stream.depth, abs=44)
    else:
        assert stream.drops == 0
        assert stream.depth == stream.deepest == pytest.approx(arrived - stream.samples, abs=44)


@pytest.mark.parametrize("mode", ["async", "rounds"])
def test_rates_that_change_cost_no_samples(mode: str) -> None:
    settings = ("devices.pi.rate=sine:12..108/20s", f"coordination.mode={mode}", "fleet.devices=3")
    ran = run(fleet_of(ONE, *settings, "end.updates=90"))
    streams = list(ran.result.streams.values())
    assert {stream.drops for stream in streams} == {0}
    assert [stream.rate for stream in streams] == pytest.approx([60.0] * 3)
    assert max(stream.gap for stream in streams) <= 1.5
    sizes: dict[int, list[int]] = {}
    for arrival in ran.server.arrivals:
        sizes.setdefault(arrival.push.device, []).append(arrival.push.update.samples)
    assert all(min(each) < 20 and max(each) > 80 for each in sizes.values())
    assert len({each[0] for each in sizes.values()}) == 3, "each is somewhere else in the curve"


def test_devices_draw_their_rates() -> None:
    settings = ("devices.quick.rate=uniform(38,24)", "devices.slow.rate=20")
    ran = run(fleet_of(MIXED, *settings))
    rates = {name: stream.rate for name, stream in ran.result.streams.items()}
    assert {rate for name, rate in rates.items() if name.startswith("slow")} == {20.0}
    quick = [rate for name, rate in rates.items() if name.startswith("quick")]
    assert len(set(quick)) == 4
    assert 8 <= min(quick) <= max(quick) <= 38 + 24 * math.sqrt(3)


# Rounds

ROUNDS = ("coordination.mode=rounds", "end.updates=60")


def test_a_round_takes_as_long_as_its_slowest_device() -> None:
    settings = ("devices.quick.spread=0", "devices.slow.timing=lognormal", "devices.slow.step_ms=1000")
    ran = run(fleet_of(MIXED, *ROUNDS, *settings))
    assert (ran.result.ended, ran.result.updates) == ("complete", 60)
    by_round = [
        {push.update.base for push, _ in ran.server.accepted[first : first + 6]} for first in range(0, 60, 6)
    ]
    assert by_round == [{6 * number} for number in range(10)]
    assert [row.version for row in ran.rows] == [6, 12, 18, 24, 30, 36, 42, 48, 54, 60]
    assert ran.rows[-1].time - ran.rows[-2].time == pytest.approx(1, abs=0.2)
    assert sum(tally.refused for tally in ran.result.classes.values()) == 0


def test_a_deadline_leaves_the_slow_ones_out() -> None:
    settings = ("devices.slow.step_ms=10000", "devices.slow.timing=lognormal", "coordination.deadline=0.5")
    ran = run(fleet_of(MIXED, *ROUNDS, *settings))
    classes = ran.result.classes
    assert (classes["quick"].updates, classes["slow"].updates) == (60, 0)


def test_whoever_crashes_is_not_waited_for() -> None:
    ran = run(fleet_of(MIXED, *ROUNDS, "devices.quick.crash=0.2", "coordination.deadline=1e6"))
    assert ran.result.classes["quick"].crashed > 0
    assert ran.result.ended == "complete"


def test_local_steps_take_their_time() -> None:
    ran = run(fleet_of(ONE, "local.steps=4"))
    assert [row.time for row in ran.rows] == pytest.approx([4 * 0.1 * k for k in range(1, 21)])


def test_it_ends_when_its_time_is_over() -> None:
    ran = run(fleet_of(ONE, "fleet.seconds=1.05", "fleet.evaluate_every=1000"))
    assert (ran.result.ended, ran.result.updates) == ("out of time", 10)
    assert [arrival.seconds for arrival in ran.server.arrivals] == pytest.approx(
        [0.1 * k for k in range(1, 11)]
    )
    (row,) = ran.rows
    assert row.version == 10
    assert row.time == pytest.approx(1.05)


# Many devices


def test_tallies_say_what_happened() -> None:
    ran = run(fleet_of(MIXED, "coordination.window=2"))
    total = ClassTotals()
    for tally in ran.result.classes.values():
        for key in ("devices", "updates", "refused", "crashed", "staleness", "ingress", "egress"):
            setattr(total, key, getattr(total, key) + getattr(tally, key))
    server = ran.server
    assert (total.devices, total.updates, total.crashed) == (6, 40, 0)
    assert total.ingress == server.traffic.total.ingress == sum(server.traffic.received.values())
    assert total.egress == server.traffic.total.egress == sum(server.traffic.sent.values())
    assert total.staleness == sum(r.version - 1 - push.update.base for push, r in server.accepted)
    assert {kind: tally.devices for kind, tally in ran.result.classes.items()} == {"quick": 4, "slow": 2}
    assert server.traffic.received.keys() == {Hello, Pull, Update}
    assert server.traffic.sent.keys() == {Welcome, Model, Receipt, Refusal}


def test_tallies_say_how_much_was_compressed() -> None:
    """Only what was accepted counts."""
    ran = run(fleet_of(MIXED, "compression.threshold=0.5", "coordination.window=2"))
    modes = Counter(push.update.index_mode for push, _ in ran.server.accepted)
    assert modes.keys() == {sparse.DENSE, sparse.GOLOMB}
    assert sum(tally.compressed for tally in ran.result.classes.values()) == modes[sparse.GOLOMB]
    assert sum(tally.refused for tally in ran.result.classes.values()) > 0


def test_updates_from_beyond_the_window_are_refused_counted_and_survived() -> None:
    ran = run(fleet_of(MIXED, "coordination.window=2"))
    refused = [one for one in ran.server.arrivals if isinstance(one.answer, BaseExpired)]
    assert len(refused) == sum(tally.refused for tally in ran.result.classes.values()) >= 5
    assert (ran.result.ended, ran.result.updates) == ("complete", 40)
    assert all(receipt.version - 1 - push.update.base < 2 for push, receipt in ran.server.accepted)
    for one in refused:  # the number of a refused update goes to the next one
        later = [push for push, _ in ran.server.accepted if push.device == one.push.device]
        assert all(push.update.base != one.push.update.base for push in later)
    assert_sequences_have_no_gaps(ran)


def assert_sequences_have_no_gaps(ran: Ran) -> None:
    """Each device's accepted updates are numbered 1, 2, 3, ..."""
    seen: Counter[int] = Counter()
    for push, _ in ran.server.accepted:
        seen[push.device] += 1
        assert push.update.sequence == seen[push.device]


def test_a_device_that_left_comes_back_and_counts_on() -> None:
    settings = ["devices.pi.session_s=0.35", "devices.pi.away_s=7"]
    ran = run(fleet_of(ONE, *settings))
    hello = 6 + len(b"\x95\x01\x01\xa4pi-0\xc4\x00\x80")  # header and mask; name, no layout, no facts
    sessions = ran.server.traffic.received[Hello] // hello
    assert sessions > 2
    assert ran.server.traffic.received[Hello] == sessions * hello
    assert ran.result.updates == len(ran.server.accepted) == 20
    assert_sequences_have_no_gaps(ran)
    # It trains a twentieth of the time: 20 updates of 0.1 s took tens of seconds.
    assert ran.rows[-1].time > 10


def test_who_is_about_to_leave_asks_for_no_model() -> None:
    """Steps take 0.1 s, always: the last update of each session that has one, and no other."""
    settings = [
        "devices.pi.session_s=0.45",
        "devices.pi.away_s=7",
        "devices.pi.spread=0",
        "devices.pi.latency_ms=0",
    ]
    ran = run(fleet_of(ONE, *settings))
    pushed = [(one.seconds, one.push.update.pull) for one in ran.server.arrivals]
    assert len(pushed) == 20
    assert 2 < sum(not pull for _, pull in pushed) < 18
    for (then, pull), (now, _) in pairwise(pushed):
        assert pull == (now - then < 1), "the next one comes after an absence"


@pytest.mark.slow
def test_leaving_devices_are_away_for_their_share_of_the_time() -> None:
    """Sessions and absences are exponential, mean 5 s: a session has 1 / (e^(1/5) - 1) whole steps of 1 s."""
    settings = [
        "end.updates=0",
        "fleet.seconds=100",
        "fleet.evaluate_every=100000",
        "devices.pi.step_ms=1000",
    ]
    away = ["devices.pi.session_s=5", "devices.pi.away_s=5"]
    ran = run(fleet_of(ONE, *settings, *away, "fleet.devices=12"))
    assert ran.result.updates == pytest.approx(12 * 100 / (5 + 5) / math.expm1(1 / 5), rel=0.2)


def test_a_crashed_device_is_gone_for_ever() -> None:
    crash = ["devices.quick.crash=0.999999", "devices.slow.crash=0.999999"]
    ran = run(fleet_of(MIXED, *crash))
    assert ran.result.ended == "no device left"
    assert {kind: tally.crashed for kind, tally in ran.result.classes.items()} == {"quick": 4, "slow": 2}
    assert sorted(push.device for push, _ in ran.server.accepted) == [1, 2, 3, 4, 5, 6]
    assert ran.result.updates == 6
    assert ran.rows[-1].version == 6


def test_the_others_go_on_without_the_crashed() -> None:
    ran = run(fleet_of(MIXED, "devices.quick.crash=0.999999"))
    assert (ran.result.ended, ran.result.updates) == ("complete", 40)
    quick, slow = ran.result.classes["quick"], ran.result.classes["slow"]
    assert (quick.crashed, quick.updates) == (4, 4)
    assert (slow.crashed, slow.updates) == (0, 36)


def test_crashes_are_as_likely_as_they_should_be() -> None:
    """With probability 1/8 after each update, a device makes eight on average."""
    file = fleet_of(
        ONE, "fleet.devices=60", "devices.pi.crash=0.125", "end.updates=0", "fleet.seconds=1000",
        "fleet.evaluate_every=100000",
    )  # fmt: skip
    ran = run(file)
    assert ran.result.ended == "no device left"
    assert ran.result.classes["pi"].crashed == 60
    assert ran.result.updates / 60 == pytest.approx(8, rel=0.35)


def test_a_device_ten_times_as_fast_makes_ten_times_the_updates() -> None:
    settings = ["fleet.devices=2", "devices.tortoise.step_ms=1000", "end.updates=0", "fleet.seconds=10.05"]
    ran = run(fleet_of(ONE, *settings, "fleet.evaluate_every=50"))
    classes = ran.result.classes
    assert (classes["pi"].updates, classes["tortoise"].updates) == (100, 10)
    # Ten updates of the other come between; the first is from version 0.
    assert classes["tortoise"].staleness == pytest.approx(10 * 10, abs=10)


def test_a_run_that_is_complete_takes_no_more() -> None:
    ran = run(fleet_of(MIXED))
    assert (ran.result.ended, ran.result.updates) == ("complete", 40)
    assert ran.rows[-1].version == 40
    assert ran.server.accepted[-1][1].version == 40
    assert not any(isinstance(one.answer, RunComplete) for one in ran.server.arrivals)


# A model that diverges

EXPLODING = ("model.module=edgeflock.client.zoo:DigitsCNN", "coordination.learning_rate=1e6")
DIVERGING = (*EXPLODING, "limits.parameter=1e30", "evaluation.recover=false")


def test_steps_that_are_too_large_end_it_with_the_model_as_it_was() -> None:
    ran = run(fleet_of(ONE, *EXPLODING))
    assert ran.result.ended == "diverged"
    assert all(row.loss is not None for row in ran.rows)
    assert ran.result.classes["pi"].refused == 3


def test_a_run_that_leaves_the_numbers_ends_as_diverged(tmp_path: Path) -> None:
    ran = run(fleet_of(MIXED, *DIVERGING))
    assert ran.result.ended == "diverged"
    assert ran.result.updates == ran.rows[-1].version < 40
    assert ran.rows[-1].loss is None
    assert all(row.loss is not None for row in ran.rows[:-1])
    assert not (tmp_path / "run").exists(), "it is over: nothing to take up"


def test_gradients_that_leave_the_numbers_end_it_too() -> None:
    """No evaluation is due before the devices see it themselves."""
    ran = run(fleet_of(MIXED, *DIVERGING, "fleet.evaluate_every=1000", "end.updates=1000"))
    assert ran.result.ended == "diverged"
    assert ran.result.updates < 1000
    assert ran.rows[-1].version == ran.result.updates


def test_a_run_of_lossy_differences_ends_as_well(tmp_path: Path) -> None:
    """What a device holds may leave the numbers before the model does: then its gradient shows it."""
    ran = run(fleet_of(MIXED, *DIVERGING, "downlink.mode=lossy"))
    assert ran.result.ended == "diverged"
    assert ran.result.updates == ran.rows[-1].version < 40
    assert not (tmp_path / "run").exists(), "it is over: nothing to take up"


def test_a_run_whose_last_update_diverges_is_not_complete() -> None:
    diverged = run(fleet_of(ONE, *DIVERGING)).result.updates
    settings = [f"end.updates={diverged}", "fleet.evaluate_every=1000"]
    ran = run(fleet_of(ONE, *DIVERGING, *settings))
    assert ran.rows[-1].loss is None
    assert ran.result.ended == "diverged"


def test_the_update_that_shows_the_divergence_is_tallied() -> None:
    ran = run(fleet_of(ONE, *DIVERGING))
    assert ran.result.ended == "diverged"
    assert ran.result.classes["pi"].updates == ran.result.updates


RASH = """
[end]
updates = 1050
[local]
batch = 10
optimizer = "sgd"
[journal]
keep_updates = false
[model]
module = "edgeflock.client.zoo:DigitsCNN"
[coordination]
learning_rate = 0.48
[fleet]
devices = 10
evaluate_every = 150
[devices.pi]
step_ms = 1000
timing = "exponential"
"""
"""A rate with which the model learns, explodes after 300 updates, and then stays where it is."""


@pytest.mark.slow
def test_a_model_that_has_lost_what_it_had_learned_learns_again() -> None:
    """With half the rate. Devices forget what they had not sent of the gradients that exploded."""
    rash = run(parse(RASH, "rash", ["evaluation.recover=false"])).rows
    ran = run(parse(RASH, "wise", []))
    losses = [row.loss or 1e9 for row in ran.rows]
    exploded = next(place for place, row in enumerate(rash) if (row.loss or 1e9) > 100)
    assert losses[: exploded + 1] == [row.loss for row in rash[: exploded + 1]]
    assert losses[-1] < 0.7 < 2 < (rash[-1].loss or 1e9)
    assert ran.result.ended == "complete"
    assert ran.result.updates == 1050


# Sharing

SHARING = ("injection.alpha=1", "injection.beta=0.5", "devices.quick.shares=true", "fleet.labels=1")


def test_shared_samples_reach_those_who_share_and_are_accounted() -> None:
    """Each step of the four quick devices shares 5 of its 10 samples: each goes to one of three others."""
    ran = run(fleet_of(MIXED, *ROUNDS, *SHARING))
    quick, slow = ran.result.classes["quick"], ran.result.classes["slow"]
    assert (slow.shared, slow.shared_bytes) == (0, 0)
    assert quick.shared_bytes == ran.server.traffic.received[Samples] > quick.shared * 64
    # Drawn in one round and sent in the next, they come along with its receipt.
    batches = Counter(one.push.update.samples for one in ran.server.arrivals)
    assert batches.total() == slow.updates + quick.updates
    assert (batches[5], min(batches), max(batches)) == (2 * 4, 5, 11), "5 of 3 others' come as 2, 2 and 1"
    trained = 10 * slow.updates + 5 * 2 * 4 + 10 * (quick.updates - 2 * 4)
    assert sum(size * count for size, count in batches.items()) == trained, "each of them once"
    assert quick.shared == 5 * (quick.updates - 4), "what is drawn with the last update is not sent any more"


def test_nothing_is_shared_unless_the_run_wants_it() -> None:
    ran = run(fleet_of(MIXED, *ROUNDS, "devices.quick.shares=true"))
    assert ran.server.traffic.received[Samples] == 0
    assert {one.push.update.samples for one in ran.server.arrivals} == {10}

"""FedAvg, FedBuff, momentum against what their papers say, bytes against the protocol, on small data."""

import math
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from benchmarks.learning import rivals_page
from benchmarks.learning.arms import CENTRAL, GRIDS, parsed
from benchmarks.learning.lines import Line
from benchmarks.learning.rivals.asynchronous import FedAsync, FedBuff, HeavyBall
from benchmarks.learning.rivals.averaging import FedAvg
from benchmarks.learning.rivals.central import SyncSgd
from benchmarks.learning.rivals.channel import Channel, Vector
from benchmarks.learning.rivals.federation import Averaged, Federation, Rival, simulate
from benchmarks.learning.rivals.sparse import Dgc, Ef21
from benchmarks.learning.rivals.sparse import message_bytes as sparse_bytes
from benchmarks.learning.rivals.ternary import Stc, message_bytes, ternary
from edgeflock.devices.emulation.config import FleetFile
from edgeflock.devices.emulation.fleet import PreparedFleet, prepare
from edgeflock.server.hosting.weights import first_model
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.model.torch_module import FlatModule
from edgeflock.shared.protocol import wire
from edgeflock.shared.protocol.frames import Evaluation
from edgeflock.shared.protocol.messages import Model, Update

MODULE = "tests.devices.emulation.fleets:Linear"
DEVICES, SAMPLES, BATCH = 12, 20, 10


@cache
def fleet(batch: int = BATCH) -> PreparedFleet:
    """12 devices with 20 digits each: an epoch is two batches."""
    settings: dict[str, dict[str, Any]] = {
        "end": {"updates": 1},
        "local": {"batch": batch},
        "model": {"module": MODULE},
        "fleet": {"devices": DEVICES, "samples": DEVICES * SAMPLES},
    }
    return prepare(FleetFile.model_validate(settings))


def run(how: Rival, gradients: int, prepared: PreparedFleet | None = None) -> list[Evaluation]:
    """Its evaluations, one a version of the model."""
    evaluations: list[Evaluation] = []
    end = simulate(how, prepared or fleet(), 0, gradients, 1, evaluations.append)
    assert (end["ended"], end["updates"]) == ("complete", evaluations[-1].version)
    return evaluations


def flat() -> FlatModule:
    return FlatModule(MODULE, "cross_entropy", 0)


def first() -> Vector:
    """What runs begin with, under seed 0."""
    return first_model(flat(), "", 0)[0]


def down(size: int, value_mode: int, octets: int, base: int | None = None) -> int:
    record = Model(0, base, 0, value_mode, size, b"", bytes(octets))
    return wire.framed_size(len(wire.encode(record)), masked=False)


def up(size: int, value_mode: int, octets: int) -> int:
    record = Update(1, 0, 0, value_mode, size, b"", bytes(octets), 0.5, SAMPLES, False)
    return wire.framed_size(len(wire.encode(record)), masked=True)


def test_a_round_of_all_clients_with_one_whole_batch_is_a_step_on_all_data() -> None:
    whole = fleet(batch=SAMPLES)
    evaluations: list[Evaluation] = []
    simulate(FedAvg(0.1, cohort=DEVICES), whole, 0, DEVICES, 1, evaluations.append)
    x = np.concatenate([share.x for share in whole.shares])
    y = np.concatenate([share.y for share in whole.shares])
    model = flat()
    theta = first()
    _, gradient, _, _, _ = model.gradient(theta, x, y)
    expected = model.evaluate(theta - np.float32(0.1) * gradient.copy(), whole.test.x, whole.test.y)
    assert evaluations[0].loss == pytest.approx(expected[0], rel=1e-5)


def test_fedavg_is_counted_by_the_message() -> None:
    size = flat().layout.size
    evaluations = run(FedAvg(0.1, epochs=2, cohort=3), gradients=24)
    assert [one.version for one in evaluations] == [3, 6]
    for rounds, one in enumerate(evaluations, 1):
        assert one.ingress == 3 * rounds * up(size, 0, 4 * size)
        assert one.egress == 3 * rounds * down(size, 0, 4 * size)


def test_fedbuff_sends_first_models_to_those_that_train_and_one_for_each_change() -> None:
    size = flat().layout.size
    evaluations = run(FedBuff(0.1, buffer=3, training=5), gradients=12)
    assert [one.version for one in evaluations] == [3, 6]
    for versions, one in enumerate(evaluations, 1):
        assert one.ingress == 3 * versions * up(size, 0, 4 * size)
        assert one.egress == (5 + 3 * versions) * down(size, 0, 4 * size)


def test_fedbuff_with_one_client_at_a_time_is_sequential_sgd() -> None:
    """Nothing is stale then: of one client the model goes straight on."""
    alone = replace(fleet(), shares=fleet().shares[:1])
    evaluations = run(FedBuff(0.1, buffer=1, training=1), 20, alone)
    rounds = run(FedAvg(0.1, cohort=1), 20, alone)
    assert [one.loss for one in evaluations] == pytest.approx([one.loss for one in rounds], rel=1e-6)


def test_fedbuff_takes_stale_changes_for_less() -> None:
    """With K = 1 and n that train, a change is t versions late with probability (1 - 1 / n)^t / n."""
    alike = replace(fleet(), shares=[fleet().shares[0]] * 2)
    model = flat()
    start, _ = model.evaluate(first(), alike.test.x, alike.test.y)
    gained = [
        start
        - (run(FedBuff(1e-4, steps=1, buffer=1, training=training), 2 * 100, alike)[-1].loss or math.inf)
        for training in (1, 2)
    ]
    weight = sum(0.5 ** (late + 1) / math.sqrt(1 + late) for late in range(50))
    assert gained[0] > 0
    assert gained[1] / gained[0] == pytest.approx(weight, abs=0.08)


def test_momentum_of_one_client_is_the_heavy_ball() -> None:
    alone = replace(fleet(batch=SAMPLES), shares=fleet().shares[:1])
    evaluations: list[Evaluation] = []
    simulate(HeavyBall(0.1), alone, 0, 5, 1, evaluations.append)
    model, share = flat(), alone.shares[0]
    theta = first()
    velocity = np.zeros_like(theta)
    for one in evaluations:
        _, gradient, _, _, _ = model.gradient(theta, share.x, share.y)
        velocity = 0.9 * velocity - 0.1 * gradient
        theta = (theta + velocity).astype(np.float32)
        assert one.loss == pytest.approx(model.evaluate(theta, alone.test.x, alone.test.y)[0], rel=1e-4)
    assert len(evaluations) == 5


def test_momentum_divides_by_staleness_and_sends_the_whole_model_each_time() -> None:
    size = flat().layout.size
    plain = HeavyBall(0.1, momentum=1e-9)
    several = replace(fleet(), shares=[fleet().shares[0]] * DEVICES)
    evaluations = run(plain, 60, several)
    assert [(one.version, one.ingress) for one in evaluations[:2]] == [
        (1, up(size, 0, 4 * size)),
        (2, 2 * up(size, 0, 4 * size)),
    ]
    assert evaluations[0].egress == DEVICES * down(size, 0, 4 * size)
    alone = replace(fleet(), shares=fleet().shares[:1])
    assert (run(plain, 60, alone)[-1].loss or 0) < (evaluations[-1].loss or 0)  # of twelve, most is stale


def test_in_eight_bits_the_client_comes_nearer_to_the_model_with_each_message() -> None:
    layout = Layout.from_shapes([("a", (40,)), ("b", (3, 20))])
    theta = np.random.default_rng(0).normal(size=layout.size).astype(np.float32)
    channel = Channel(layout, "int8")
    far = [float(np.abs(channel.down(7, version, theta) - theta).max()) for version in range(3)]
    assert far[0] < np.abs(theta).max() / 200
    assert far[1] < far[0] / 50
    assert far[2] <= far[1]
    octets = layout.size + 2 * 2
    assert channel.egress == down(layout.size, 2, octets) + 2 * down(layout.size, 2, octets, 1)
    change = channel.up(0, theta, 0.5, SAMPLES)
    assert channel.ingress == up(layout.size, 2, octets)
    assert 0 < np.abs(change - theta).max() < np.abs(theta).max() / 200


@pytest.mark.parametrize(
    "how",
    [
        FedAvg(0.2),
        FedAvg(0.2, values="int8"),
        FedBuff(0.2, training=11),
        HeavyBall(0.1),
    ],
)
def test_it_learns_and_a_seed_tells_all(how: Rival) -> None:
    evaluations = run(how, 400)
    assert evaluations == run(how, 400)
    assert (evaluations[-1].accuracy or 0) > 0.75


def test_a_rate_too_high_is_seen() -> None:
    end = simulate(FedAvg(1e38), fleet(), 0, 4000, 1000)
    assert end["ended"] == "diverged"
    assert end["updates"] < 2000


def test_fedprox_goes_less_far_and_fedasync_goes_to_the_client_s_model() -> None:
    alone = replace(fleet(), shares=fleet().shares[:1])
    free, drawn = (run(FedAvg(0.1, epochs=8, cohort=1, proximal=mu), 16, alone)[-1].loss for mu in (0.0, 5.0))
    start, _ = flat().evaluate(first(), alone.test.x, alone.test.y)
    assert free is not None
    assert drawn is not None
    assert abs(start - drawn) < abs(start - free)
    # All of the way, with one client: its own model, which is where sequential SGD comes to.
    mixed = run(FedAsync(0.1, training=1, mixing=1.0), 20, alone)
    sequential = run(FedAvg(0.1, cohort=1), 20, alone)
    assert [one.loss for one in mixed] == pytest.approx([one.loss for one in sequential], rel=1e-5)


def test_ternary_keeps_the_signs_of_the_largest_at_their_mean_magnitude() -> None:
    vector = np.array([0.1, -4, 2, 0, -0.3, 0.2, 0, 0], np.float32)
    assert ternary(vector, 0.25).tolist() == [0, -3, 3, 0, 0, 0, 0, 0]
    assert message_bytes(400_000, 0.0025) == math.ceil((1000 * (8 + 1 / (1 - 0.9975**256) + 1) + 32) / 8)


def test_stc_of_one_client_sends_the_rest_of_its_change_later() -> None:
    """With d and then d' as changes, the model moves by t = STC(STC(d)) and then STC(STC(d - t + d'))."""
    alone = replace(fleet(batch=SAMPLES), shares=fleet().shares[:1])
    how, evaluations = Stc(0.1, share=0.1, cohort=1), list[Evaluation]()
    simulate(how, alone, 0, 2, 1, evaluations.append)
    model, theta, share = flat(), first(), alone.shares[0]
    memory = np.zeros_like(theta)
    for one in evaluations:
        gradient = model.gradient(theta, share.x, share.y).gradient
        memory = memory - np.float32(0.1) * gradient
        step = ternary(memory, 0.1)
        memory, theta = memory - step, theta + step
        expected, _ = model.evaluate(theta, alone.test.x, alone.test.y)
        assert one.loss == pytest.approx(expected, rel=1e-4)
    octets = message_bytes(theta.size, 0.1)
    assert evaluations[1].ingress == 2 * up(theta.size, 0, octets)
    assert evaluations[1].egress == down(theta.size, 0, 4 * theta.size) + down(theta.size, 0, octets, 0)


def test_dgc_sends_the_largest_of_its_momentum_and_forgets_what_it_has_sent() -> None:
    """All entries at once are synchronous SGD with momentum restarted; a share leaves the rest for later."""
    federation = Federation.of(fleet(), 0)
    models = Dgc(0.1, share=1.0, momentum=0.9, warm=0).models(federation)
    found = [next(models), next(models)]
    dense = SyncSgd(0.1).models(Federation.of(fleet(), 0))
    for one in found:
        np.testing.assert_allclose(one, next(dense), rtol=1e-5, atol=1e-6)

    few = Federation.of(fleet(), 0)
    start = few.theta.copy()
    moved = next(Dgc(0.1, share=0.01, warm=0).models(few)) != start
    assert 0 < moved.sum() <= DEVICES * max(1, int(0.01 * start.size))


def test_dgc_sends_fewer_entries_as_it_warms_up() -> None:
    federation = Federation.of(fleet(), 0)
    models, sizes = Dgc(0.1, share=0.001, warm=8).models(federation), []
    before = federation.channel.ingress
    for _ in range(9):
        next(models)
        sizes.append(federation.channel.ingress - before)
        before = federation.channel.ingress
    assert sizes[0] == sizes[1] > sizes[2] == sizes[3] > sizes[4] > sizes[8]


def test_ef21_follows_the_gradients_until_its_step_is_the_dense_one() -> None:
    federation = Federation.of(fleet(batch=SAMPLES), 0)
    dense = Federation.of(fleet(batch=SAMPLES), 0)
    whole, sparse = SyncSgd(0.1).models(dense), Ef21(0.1, share=1.0).models(federation)
    for _ in range(3):
        np.testing.assert_allclose(next(sparse), next(whole), rtol=1e-5, atol=1e-6)

    slow = Federation.of(fleet(batch=SAMPLES), 0)
    start, followers = slow.theta.copy(), Ef21(1e-4, share=0.1).models(slow)
    thetas = [next(followers) for _ in range(15)]
    dense_step = next(SyncSgd(1e-4).models(Federation.of(fleet(batch=SAMPLES), 0))) - start
    first_step, late_step = thetas[0] - start, thetas[-1] - thetas[-2]
    assert np.linalg.norm(first_step - dense_step) > 0.1 * np.linalg.norm(dense_step)
    assert np.linalg.norm(late_step - dense_step) < 0.02 * np.linalg.norm(dense_step)


def test_a_sparse_message_costs_its_values_and_the_entropy_of_its_positions() -> None:
    sent = np.zeros(1000, np.float32)
    sent[:100] = 1
    entropy = -(0.1 * math.log2(0.1) + 0.9 * math.log2(0.9)) * 1000 / 8
    assert sparse_bytes(sent) == math.ceil(400 + entropy)
    assert sparse_bytes(np.ones(1000, np.float32)) == 4000
    assert sparse_bytes(np.zeros(1000, np.float32)) == 0


@pytest.mark.parametrize("family", [family for family in GRIDS if family not in CENTRAL])
def test_the_others_go_on_after_a_crash(family: str) -> None:
    """All but the last crash after their first message, so the last computes all gradients from then on."""
    arm = parsed(f"{family} {GRIDS[family][0]}")
    assert arm.rival is not None
    federation = Federation.of(fleet(), 0, arm.rival.values, crash=1.0)
    models = arm.rival.models(federation)
    epochs = getattr(arm.rival, "epochs", 1)
    steps = getattr(arm.rival, "most", getattr(arm.rival, "steps", 1)) or epochs * SAMPLES // BATCH
    while federation.gradients < 2 * DEVICES * steps:
        assert np.isfinite(next(models)).all()
    assert len(federation.present) == 1
    counts = [client.gradients for client in federation.clients]
    assert [count for number, count in enumerate(counts) if number in federation.crashed] == [steps] * (
        DEVICES - 1
    )


def test_the_averaged_model_follows_and_the_rival_goes_on_from_its_own() -> None:
    arm = parsed("SyncSgd rate=0.1 average=8")
    assert arm.rival == Averaged(SyncSgd(0.1), 8.0)
    averages, models = (how.models(Federation.of(fleet(), 0)) for how in (arm.rival, SyncSgd(0.1)))
    expected = np.zeros_like(first())
    for count in (1, 2, 3):
        weight = 9 / (count + 8)
        expected = (1 - weight) * expected + weight * next(models)
        np.testing.assert_allclose(next(averages), expected, rtol=1e-5, atol=1e-6)


def test_rivals_are_compared_where_the_product_ends() -> None:
    """Between two evaluations the line between them counts, after the last one the last."""
    curves = [[(10.0, 0.2), (20.0, 0.6)], [(10.0, 0.4), (20.0, 0.8)]]
    runs = [{"curve": [{"seconds": s, "accuracy": a} for s, a in curve]} for curve in curves]

    def at(limit: float) -> float | None:
        return rivals_page.value_at(runs, lambda row: float(row["seconds"]), limit)

    assert at(9.0) is None
    assert at(15.0) == pytest.approx(0.5)
    assert at(99.0) == pytest.approx(0.7)

    def best(limit: float) -> rivals_page.Value | None:
        line = Line("FedAvg", "FedAvg", 2, 0.7, 0.7, None, None, 20.0, 1.0, 1.0, 1.0, runs)
        return rivals_page.highest([line], lambda row: float(row["seconds"]), limit)

    assert best(9.0) is None
    found, later = best(21.0), best(23.0)
    assert found is not None
    assert later is not None
    assert found.accuracy == later.accuracy == pytest.approx(0.7)
    assert (found.has_ended, later.has_ended) == (False, True)

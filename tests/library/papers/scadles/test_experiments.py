"""The paper's settings."""

from pathlib import Path

import numpy as np
import pytest
import torch

from edgeflock.papers.scadles import experiments
from edgeflock.papers.scadles.report import TABLE_5
from edgeflock.papers.scadles.settings import (
    ADAPTIVE,
    BUFFERED,
    DDL,
    DISTRIBUTIONS,
    FULL,
    INJECTED,
    LOCAL,
    MNIST,
    PAIRS,
    RATES,
    SCADLES,
    TASKS,
)
from edgeflock.papers.scadles.speed_up import SPEED_UPS
from edgeflock.papers.scadles.stand_ins import SharedNorm2d, SvhnShared, top_5
from edgeflock.shared.data.datasets import load
from edgeflock.shared.data.rates import HIGH, LOW, curve
from edgeflock.shared.errors import ConfigError
from tests.library.papers.scadles.runs import FOLDER, everything, named, of_mnist


def test_streams_iterations_and_devices_are_the_paper_s() -> None:
    rates = {"uniform(38,24)", "uniform(300,112)", "normal(64,24)", "normal(256,28)"}
    assert set(DISTRIBUTIONS.values()) == rates
    for one in everything(FULL):
        if one.part == "changing" or one.part.startswith("noisy"):
            continue
        file = one.file
        labelled = one.part.startswith(("non-IID", "injected"))
        assert file.fleet.devices == (10 if labelled else 16)
        assert (file.compression.indices, file.compression.values) == ("golomb", "f32")
        assert (file.compression.balance, file.compression.feedback, file.coordination.average) == (1, 0, 0)
        assert file.downlink.mode == "exact"
        for kind in file.classes.values():
            assert kind.rate in rates
            assert (kind.spread or 0.0, kind.timing) == (0.0, "lognormal"), "all iterations take as long"
        assert file.end.updates or file.fleet.seconds


def test_streams_that_change_have_one_mean_and_differ_in_nothing_else() -> None:
    parts = list(experiments.changing(FOLDER, FULL, {}))
    random = np.random.default_rng(0)
    for one in parts:
        (kind,) = one.file.devices.values()
        of = curve(kind.rate, random)
        span = min(of.period, 60.0)
        assert of.arrivals(span) / span == pytest.approx(60)
        assert (kind.step_ms, kind.buffer, one.file.fleet.seconds) == (200, "truncation", FULL.changing)
        assert one.file.coordination.quorum == (8 if "quorum" in one.name else 0)
    assert len({one.name for one in parts}) == len(parts) == 12


def test_conventional_training_waits_for_64_samples_everywhere() -> None:
    for one in experiments.speed_up(FOLDER, FULL, {}):
        (kind,) = one.file.devices.values()
        settings = one.file.coordination
        local = one.method.name == LOCAL.name
        assert (settings.mode, settings.base_batch) == ("rounds", 0 if local else 16 * 64)
        assert one.file.local.steps == (4 if local else 1)
        if local:
            assert one.file.local.rate == settings.learning_rate
        if one.method.name == DDL.name:
            assert (kind.batch_min, kind.batch_max, kind.buffer) == (64, 64, "persistence")
        else:
            assert (kind.batch_min, kind.batch_max, kind.buffer) == (LOW, HIGH, "truncation")
        adaptive = one.method.name == ADAPTIVE.name
        sent = one.file.compression.select, one.file.compression.threshold
        assert sent == ((0.1, 0.3) if adaptive else (1.0, 0.0))
        assert kind.step_ms is not None
        iteration = 1200 if one.part.endswith("CIFAR-10") else 1600
        assert kind.step_ms * one.file.local.steps == iteration


def test_where_noise_limits_the_speed_nobody_waits_and_a_sixteenth_streams_in() -> None:
    rates = {"S2": "uniform(18.75,7)", "S2'": "normal(16,1.75)"}
    for one in experiments.noisy(FOLDER, FULL):
        (kind,) = one.file.devices.values()
        assert kind.rate == rates[one.name.partition(" ")[0]]
        assert one.file.coordination.base_batch == 64
        if one.method.name == DDL.name:
            assert (kind.batch_min, kind.batch_max, kind.buffer) == (4, 4, "persistence")
        else:
            assert (kind.batch_min, kind.batch_max, kind.buffer) == (LOW, HIGH, "truncation")


def test_each_digit_is_in_a_pair_on_either_side(tmp_path: Path) -> None:
    images = np.arange(10, dtype=np.uint8)[:, None, None] * np.ones((28, 28), np.uint8)
    np.savez(tmp_path / "mnist.npz", x_train=images, y_train=np.arange(10))
    pairs = load(PAIRS.data.format(folder=tmp_path), "train")
    assert pairs.x.shape == (10, 1, 28, 56)
    left, right = np.rint(255 * pairs.x[:, 0, 0, 0]), np.rint(255 * pairs.x[:, 0, 0, -1])
    assert sorted(left) == sorted(right) == list(range(10))
    assert np.array_equal(pairs.y, 10 * left + right)
    with pytest.raises(ConfigError, match=r"mnist\.npz.*with --data"):
        load(PAIRS.data.format(folder="nowhere"), "train")


def test_top_5_counts_what_is_among_the_five_highest() -> None:
    outputs = torch.arange(10.0).repeat(2, 1)
    assert top_5(outputs, torch.tensor([5, 4])) == 0.5


def test_what_grows_with_the_batch_takes_as_long_as_before_at_64() -> None:
    for one in experiments.growing(FOLDER, FULL, {}):
        (kind,) = one.file.devices.values()
        assert kind.step_ms is not None
        assert kind.step_ms + 64 * kind.sample_ms == pytest.approx(MNIST.step_ms)
        assert 64 * kind.sample_ms / MNIST.step_ms == pytest.approx(float(one.name.partition(" ")[2]))


def test_the_iterations_of_table_4_follow_from_equation_2() -> None:
    """At the mean rate, the devices' Q_i = (t S - b) T + S, b = S, sum up to what the paper persisted."""
    means = {"S1": 38, "S2": 300, "S1'": 64, "S2'": 256}
    for (streams, model), (persisted, _, _) in BUFFERED.items():
        (task,) = (task for task in TASKS if task.paper == model)
        iterations = experiments.iterations_implied(streams, task)
        rate = means[streams]
        waiting = 16 * ((task.step_ms / 1000 * rate - rate) * iterations + rate)
        assert waiting == pytest.approx(persisted, rel=0.01)


@pytest.mark.slow
def test_table_5_and_figure_9_are_complete() -> None:
    for task in TASKS:
        table = named(one for one in everything(FULL) if one.part == f"compression, {task.name}")
        assert table.keys() == TABLE_5[task.name].keys()
        for name, one in table.items():
            ratio, delta = one.file.compression.select, one.file.compression.threshold
            assert name == f"CR {ratio:g}, delta {delta:g}"
        figure = named(one for one in everything(FULL) if one.part == f"non-IID, {task.name}")
        assert list(figure) == ["IID", "one label", *(f"({a:g}, {b:g})" for a, b in INJECTED)]
        assert [one.file.fleet.labels for one in figure.values()] == [0, 1, 1, 1, 1, 1]
        found = [(one.file.injection.alpha, one.file.injection.beta) for one in figure.values()]
        assert found == [(0, 0), (0, 0), *INJECTED]
        assert all(kind.shares for one in figure.values() for kind in one.file.devices.values())
    assert SPEED_UPS.keys() == {task.paper for task in TASKS}


def test_without_rounds_an_update_counts_by_its_samples_and_staleness() -> None:
    found = named(of_mnist(experiments.asynchronous(FOLDER, FULL, {})))
    free = [one for one in found.values() if one.method.name.startswith("async")]
    assert len(free) == 16
    for one in free:
        settings = one.file.coordination
        assert (settings.mode, settings.rule, settings.base_batch) == ("async", "adacomp", 64)
    for streams in DISTRIBUTIONS:
        slow = [one for name, one in found.items() if name.startswith(streams + " ") and "stragglers" in name]
        assert len(slow) == 4
        assert len({one.file.fleet.seconds for one in slow}) == 1
        for one in slow:
            times = {name: kind.step_ms for name, kind in one.file.devices.items()}
            shares = {name: kind.share for name, kind in one.file.devices.items()}
            assert times == {"fast": 1600, "slow": 6400}
            assert shares == {"fast": 3, "slow": 1}


def test_every_method_has_the_same_grid() -> None:
    tried: dict[tuple[str, str], set[float]] = {}
    for one in experiments.grid(FOLDER, FULL):
        assert one.file.coordination.learning_rate == one.method.rate
        tried.setdefault((one.part, one.name), set()).add(one.method.rate)
    assert set(map(frozenset, tried.values())) == {frozenset(RATES)}
    # What was tried is run again in the part it is for, at the best rate: the same run.
    rates = {(MNIST.name, SCADLES.name, "S1"): 0.8}
    again = named(of_mnist(experiments.speed_up(FOLDER, FULL, rates)))["S1 ScaDLES"]
    grid = [one for one in experiments.grid(FOLDER, FULL) if one.name == "S1 ScaDLES"]
    assert again.part == "speed-up, MNIST"
    assert again.file in [one.file for one in grid if one.method.rate == 0.8]


def test_shared_statistics_normalise_what_comes_after_them() -> None:
    random = torch.Generator().manual_seed(0)
    first, second = (3 + 2 * torch.randn(64, 2, 4, 4, generator=random) for _ in range(2))
    norm = SharedNorm2d(2, momentum=1.0)
    assert torch.equal(norm(first), first / (1 + norm.eps) ** 0.5), "mean 0 and variance 1 at first"
    mean, square = first.mean((0, 2, 3)), first.square().mean((0, 2, 3))
    torch.testing.assert_close(norm.running_mean, mean)
    torch.testing.assert_close(norm.running_var, square, msg="around the mean from before: 0")
    expected = (second - mean[:, None, None]) / (square + norm.eps).sqrt()[:, None, None]
    evaluated = norm.eval()(second)
    torch.testing.assert_close(evaluated, expected)
    torch.testing.assert_close(norm.train()(second), expected)
    third = second.clone().requires_grad_()
    norm(third).sum().backward()
    assert third.grad is not None
    assert third.grad.std((0, 2, 3)).max() < 1e-6, "no gradient flows through statistics"


def test_shared_statistics_take_the_place_of_every_batchnorm() -> None:
    layers = [layer for layer in SvhnShared().modules() if isinstance(layer, torch.nn.BatchNorm2d)]
    assert [type(layer) for layer in layers] == [SharedNorm2d] * 3

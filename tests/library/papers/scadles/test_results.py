"""What runs made by hand come to."""

import pytest

from edgeflock.papers.reproduce import Measured, by_part
from edgeflock.papers.scadles import experiments
from edgeflock.papers.scadles.reproduce import best_rates
from edgeflock.papers.scadles.results import summarise
from edgeflock.papers.scadles.settings import CIFAR, DDL, DISTRIBUTIONS, FULL, MNIST, SCADLES
from edgeflock.results.outcomes import Setting
from tests.library.papers.scadles.runs import ASKED, FOLDER, made, measured, of_mnist


def test_the_speed_up_is_of_the_time_to_the_target() -> None:
    """Conventional: a fifth of the way from second 100 to second 600. ScaDLES: halfway from 20 to 60."""
    target = MNIST.targets[-2]
    below, beyond = target - 0.001, target + 0.004
    runs = {
        "S1 DDL": made((100, below), (600, beyond)),
        "S1 ScaDLES": made((10, 0.5), (20, below), (60, target + 0.001)),
        "S1 ScaDLES, adaptive": made((10, 0.5), (20, below)),
    }
    speed_up = measured(of_mnist(experiments.speed_up(FOLDER, FULL, {})), runs)
    growing = measured(experiments.growing(FOLDER, FULL, {}), {"S1 0.5": made((99, 0), (100, 1))})
    summary = summarise(by_part([*speed_up, *growing]), ASKED)
    assert summary["speed_up"].keys() == {"MNIST"}
    entry = summary["speed_up"]["MNIST"]["S1"]
    assert entry["seconds"] == {
        "DDL": pytest.approx(200),
        "ScaDLES": pytest.approx(40),
        "ScaDLES, adaptive": None,
    }
    assert entry["speed_up"] == {"ScaDLES": pytest.approx(5), "ScaDLES, adaptive": None}
    assert entry["ingress"]["DDL"] == pytest.approx(2000)
    assert entry["egress"] == {
        "DDL": pytest.approx(1000),
        "ScaDLES": pytest.approx(200),
        "ScaDLES, adaptive": None,
    }
    assert entry["dense"]["DDL"] == pytest.approx(4 * 10 * 16 * 200)
    assert entry["dense"]["ScaDLES, adaptive"] is None
    assert entry["learnt"]["ScaDLES, adaptive"] == {
        "accuracy": below,
        "last_accuracy": below,
        "last_five_accuracy": pytest.approx((0.5 + below) / 2),
        "top_5": None,
    }
    assert entry["rounds"]["DDL"] == pytest.approx(200)
    assert entry["slowest_rate"] == 20
    assert entry["target"] == target
    assert entry["speed_up_to"][f"{target:g}"] == entry["speed_up"]
    assert entry["speed_up_to"][f"{MNIST.targets[-1]:g}"] == {"ScaDLES": None, "ScaDLES, adaptive": None}
    assert summary["growing"]["S1 0.5"]["speed_up"] == pytest.approx(200 / (99 + target))


def test_what_streams_that_change_cost() -> None:
    streams = {
        "all-0": {"rate": 60.0, "came": 1000, "drops": 100, "depth": 0, "deepest": 0, "gap": 3.0},
        "all-1": {"rate": 60.0, "came": 1000, "drops": 0, "depth": 0, "deepest": 0, "gap": 1.0},
    }
    run = made((10, 0.5), (20, 0.7), streams=streams, updates=42)
    results = measured(experiments.changing(FOLDER, FULL, {}), {"sine:12..108/60s async": run})
    (entry,) = summarise(by_part(results), ASKED)["changing"].values()
    assert (entry["updates"], entry["samples"], entry["dropped"], entry["gap"]) == (42, 2000, 0.05, 3.0)
    assert entry["seconds"] == FULL.changing
    assert {key: entry[key] for key in learnt(0, 0, 0)} == learnt(0.7, 0.7, 0.6)


def test_accuracy_without_rounds_is_compared_at_one_moment_and_at_one_size() -> None:
    """Rounds end at second 100 with 1,000 bytes up and 500 down, the other at second 80 with twice as many a
    second: there it is at second 50.
    """
    rounds = made((40, 0.6), (60, 0.5), (100, 0.8))
    free = made((20, 0.5), (50, 0.7), (80, 0.9), bytes_a_second=20)
    results = [
        *measured(of_mnist(experiments.speed_up(FOLDER, FULL, {})), {"S1 ScaDLES": rounds}),
        *measured(of_mnist(experiments.asynchronous(FOLDER, FULL, {})), {"S1 async": free}),
    ]
    (entry,) = summarise(by_part(results), ASKED)["asynchronous"]["MNIST"].values()
    assert entry["seconds"]["at"] == 80
    assert entry["seconds"]["rounds"] == learnt(0.6, 0.5, 0.55)
    assert entry["seconds"]["async"] == learnt(0.9, 0.9, 0.7)
    assert entry["traffic"]["at"] == 1500
    assert entry["traffic"]["rounds"] == learnt(0.8, 0.8, 1.9 / 3)
    assert entry["traffic"]["async"] == learnt(0.7, 0.7, 0.6)


def learnt(best: float, last: float, last_five: float) -> dict[str, object]:
    return {
        "accuracy": best,
        "last_accuracy": last,
        "last_five_accuracy": pytest.approx(last_five),
        "top_5": None,
    }


def test_compression_and_injection_are_as_counted() -> None:
    table = of_mnist(experiments.compression(FOLDER, FULL, {}))
    labelled = of_mnist(experiments.non_iid(FOLDER, FULL, {}))
    results = [
        *measured(table, {"CR 0.1, delta 0.2": made((1, 0.7), (2, 0.6))}),
        *measured(labelled, {"(0.5, 0.5)": made((1, 0.7), (2, 0.6))}),
    ]
    summary = summarise(by_part(results), ASKED)
    assert summary["compression"]["MNIST"]["CR 0.1, delta 0.2"] == {
        "cnc": 0.25,
        "floats": 5000,
        "ingress": 20,
        "egress": 10,
        "dense": 4 * 10 * 32,
        **learnt(0.7, 0.6, 0.65),
    }
    assert summary["non_iid"]["MNIST"]["(0.5, 0.5)"] == {
        **learnt(0.7, 0.6, 0.65),
        "kilobytes_a_round": 3 * 40 / 10,
        "bytes_a_round": 80 / 10,
    }


def test_the_best_rate_is_the_one_that_is_there_first_or_came_furthest() -> None:
    best = {(MNIST.name, SCADLES.name, "S1"): 0.8, (MNIST.name, DDL.name, "S1'"): 0.2}
    tried = []
    for one in experiments.grid(FOLDER, FULL):
        streams = one.name.partition(" ")[0]
        rate = best.get((one.part.removeprefix("grid, "), one.method.name, streams), 0.1)
        # Nobody of CIFAR-10's comes so far; the others do, the best ones earlier.
        top = 0.01 if one.part.endswith(CIFAR.name) else 0.99
        run = made((10 if one.method.rate == rate else 50, top + (one.method.rate == rate) / 1000))
        tried.append(Measured(one, Setting(one.name, [run])))
    for order in (tried, tried[::-1]):
        found = best_rates(order)
        assert {key: found[key] for key in best} == best
        assert found[CIFAR.name, SCADLES.name, "S2"] == 0.1
    taken = {one.name: one.method.rate for one in of_mnist(experiments.speed_up(FOLDER, FULL, best))}
    assert {taken[f"{streams} DDL"] for streams in DISTRIBUTIONS} == {0.2}
    assert taken["S1 ScaDLES"] == taken["S1 ScaDLES, adaptive"] == 0.8


def test_small_batches_are_compared_to_every_accuracy_that_both_reached() -> None:
    """Conventional: 35% a quarter of the way from second 20 to second 40. ScaDLES: halfway from 0 to 10."""
    part = [one for one in experiments.noisy(FOLDER, FULL) if one.part == "noisy, ResNetGN"]
    runs = {"S2 DDL": made((20, 0.3), (40, 0.5)), "S2 ScaDLES": made((0, 0.3), (10, 0.4))}
    for number, run in enumerate(runs.values()):
        run.rows[-1]["metrics"] = {"top_5": 0.8 + number / 10}
    found = summarise(by_part(measured(part, runs)), ASKED)["noisy"]["ResNetGN"]
    assert found.keys() == {"S2"}
    assert found["S2"]["speed_up_to"]["0.35"] == pytest.approx(5)
    assert found["S2"]["speed_up_to"]["0.45"] is None
    assert found["S2"]["learnt"]["DDL"] == {**learnt(0.5, 0.5, 0.4), "top_5": 0.8}
    assert found["S2"]["learnt"]["ScaDLES"]["top_5"] == 0.9

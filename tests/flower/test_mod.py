"""The ClientApp mod, alone and beside apps without it."""

from pathlib import Path

import numpy as np
import pytest
from flwr.serverapp.strategy import FedAvg

from edgeflock.server.flower import AsyncAdaComp, ScaDLES
from edgeflock.server.journal.journal import Journal
from tests.flower.apps import MODEL, PLAIN, Numbers, app, numbers, plus, record
from tests.flower.grid import FakeGrid


def test_the_mod_sends_one_blob_of_the_largest_entries(grid: FakeGrid) -> None:
    """c = 0.25 of each tensor, exact values: of 12 weights three move, the others are remembered."""
    steps = np.arange(1, 13, dtype=np.float32).reshape(3, 4)

    def train(model: dict[str, Numbers]) -> dict[str, Numbers]:
        return {"w": model["w"] + steps}

    grid.add(1, app(train, mod=True))
    strategy = AsyncAdaComp(
        select=0.25,
        feedback=1.0,
        values="f32",
        updates_per_round=1,
        min_available_nodes=1,
        fraction_evaluate=0.0,
    )
    start = {"w": np.zeros((3, 4), np.float32)}
    after = {n: numbers(strategy.start(grid, record(start), n).arrays)["w"].ravel().tolist() for n in (1,)}
    assert after[1] == [0, 0, 0, 0, 0, 0, 0, 0, 0, 10, 11, 12]
    after[2] = numbers(strategy.start(grid, record(start), 2).arrays)["w"].ravel().tolist()
    assert after[2] == [0, 0, 0, 0, 0, 0, 14, 16, 18, 10, 11, 12], "twice what the first update left out"


def test_what_a_lost_reply_held_is_sent_again(grid: FakeGrid) -> None:
    """The node learns from the next message's sequence number that its update never counted."""
    steps = np.array([3, 1], np.float32)
    grid.add(1, app(lambda model: {"w": model["w"] + steps}, mod=True), seconds=3)
    grid.clock.at(2.0, lambda: setattr(grid.nodes[1], "seconds", 1.0))
    strategy = AsyncAdaComp(
        select=0.5,
        feedback=1.0,
        values="f32",
        updates_per_round=1,
        min_available_nodes=1,
        fraction_evaluate=0.0,
    )
    result = strategy.start(grid, record({"w": np.zeros(2, np.float32)}), num_rounds=1, timeout=2.5)
    assert strategy.outcomes == {"timed-out": 1, "applied": 1}
    assert numbers(result.arrays)["w"].tolist() == [6, 0], "the lost 3 and another one"


@pytest.mark.parametrize("huge", [1e30, 1e19, 1e6], ids=str)
@pytest.mark.parametrize("options", [{}, {"threshold": 0.5}, {"values": "f32"}], ids=str)
@pytest.mark.parametrize("kind", [AsyncAdaComp, ScaDLES])
def test_what_was_refused_for_its_size_is_not_sent_again(
    grid: FakeGrid, kind: type[AsyncAdaComp] | type[ScaDLES], options: dict[str, object], huge: float
) -> None:
    """Once in ten updates training goes astray by far more than any parameter may be."""
    calls = 0

    def train(model: dict[str, Numbers]) -> dict[str, Numbers]:
        nonlocal calls
        calls += 1
        return {"w": model["w"] + np.float32(huge if calls == 3 else 0.01)}

    grid.add(1, app(train, mod=True))
    strategy = kind(select=0.2, min_available_nodes=1, fraction_evaluate=0.0, **options)  # type: ignore[arg-type]
    result = strategy.start(grid, record({"w": np.zeros(20, np.float32)}), num_rounds=10)
    assert strategy.outcomes == {"applied": 10, "step-too-large": 1}
    assert 0 < numbers(result.arrays)["w"].max() < 0.5


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"select": 1.0, "values": "f16"},
        {"select": 0.3, "indices": "grid", "values": "scale"},
        {"select": 0.3, "values": "sign", "threshold": 0.5},
        {"select": 0.3, "values": "int8", "balance": 0.5, "feedback": 0.9},
    ],
)
@pytest.mark.parametrize("kind", [AsyncAdaComp, ScaDLES])
def test_fleets_of_both_kinds_learn_together(
    grid: FakeGrid, kind: type[AsyncAdaComp] | type[ScaDLES], options: dict[str, object]
) -> None:
    """All nodes pull towards the same weights; every second one has the mod."""
    goal = {name: np.random.default_rng(3).standard_normal(a.shape) for name, a in MODEL.items()}

    def train(model: dict[str, Numbers]) -> dict[str, Numbers]:
        return {
            n: (a + 0.3 * (goal[n] - a)).astype(a.dtype) if a.dtype.kind == "f" else a
            for n, a in model.items()
        }

    for node in range(1, 5):
        grid.add(node, app(train, mod=node % 2 == 0), seconds=node)
    strategy = kind(fraction_evaluate=0.0, **options)  # type: ignore[arg-type]
    result = strategy.start(grid, record(MODEL), num_rounds=60)
    assert set(strategy.outcomes) == {"applied"}
    for name in ("layer.weight", "layer.bias", "head.weight"):
        np.testing.assert_allclose(numbers(result.arrays)[name], goal[name], atol=0.02)


def test_a_reply_by_the_mod_takes_a_fraction_of_the_bytes(grid: FakeGrid, tmp_path: Path) -> None:
    """c = .01 of 20,000 numbers: 200 entries at 8 bits of index and 4 of value are 300 bytes."""
    rng = np.random.default_rng(0)

    def train(model: dict[str, Numbers]) -> dict[str, Numbers]:
        return {"w": model["w"] + rng.standard_normal(20_000).astype(np.float32)}

    grid.add(1, app(train))
    grid.add(2, app(train, mod=True))
    strategy = ScaDLES(checkpoint=tmp_path, select=0.01, fraction_evaluate=0.0)
    strategy.start(grid, record({"w": np.zeros(20_000, np.float32)}), num_rounds=3)
    journal = Journal(tmp_path / "journal.sqlite")
    ingress = {account.name: account.ingress / 3 for account in journal.accounts()}
    journal.close()
    assert 80_000 < ingress["1"] < 80_300
    assert ingress["2"] < 500


def test_the_mod_leaves_other_strategies_alone(grid: FakeGrid) -> None:
    grid.add(1, app(plus(1), mod=True))
    grid.add(2, app(plus(1), mod=True))
    result = FedAvg().start(grid, record(PLAIN), num_rounds=2)
    np.testing.assert_array_equal(numbers(result.arrays)["w"], 2)

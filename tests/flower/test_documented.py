"""docs/flower.md knows every option, with the default that it has."""

import inspect
import re
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from edgeflock.server.descent import KINDS
from edgeflock.server.flower import AsyncAdaComp, ScaDLES
from edgeflock.server.flower.options import FEDAVG, StrategySettings
from tests.flower.apps import Numbers, app, numbers, record
from tests.flower.grid import FakeGrid

PAGE = (Path(__file__).parents[2] / "docs" / "flower.md").read_text("utf-8")

_WORDS = {"none": "", "no": "False", "`{}`": "{}", "2^32": str(1 << 32)}


def options() -> dict[str, object]:
    """Each option that is not FedAvg's -> its default."""
    known = {field.name: field.default for field in fields(StrategySettings) if field.name not in FEDAVG}
    known["optimizer"] = {}
    for kind in (AsyncAdaComp, ScaDLES):
        named = inspect.signature(kind.__init__).parameters.values()
        known |= {one.name: one.default for one in named if one.kind is inspect.Parameter.KEYWORD_ONLY}
    return known


def documented() -> dict[str, str]:
    """Option -> its default, by the table of options."""
    (table,) = re.findall(r"\| option \| default \|.*?\n\n", PAGE, re.DOTALL)
    found: dict[str, str] = {}
    for row in table.strip().splitlines()[2:]:
        names, defaults = (re.sub(r"^of `\w+`: ", "", cell.strip()) for cell in row.split("|")[1:3])
        found |= zip(re.findall(r"`(\w+)`", names), defaults.split(", "), strict=False)
    return found


@pytest.mark.parametrize(("name", "default"), options().items(), ids=str)
def test_an_option_is_documented_with_its_default(name: str, default: object) -> None:
    text = documented()[name]
    text = _WORDS.get(text, text.strip("`"))
    if name == "statistics":
        assert isinstance(default, tuple)
        assert all(f"`{part}`" in PAGE for part in default)
    elif isinstance(default, int | float) and not isinstance(default, bool):
        assert float(text) == default
    else:
        assert text == str(default)


def test_no_option_is_documented_that_is_none() -> None:
    assert documented().keys() <= options().keys()


OPTIMIZERS: list[dict[str, object]] = [
    *({"optimizer": {"kind": kind}, "learning_rate": 0.1} for kind in KINDS),
    {"optimizer": {"kind": "adamw", "weight_decay": 1e-4, "clip": 1.0}, "learning_rate": 0.1},
    {"optimizer": {"schedule": "cosine", "period": 400}},
    {"optimizer": {"warmup": 20}},
    {"average": 8.0},
    {"defence": "clip"},
    {"base_batch": 20},
]


@pytest.mark.parametrize("given", [*OPTIMIZERS, {"aggregate": "median"}, {"quorum": 3}], ids=str)
def test_rounds_learn_by_every_option(grid: FakeGrid, given: dict[str, object]) -> None:
    _learns(grid, ScaDLES(fraction_evaluate=0.0, poll=1.0, **given))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "given",
    [
        *OPTIMIZERS,
        {"rule": "tau"},
        {"rule": "sqrt"},
        {"rule": "none"},
        {"buffer": 4, "rule": "sqrt"},
        {"buffer": 3},
        {"buffer": 4, "optimizer": {"kind": "adam"}, "learning_rate": 0.1},
    ],
    ids=str,
)
def test_nodes_that_never_wait_learn_by_every_option(grid: FakeGrid, given: dict[str, object]) -> None:
    _learns(grid, AsyncAdaComp(fraction_evaluate=0.0, poll=1.0, **given))  # type: ignore[arg-type]


def _learns(grid: FakeGrid, strategy: AsyncAdaComp | ScaDLES) -> None:
    """Four nodes of different speed pull from 0 towards 1: most of the way, and never far beyond."""

    def train(model: dict[str, Numbers]) -> dict[str, Numbers]:
        return {"w": model["w"] + 0.3 * (1 - model["w"])}

    for node in range(1, 5):
        grid.add(node, app(train), seconds=node)
    result = strategy.start(grid, record({"w": np.zeros(6, np.float32)}), num_rounds=60)
    assert set(strategy.outcomes) <= {"applied", "base-expired"}
    assert abs(numbers(result.arrays)["w"] - 1).max() < 0.25

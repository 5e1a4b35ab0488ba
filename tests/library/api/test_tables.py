"""A table of numbers to predict, from Python: it learns at the default rate, whoever trains."""

import asyncio
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

import edgeflock as ef
from tests.server.hosting.test_described import MODULE

pytestmark = pytest.mark.usefixtures("exports_in_this_process")

MEAN, SLOPE = 5000.0, 300.0


def table(path: Path, seed: int, column: bool = False) -> str:
    """watts = 5000 + 300 (warm - 20), and 600 more where mode is on; some cells are missing."""
    random = np.random.default_rng(seed)
    lines = ["warm,mode,watts"] if column else ["warm,watts"]
    for row in range(400):
        warm, on = random.normal(20, 2), bool(random.integers(2))
        watts = MEAN + SLOPE * (warm - 20) + 600 * (on and column)
        cells = [
            "" if row % 50 == 7 else f"{warm:.4f}",
            *(["on" if on else "off"] if column else []),
            f"{watts:.3f}",
        ]
        lines.append(",".join(cells))
    path.write_text("\n".join(lines) + "\n")
    return f"csv:{path}?label=watts"


def Two() -> nn.Module:
    """One number and two categories in."""
    return nn.Sequential(nn.Linear(3, 1), nn.Flatten(0))


def settings(tmp_path: Path) -> dict[str, Any]:
    return {
        "directory": tmp_path / "run",
        "updates": 200,
        "open": True,
        "metrics": ["mae", "rmse"],
        "compression": {"select": 1.0},
        "coordination": {"learning_rate": 0.05},
    }


async def trained(tmp_path: Path, module: str, held_out: str, mine: str, **client: Any) -> ef.Result:
    async with ef.Server(ef.Model(module, loss="mse"), evaluate=held_out, **settings(tmp_path)) as server:
        device = ef.Client(server.url, data=mine, health=False, **client)
        async with asyncio.TaskGroup() as group:
            group.create_task(device.run())
            return await server.until()


@pytest.mark.slow
@pytest.mark.parametrize(("backend", "stream"), [("onnx", True), ("torch", False)])
def test_a_regression_learns_at_the_default_rate(tmp_path: Path, backend: str, stream: bool) -> None:
    held_out, mine = table(tmp_path / "held_out.csv", 0), table(tmp_path / "mine.csv", 1)
    client: dict[str, Any] = {"backend": backend, **({"model": MODULE} if backend == "torch" else {})}
    if stream:
        mine = f"synthetic:{mine}&rate=50000"
    result = asyncio.run(trained(tmp_path, MODULE, held_out, mine, **client))
    metrics = result.evaluations[-1].metrics
    # Always the mean: a deviation, 600. What is missing costs a deviation in two rows of a hundred.
    assert (metrics["mae"] or 600) < 60, metrics
    predicted = result.predict(held_out)
    assert abs(predicted.mean() - MEAN) < 60, "in the units of the table"


@pytest.mark.slow
def test_categories_are_learnt(tmp_path: Path) -> None:
    held_out, mine = table(tmp_path / "a.csv", 0, column=True), table(tmp_path / "b.csv", 1, column=True)
    result = asyncio.run(
        trained(tmp_path, "tests.library.api.test_tables:Two", held_out, mine, backend="onnx")
    )
    assert (result.evaluations[-1].metrics["mae"] or 600) < 80


def test_who_trains_on_what_is_held_out_is_told_at_both_ends(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    held_out = table(tmp_path / "held_out.csv", 0)
    found: list[str] = []

    async def run() -> None:
        named = {**settings(tmp_path), "updates": 0}
        async with ef.Server(
            ef.Model(MODULE, loss="mse"),
            evaluate=held_out,
            on_finding=lambda one: found.append(one.text),
            **named,
        ) as server:
            client = ef.Client(server.url, data=held_out, backend="torch", model=MODULE)
            device = asyncio.create_task(client.run())
            while not found:
                await asyncio.sleep(0.01)
            device.cancel()
            await asyncio.wait([device])

    asyncio.run(run())
    assert "about 400 of its rows are the server's held-out ones" in caplog.text
    assert found == ["it trains on about 400 held-out rows, so evaluations are too good"]


def test_a_fleet_learns_a_regression_and_says_if_it_trains_on_what_is_held_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    held_out, mine = table(tmp_path / "held_out.csv", 0), table(tmp_path / "mine.csv", 1)
    named = {name: value for name, value in settings(tmp_path).items() if name not in ("directory", "open")}
    fleet = ef.Fleet(ef.Model(MODULE, loss="mse"), data=mine, devices=4, evaluate=held_out, **named)
    assert (fleet.run().evaluations[-1].metrics["mae"] or 600) < 80
    assert "held" not in caplog.text.replace("held_out.csv", "")
    ef.Fleet(ef.Model(MODULE, loss="mse"), data=held_out, devices=4, evaluate=held_out, **named)
    assert "about 400 of the 400 rows that the model is evaluated on" in caplog.text

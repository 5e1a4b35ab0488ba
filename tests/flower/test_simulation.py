"""Flower's simulation: nodes as Ray tasks. Runs where the extra `simulation` is installed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
from flwr.app import MetricRecord
from flwr.serverapp import ServerApp
from flwr.simulation import run_simulation
from edgeflock.server.flower import AsyncAdaComp
from tests.flower.apps import PLAIN, app, numbers, plus, record

server = ServerApp()

@server.main()
def main(grid, context):
    strategy = AsyncAdaComp(min_available_nodes=3, rule="none", updates_per_round=2)
    result = strategy.start(grid, record(PLAIN), num_rounds=3)
    print("outcomes", dict(strategy.outcomes))
    print("model", numbers(result.arrays)["w"].tolist())
    print("evaluated", sorted(result.evaluate_metrics_clientapp))

run_simulation(server, app(plus(1)), num_supernodes=3, backend_config={"client_resources": {"num_cpus": 1}})
"""


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_simulated_fleet_trains(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="Ray is not installed (extra simulation)")
    root = str(Path(__file__).parents[2])
    environment = os.environ | {
        "FLWR_HOME": str(tmp_path),
        "FLWR_TELEMETRY_ENABLED": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")]),
    }
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    lines = [line for line in done.stdout.splitlines() if line.startswith(("outcomes", "model", "evaluated"))]
    outcomes, model, evaluated = lines
    assert outcomes == "outcomes {'applied': 6}"
    assert json.loads(model.removeprefix("model ")) == pytest.approx([6 / 3] * 4), "a third of each reply"
    assert evaluated == "evaluated [1, 2, 3]"

"""A ServerApp that notes when each round was over, and how good the model was then."""

import json
import time

from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from edgeflock.server.flower import AsyncAdaComp, ScaDLES
from flower_bench.jobs import JOBS

app = ServerApp()


class _Reached(Exception):
    """There is no more to measure."""


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train until the rounds are over or the target accuracy is reached."""
    config = context.run_config
    arrays, _, accuracy = JOBS[str(config["job"])]
    while len(nodes := list(grid.get_node_ids())) < int(config["nodes"]):
        time.sleep(0.5)
    start = time.monotonic()

    def evaluate(server_round: int, record: ArrayRecord) -> MetricRecord:
        reached = accuracy(record.to_numpy_ndarrays())
        note = {"round": server_round, "seconds": time.monotonic() - start, "accuracy": reached}
        with open(str(config["report"]), "a") as report:
            report.write(json.dumps(note) + "\n")
        if reached >= float(config["target"]):
            raise _Reached
        return MetricRecord({"accuracy": reached})

    strategy: AsyncAdaComp | ScaDLES | FedAvg
    if config["strategy"] == "FedAvg":
        strategy = FedAvg(fraction_evaluate=0.0, min_train_nodes=len(nodes), min_available_nodes=len(nodes))
    else:
        strategy = AsyncAdaComp(
            fraction_evaluate=0.0,
            min_available_nodes=len(nodes),
            select=float(config["select"]),
            updates_per_round=int(config["updates-per-round"]),
        )
    strategy.start(grid, ArrayRecord(arrays()), int(config["rounds"]), evaluate_fn=evaluate)

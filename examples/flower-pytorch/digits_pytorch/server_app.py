"""A Flower ServerApp: with `FedAvg(fraction_evaluate=...)` as its strategy it would be plain Flower."""

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp

from digits_pytorch.task import Net, load_data
from digits_pytorch.task import test as test_fn
from edgeflock.server.flower import AsyncAdaComp

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train until the rounds of the run config are over."""
    torch.manual_seed(0)
    loader = load_data(test=True)

    def global_evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        model = Net()
        model.load_state_dict(arrays.to_torch_state_dict())
        loss, accuracy = test_fn(model, loader)
        return MetricRecord({"loss": loss, "accuracy": accuracy})

    strategy = AsyncAdaComp(
        checkpoint=context.run_config["checkpoint"],
        fraction_evaluate=context.run_config["fraction-evaluate"],
    )
    strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(Net().state_dict()),
        num_rounds=context.run_config["num-server-rounds"],
        train_config=ConfigRecord({"lr": context.run_config["learning-rate"]}),
        evaluate_fn=global_evaluate,
    )

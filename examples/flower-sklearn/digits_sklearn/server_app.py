"""A Flower ServerApp: with `FedAvg(` in place of `AsyncAdaComp(` it would be plain Flower."""

from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp

from digits_sklearn.task import get_arrays, load_data
from digits_sklearn.task import test as test_fn
from edgeflock.server.flower import AsyncAdaComp

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train until the rounds of the run config are over."""
    x, y = load_data(test=True)

    def global_evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        loss, accuracy = test_fn(arrays.to_numpy_ndarrays(), x, y)
        return MetricRecord({"loss": loss, "accuracy": accuracy})

    strategy = AsyncAdaComp(checkpoint=context.run_config["checkpoint"], fraction_evaluate=0.0)
    strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(get_arrays()),
        num_rounds=context.run_config["num-server-rounds"],
        evaluate_fn=global_evaluate,
    )

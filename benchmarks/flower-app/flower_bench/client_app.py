"""A ClientApp; the mod is put in its way if the run asks for it."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from flower_bench.jobs import JOBS

app = ClientApp()


def _step(message: Message, context: Context) -> Message:
    model = message.content["arrays"].to_numpy_ndarrays()
    _, step, _ = JOBS[str(context.run_config["job"])]
    node = context.node_config
    samples = step(
        model, int(node["partition-id"]), int(node["num-partitions"]), float(node.get("seconds", 0))
    )
    metrics = MetricRecord({"num-examples": samples})
    return Message(RecordDict({"arrays": ArrayRecord(model), "metrics": metrics}), reply_to=message)


@app.train()
def train(message: Message, context: Context) -> Message:
    """One step of the job."""
    if not context.run_config["mod"]:
        return _step(message, context)
    from edgeflock.client.flower import compress

    return compress(message, context, _step)

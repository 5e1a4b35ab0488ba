"""A Flower ClientApp: nothing in it knows of Edgeflock."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from digits_numpy.task import load_data
from digits_numpy.task import test as test_fn
from digits_numpy.task import train as train_fn

app = ClientApp()


@app.train()
def train(msg: Message, context: Context) -> Message:
    """Train the model on local data."""
    model = msg.content["arrays"].to_numpy_ndarrays()
    x, y = load_data(context.node_config["partition-id"], context.node_config["num-partitions"])
    loss = train_fn(model, x, y, context.run_config["local-epochs"], context.run_config["learning-rate"])
    metrics = {"train_loss": loss, "num-examples": len(x)}
    content = RecordDict({"arrays": ArrayRecord(model), "metrics": MetricRecord(metrics)})
    return Message(content=content, reply_to=msg)


@app.evaluate()
def evaluate(msg: Message, context: Context) -> Message:
    """Evaluate the model on local data."""
    model = msg.content["arrays"].to_numpy_ndarrays()
    x, y = load_data(context.node_config["partition-id"], context.node_config["num-partitions"])
    loss, accuracy = test_fn(model, x, y)
    metrics = {"eval_loss": loss, "eval_acc": accuracy, "num-examples": len(x)}
    return Message(content=RecordDict({"metrics": MetricRecord(metrics)}), reply_to=msg)

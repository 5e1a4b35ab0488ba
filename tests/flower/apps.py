"""ClientApps as anybody would write them, and models for them."""

from collections.abc import Callable
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from numpy.typing import NDArray

from edgeflock.client.flower import compress

Numbers = NDArray[Any]
Change = Callable[[dict[str, Numbers]], dict[str, Numbers]]

MODEL: dict[str, Numbers] = {
    "layer.weight": np.arange(12, dtype=np.float32).reshape(3, 4),
    "norm.running_mean": np.zeros(3, np.float32),
    "norm.num_batches_tracked": np.array(5),
    "layer.bias": np.array(0.5, np.float64),
    "head.weight": np.ones(8, np.float16),
}
"""Arrays of all kinds, running statistics in the middle."""

PLAIN: dict[str, Numbers] = {"w": np.zeros(4, np.float32), "b": np.zeros((2, 1), np.float32)}


def record(model: dict[str, Numbers]) -> ArrayRecord:
    return ArrayRecord({name: Array(np.asarray(array)) for name, array in model.items()})


def numbers(arrays: ArrayRecord) -> dict[str, Numbers]:
    return {name: array.numpy() for name, array in arrays.items()}


def app(change: Change, examples: float = 10, *, mod: bool = False) -> ClientApp:
    """A ClientApp as anybody would write it, for which training is `change`."""
    client = ClientApp(mods=[compress] if mod else [])

    @client.train()
    def train(message: Message, context: Context) -> Message:
        model = change(numbers(message.content.array_records["arrays"]))
        metrics = MetricRecord({"train_loss": 2.0 * examples, "num-examples": examples})
        return Message(RecordDict({"arrays": record(model), "metrics": metrics}), reply_to=message)

    @client.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        total = sum(
            float(a.astype(float).sum()) for a in numbers(message.content.array_records["arrays"]).values()
        )
        metrics = MetricRecord({"total": total, "num-examples": examples})
        return Message(RecordDict({"metrics": metrics}), reply_to=message)

    return client


def plus(step: float) -> Change:
    """Training that adds `step` to every trained number."""
    return lambda model: {
        name: array + array.dtype.type(step) if array.dtype.kind == "f" else array + 1
        for name, array in model.items()
    }

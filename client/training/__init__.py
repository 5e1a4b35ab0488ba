"""Training on a device: `Trainer` turns a model into the next update, `Worker` asks, trains and pushes.

Pure but for worker.py's loop: no sockets (client/transport is the worker's server, or an emulated link).
What is sent of a gradient is selector.py's, how it is coded encoding.py's. Imports data and backends.
"""

from edgeflock.client.training.encoding import LocalSteps
from edgeflock.client.training.seams import WorkerProgress
from edgeflock.client.training.trainer import Trainer
from edgeflock.client.training.worker import Worker

__all__ = ["LocalSteps", "WorkerProgress", "Trainer", "Worker"]

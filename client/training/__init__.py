"""Training on a device: `Trainer` turns a model into the next update, `Worker` asks, trains and pushes.

Only worker.py, tasks.py, elastic.py and attempts.py wait, for client/transport or an emulated link.
selector.py selects the entries to send and codes them. Imports data and backends.
"""

from edgeflock.client.training.interfaces import WorkerProgress
from edgeflock.client.training.selector import LocalSteps
from edgeflock.client.training.trainer import Trainer
from edgeflock.client.training.worker import Worker

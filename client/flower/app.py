"""An unmodified ClientApp as a device's backend: called in this process, with its own data.

Flower starts a process for each message. Here the app stays loaded and gets the model in a Message as from
FedAvg. The update's gradient is the arrays sent minus the arrays returned. Its number of samples is the
metric `num-examples`.
"""

import hashlib
import logging
import math
import tomllib
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MessageType, RecordDict
from numpy.typing import NDArray

from edgeflock.client.data.batcher import Batch, Batches
from edgeflock.client.flower import inside
from edgeflock.client.training.interfaces import as_server_fault
from edgeflock.shared.errors import ConfigError, Malformed, Refused, TrainingFailed
from edgeflock.shared.files import write_atomically
from edgeflock.shared.model.gradient import Gradient
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.protocol.app import App, Arrays, decode, loss_of, samples_of
from edgeflock.shared.protocol.messages import Facts, Welcome

log = logging.getLogger(__name__)

_NOTHING: Batch = (np.zeros(0, np.float32), np.zeros(0, np.float32))
"""The batch for an app: it is empty, since the app has its own data."""

_WEIGHT = "num-examples"
"""The metric with the number of samples of a reply."""

_MAX_FACTS, _MAX_NAME = 8, 80
"""Limits of the metrics of each kind shown to operators: their number, and the length of a name."""


class FlowerApp(Batches):
    """A Backend and its Batches in one object: the app has its own data. Call join() with a Welcome first."""

    def __init__(self, folder: str, node_config: str, device: str, directory: Path) -> None:
        """Load the ClientApp in `folder`; `directory` stores its Context.state. Raises ConfigError."""
        self._folder = Path(folder).absolute()
        digest = hashlib.sha256(f"{device} {self._folder}".encode()).hexdigest()
        self._path = directory / f"flower-{digest[:32]}"
        self._run_config, reference = _read_project(self._folder)
        try:
            self._node_config = inside.parse_pairs(node_config)
        except ConfigError as error:
            raise ConfigError(f"client.node_config = {node_config!r}: {error}") from error
        try:
            self._app = inside.load(reference, self._folder)
        except ConfigError as error:
            raise ConfigError(f"client.flower_app = {folder!r}: {error}") from error
        except Exception as error:  # its module may raise anything
            log.exception("the app in %s cannot be loaded", folder)
            raise ConfigError(
                f"client.flower_app = {folder!r}: {reference} cannot be loaded: "
                f"{type(error).__name__}: {error}"
            ) from error
        if not inside.handles(self._app, MessageType.TRAIN):
            raise ConfigError(f"client.flower_app = {folder!r}: {reference} has no @app.train()")
        self._node = _number(device)
        self._facts: Facts = {}
        self._state = b""

    @property
    def layout(self) -> Layout:
        return self._record.arrays.layout

    def join(self, welcome: Welcome) -> None:
        """Join this run. Raises ConfigError if apps do not support it, ServerAtFault if it is invalid."""
        if welcome.elastic or welcome.local_steps > 1:
            steps = f"local.steps = {welcome.local_steps}"
            setting = "coordination.mode = 'elastic'" if welcome.elastic else steps
            raise ConfigError(
                f"the server's {setting} is of single gradients, and a Flower app trains as long as it does: "
                "leave it out on the server"
            )
        layout = Layout.from_shapes(welcome.layout)  # type: ignore[arg-type]  # the link has looked at it
        with as_server_fault("message to Flower apps"):
            self._record = (
                decode(welcome.app, layout) if welcome.app else App({}, 0, Arrays.from_layout(layout))
            )
        if self._record.evaluate and not inside.handles(self._app, MessageType.EVALUATE):
            log.warning("evaluation.on_devices: the app in %s has no @app.evaluate()", self._folder)
        self._run, self._sequence = welcome.run, welcome.sequence
        state = self._load_state(welcome.run)
        self._state = inside.encode(state)
        run = _number(welcome.run)
        self._context = Context(run, self._node, self._node_config, state, self._run_config)

    def gradient(
        self, theta: NDArray[np.float32], x: NDArray[np.float32], y: NDArray[np.generic]
    ) -> Gradient:
        """Return theta minus the app's result; x and y are ignored.

        Raises TrainingFailed if the app raises an exception or its reply is invalid.
        """
        number = self._sequence + 1
        parts = self._record.arrays.split(theta)
        every = self._record.evaluate
        if every and number % every == 0 and inside.handles(self._app, MessageType.EVALUATE):
            self._store_metrics("eval", self._call(MessageType.EVALUATE, parts, number))
        reply = self._call(MessageType.TRAIN, parts, number)
        metrics = list(reply.metric_records.values())
        try:
            if len(reply.array_records) != 1:
                raise Malformed(f"it has {len(reply.array_records)} ArrayRecords instead of one")
            (record,) = reply.array_records.values()
            returned = self._record.arrays.flatten({name: array.numpy() for name, array in record.items()})
            samples = samples_of(metrics, _WEIGHT)
        except (Refused, TypeError, ValueError) as error:
            raise TrainingFailed(
                f"the ClientApp in {self._folder} returned an invalid reply: {error}"
            ) from error
        self._sequence = number
        self._store_metrics("train", reply)
        sent, parameters = self._record.arrays.flatten(parts), self.layout.parameters.size
        gradient = sent[:parameters] - returned[:parameters]
        return Gradient(loss_of(metrics), gradient, returned[parameters:], samples=samples)

    def take(self, size: int) -> Batch:
        return _NOTHING

    def telemetry(self) -> Facts:
        """The metrics of its last replies, as train.NAME and eval.NAME."""
        return self._facts

    def _call(self, kind: str, parts: dict[str, NDArray[np.generic]], number: int) -> RecordDict:
        """Return the app's answer to a message of this type, for the update of this number."""
        config = ConfigRecord({**self._record.config, "server-round": number})
        arrays = ArrayRecord({name: Array(array) for name, array in parts.items()})
        content = RecordDict({"arrays": arrays, "config": config})
        identifier = f"{self._run}-{number}-{kind}"
        group = str(number)
        question = inside.message(content, kind, self._context.run_id, self._node, identifier, group)
        try:
            reply: Message = self._app(question, self._context)
        except Exception as error:  # it may raise anything
            log.exception("the ClientApp in %s failed", self._folder)
            raise TrainingFailed(
                f"the ClientApp in {self._folder} raised {type(error).__name__}: {error}"
            ) from error
        if not reply.has_content():
            raise TrainingFailed(
                f"the ClientApp in {self._folder} answered with an error: {reply.error.reason}"
            )
        self._save_state()
        return reply.content

    def _store_metrics(self, kind: str, reply: RecordDict) -> None:
        numbers = {
            name: value
            for record in reply.metric_records.values()
            for name, value in record.items()
            if isinstance(value, int | float) and math.isfinite(value) and len(name) <= _MAX_NAME
        }
        others = {name: value for name, value in self._facts.items() if not name.startswith(f"{kind}.")}
        names = sorted(numbers, key=lambda name: (name != _WEIGHT, name))[:_MAX_FACTS]
        self._facts = {**others, **{f"{kind}.{name}": numbers[name] for name in names}}

    def _save_state(self) -> None:
        """Store the app's context state for the next start, if it has changed."""
        state = inside.encode(self._context.state)
        if state == self._state:
            return
        self._state = state
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self._path, msgpack.packb([self._run, state]), 0o666, durable=False)
        except OSError as error:
            raise ConfigError(
                f"client.directory = {str(self._path.parent)!r} cannot keep the app's state: {error}"
            ) from error

    def _load_state(self, run: str) -> RecordDict:
        try:
            run_id, octets = msgpack.unpackb(self._path.read_bytes())
            return inside.decode(octets) if run_id == run else RecordDict()
        except FileNotFoundError:
            return RecordDict()
        except (OSError, ValueError, TypeError) as error:
            log.warning("%s does not hold the app's state, which starts empty: %s", self._path, error)
            return RecordDict()


def _number(name: str) -> int:
    """Return the number that stands for a name in Flower."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:7])


def _read_project(folder: Path) -> tuple[dict[str, Any], str]:
    """(run_config, module:attribute of the ClientApp) of the app in `folder`. Raises ConfigError."""
    name = f"client.flower_app = {str(folder)!r}"
    try:
        project = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{name}: its pyproject.toml cannot be read: {error}") from error
    try:
        app = project["tool"]["flwr"]["app"]
        return inside.flatten(app.get("config", {})), str(app["components"]["clientapp"])
    except (KeyError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"{name}: its pyproject.toml names no tool.flwr.app.components.clientapp"
        ) from error
    except ValueError as error:
        raise ConfigError(f"{name}: tool.flwr.app.config: {error}") from error

"""Conversion between Flower's records and Edgeflock's: a model as an ArrayRecord, a reply as an Update."""

import math
from base64 import b64encode
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MessageType, RecordDict
from numpy.typing import NDArray

from edgeflock.server.engine.admission import EXPANSION_PER_ENTRY, admit, check_statistics
from edgeflock.server.flower.nodes import SentModel
from edgeflock.shared.codecs import sparse, values
from edgeflock.shared.errors import (
    BadSequence,
    BadStatistics,
    ConfigError,
    LayoutMismatch,
    Malformed,
    NonFinite,
)
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.protocol import wire
from edgeflock.shared.protocol.app import (
    CONFIG_KEY,
    REFUSED_KEY,
    REMAINS,
    STYPE,
    flatten,
    layout_of,
    loss_of,
    samples_of,
)
from edgeflock.shared.protocol.messages import Update, Welcome


class Template:
    """The arrays of a model as its users know them: names, order, shapes and types.

    Floating-point arrays are trained, in float32, and sent in their own type. All others (BatchNorm's
    num_batches_tracked) are sent as they were at first, and the replies' values for them are ignored.
    """

    def __init__(self, arrays: ArrayRecord, statistics: Iterable[str], *, follow: bool) -> None:
        """`statistics` are the last parts of the names of running statistics.

        With `follow` they follow what nodes report; otherwise they are averaged like parameters, and only the
        mod sends them as statistics.

        Raises ConfigError if an array can be neither trained nor kept.
        """
        self._arrays = dict(arrays)
        contents = {name: array.numpy() for name, array in arrays.items()}
        for name, content in contents.items():
            if content.dtype.kind not in "fiub":
                raise ConfigError(f"initial_arrays[{name!r}] is of type {content.dtype}; use float32")
        trained = {name: content for name, content in contents.items() if content.dtype.kind == "f"}
        self._types = {name: content.dtype for name, content in trained.items()}
        shapes = [(name, content.shape) for name, content in trained.items()]
        self.sent_layout = layout_of(shapes, statistics, remains=follow)
        """The mod's layout."""
        tensors = self.sent_layout.tensors
        self.layout = self.sent_layout if follow else Layout.from_shapes((t.name, t.shape) for t in tensors)
        """The engine's layout: the same numbers in the same places."""
        self.theta = flatten(trained, self.layout)
        """The arrays' own numbers: float32 [P + B]."""
        if self.layout.buffers:
            self.theta[-1] = 1  # REMAINS
        self.statistics = self.theta[self.layout.parameters.size :]
        """The first values of the running statistics, if they follow the nodes, and 1: float32 [B]."""
        if not np.isfinite(self.theta).all():
            raise ConfigError("initial_arrays hold NaN or infinity")

    def record(self, theta: NDArray[np.float32]) -> ArrayRecord:
        """Return theta in the arrays' order and types."""
        theta = self._without_initial(theta)
        parts = {t.name: theta[t.start : t.stop].reshape(t.shape) for t in self.layout.tensors}
        return ArrayRecord(
            {
                name: Array(np.asarray(parts[name], self._types[name])) if name in parts else array
                for name, array in self._arrays.items()
            }
        )

    def _without_initial(self, theta: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return theta with (b - c b_0) / (1 - c) for its running statistics b, where c is REMAINS.

        The engine moves b towards the nodes' by a tenth at most, as if they were of one batch. A Flower node
        reports the result of many batches, so the untrained b_0 would stay in b for as many rounds. The
        result is an average of what nodes reported.
        """
        if not self.layout.buffers or theta[-1] == 1:
            return theta
        theta = theta.copy()
        b = theta[self.layout.parameters.size :]
        b[:] = (b - b[-1] * self.statistics) / (1 - b[-1])
        return theta

    def round_to_types(self, theta: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return float32 [P] or longer as a node sees it: arrays of half precision round parameters."""
        if all(kind.itemsize >= 4 for kind in self._types.values()):
            return theta
        rounded = theta.copy()
        for t in self.layout.parameters.tensors:
            rounded[t.start : t.stop] = theta[t.start : t.stop].astype(self._types[t.name])
        return rounded


@dataclass(frozen=True, slots=True)
class Keys:
    """The names of records and weights in messages, as in Flower's own strategies."""

    arrays: str
    config: str
    weight: str


def train_message(
    node: int,
    arrays: ArrayRecord,
    welcome: Welcome,
    config: ConfigRecord,
    keys: Keys,
    ttl: float,
    *,
    refused: bool,
) -> Message:
    """Return a request to train. `refused`: the node's last update was refused for its content."""
    config = ConfigRecord({**config, **({REFUSED_KEY: True} if refused else {})})
    config[CONFIG_KEY] = b64encode(wire.encode(welcome)).decode()
    content = RecordDict({keys.arrays: arrays, keys.config: config})
    return Message(content, node, MessageType.TRAIN, ttl=ttl)


def evaluate_message(node: int, arrays: ArrayRecord, config: ConfigRecord, keys: Keys, ttl: float) -> Message:
    """Return the message that asks a node to evaluate."""
    return Message(
        RecordDict({keys.arrays: arrays, keys.config: config}), node, MessageType.EVALUATE, ttl=ttl
    )


def content_bytes(message: Message) -> int:
    """Return the bytes of a message's records, without Flower's framing."""
    return sum(record.count_bytes() for record in message.content.values()) if message.has_content() else 0


def read_update(content: RecordDict, sent: SentModel, template: Template, keys: Keys) -> Update:
    """Convert a reply into an update. Raises Refused.

    A reply of the mod (client/flower/mod.py) holds an update. The reply of any other app holds the trained
    arrays, and its update is the sent model minus these. The metrics of both have the number of samples.
    """
    if len(content.array_records) != 1:
        raise Malformed(f"a reply has one ArrayRecord, not {len(content.array_records)}")
    (record,) = content.array_records.values()
    arrays = list(record.values())
    if len(arrays) == 1 and arrays[0].stype == STYPE:
        update = _unpack(arrays[0].data, sent, template)
    else:
        update = _difference(_contents(record), sent, template)
    metrics = list(content.metric_records.values())
    return replace(update, samples=samples_of(metrics, keys.weight), loss=loss_of(metrics))


def _unpack(octets: bytes, sent: SentModel, template: Template) -> Update:
    update = wire.decode(octets)
    if not isinstance(update, Update):
        raise Malformed(f"a reply holds an Update, not a {type(update).__name__}")
    if (update.sequence, update.base) != (sent.sequence, sent.base):
        raise BadSequence(
            f"update {update.sequence} on version {update.base} answers the request for update "
            f"{sent.sequence} on version {sent.base}"
        )
    if template.sent_layout.buffers == template.layout.buffers:
        if template.layout.buffers and update.values[-2:] != bytes(2):
            raise BadStatistics(f"{REMAINS} is not 0; use the mod of the same version of Edgeflock")
        return update
    return _with_statistics_as_parameters(update, sent, template.sent_layout)


def _with_statistics_as_parameters(update: Update, sent: SentModel, layout: Layout) -> Update:
    """Return the update with the changes of the running statistics after those of the parameters."""
    bound = EXPANSION_PER_ENTRY * layout.size
    step = admit(
        update, layout, oldest=sent.base, version=sent.base, samples=update.samples, expansion_bytes=bound
    )
    parameters = layout.parameters.size
    delta = np.concatenate([step.delta, sent.theta[parameters:] - step.statistics])
    f32 = values.CODINGS["f32"].mode
    octets = delta.astype("<f4").tobytes()
    if isinstance(step.indices, slice):
        return replace(update, value_mode=f32, count=delta.size, values=octets)
    where = np.concatenate([step.indices, np.arange(parameters, layout.size)])
    indices = sparse.encode(where, layout.size)
    return replace(
        update, index_mode=sparse.GOLOMB, value_mode=f32, count=delta.size, indices=indices, values=octets
    )


def _difference(contents: dict[str, NDArray[np.generic]], sent: SentModel, template: Template) -> Update:
    returned, layout = flatten(contents, template.layout), template.sent_layout
    check_statistics(returned[layout.parameters.size :], layout)
    parameters = template.layout.parameters.size
    statistics = returned[parameters:]
    if not (np.abs(statistics) <= values.LARGEST_STATISTIC).all():
        raise NonFinite(f"running statistics are beyond {values.LARGEST_STATISTIC:g} or NaN; check the data")
    with np.errstate(over="ignore", invalid="ignore"):  # admission checks for non-finite values
        delta = sent.theta[:parameters] - returned[:parameters]
    return Update(
        sequence=sent.sequence,
        base=sent.base,
        index_mode=sparse.DENSE,
        value_mode=values.CODINGS["f32"].mode,
        count=parameters,
        indices=b"",
        values=delta.astype("<f4").tobytes() + values.encode_statistics(statistics),
        loss=math.nan,
        samples=1,
        pull=False,
    )


def _contents(record: ArrayRecord) -> dict[str, NDArray[np.generic]]:
    """Return the arrays of a record. Raises Refused if one is not numeric."""
    contents: dict[str, NDArray[np.generic]] = {}
    for name, array in record.items():
        try:
            contents[name] = array.numpy()
        except (TypeError, ValueError, EOFError, OSError, MemoryError) as error:
            raise Malformed(f"array {name!r} cannot be read: {error}") from error
        if contents[name].dtype.kind not in "fiub":
            raise LayoutMismatch(f"array {name!r} is of type {contents[name].dtype}, which is not numeric")
    return contents

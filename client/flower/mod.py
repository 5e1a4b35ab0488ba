"""A mod for Flower ClientApps that sends the result of training as one compressed array.

    app = ClientApp(mods=[compress])

The app needs no change: it gets the model and returns the trained arrays. The mod sends the difference
instead, as the run of an Edgeflock strategy asks: the largest entries, coded like a device's update. It keeps
the rest in the node's context for the next update. For other strategies and other messages it does nothing.
"""

import math
from base64 import b64decode
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from numpy.typing import NDArray

from edgeflock.client.training.selector import LocalSteps, SelectionMemory, encode_update, select, take_back
from edgeflock.shared.errors import ConfigError, Diverged
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.protocol import wire
from edgeflock.shared.protocol.app import CONFIG_KEY, REFUSED_KEY, STYPE, flatten
from edgeflock.shared.protocol.messages import Update, Welcome
from edgeflock.shared.selection import HORIZON, NormAverages

_ARRAYS, _FACTS = "edgeflock.arrays", "edgeflock.facts"
"""Keys in the node's context of the selector's memory and of its facts."""


def compress(message: Message, context: Context, call_next: Callable[[Message, Context], Message]) -> Message:
    """Run the mod. Raises LayoutMismatch if the app returns other arrays than it got, Diverged if NaN."""
    welcome = _welcome(message)
    if welcome is None:
        return call_next(message, context)
    layout = Layout.from_shapes(welcome.layout)  # type: ignore[arg-type]  # the wire does not look into it
    sent = _flatten(message.content, layout)
    reply = call_next(message, context)
    if reply.has_error():
        return reply
    returned = _flatten(reply.content, layout)
    parameters = layout.parameters.size
    gradient, statistics = sent[:parameters] - returned[:parameters], returned[parameters:]
    if not np.isfinite(gradient).all():
        raise Diverged("training came to NaN or infinity; lower its learning rate or check the data")
    memory = _load_memory(context.state, welcome, layout.parameters, refused=_is_refused(message))
    update = _encode(gradient, statistics, layout.parameters, welcome, sent, memory, context.state)
    octets = wire.encode(update)
    (name,) = reply.content.array_records
    reply.content[name] = ArrayRecord({"update": Array("uint8", (len(octets),), STYPE, octets)})
    return reply


def _welcome(message: Message) -> Welcome | None:
    """Return the run's Welcome; None for other strategies and for messages without training."""
    for config in message.content.config_records.values():
        if isinstance(text := config.get(CONFIG_KEY), str):
            welcome = wire.decode(b64decode(text))
            assert isinstance(welcome, Welcome), "the strategy sends nothing else there"
            return welcome
    return None


def _is_refused(message: Message) -> bool:
    """Return whether the run refused the last update because of its content."""
    return any(REFUSED_KEY in config for config in message.content.config_records.values())


def _flatten(content: RecordDict, layout: Layout) -> NDArray[np.float32]:
    """Return the arrays of the message's only ArrayRecord as float32 [P + B]."""
    if len(content.array_records) != 1:
        raise ConfigError(f"the mod wants one ArrayRecord in a message, not {len(content.array_records)}")
    (record,) = content.array_records.values()
    return flatten({name: array.numpy() for name, array in record.items()}, layout)


def _encode(
    gradient: NDArray[np.float32],
    statistics: NDArray[np.float32],
    layout: Layout,
    welcome: Welcome,
    theta: NDArray[np.float32],
    memory: SelectionMemory,
    state: RecordDict,
) -> Update:
    """Select and encode as a device's trainer does, and store the memory in `state`.

    A node's reply is of many steps: error feedback takes it for HORIZON versions. The strategy fills in the
    number of samples and the loss, since it knows the names of its metrics.
    """
    sequence = welcome.sequence + 1
    welcome = replace(welcome, select_interval=0)  # HORIZON says nothing of how often the node comes
    selection, memory = select(memory, gradient, layout, welcome, theta, sequence, sequence * HORIZON)
    steps = LocalSteps(math.nan, gradient, statistics, 1)
    update = encode_update(steps, selection, layout, sequence, welcome.version)
    _save_memory(state, welcome, memory)
    return replace(update, pull=False)


def _save_memory(state: RecordDict, welcome: Welcome, memory: SelectionMemory) -> None:
    """Store the memory for the next message, which shows whether the update arrived."""
    facts = ConfigRecord({"run": welcome.run, "sequence": welcome.sequence + 1, "whole": memory.sent is None})
    if memory.norms is not None:
        facts["norms"] = [memory.norms.whole, memory.norms.selected]
    arrays = ArrayRecord()
    if memory.corrected is not None:
        arrays["corrected"] = Array(memory.corrected)
        arrays["sent"] = Array(np.zeros(0, np.int64) if memory.sent is None else memory.sent)
    state[_ARRAYS], state[_FACTS] = arrays, facts


def _load_memory(state: RecordDict, welcome: Welcome, layout: Layout, *, refused: bool) -> SelectionMemory:
    """Return the memory that `_save_memory` stored in this run; an update not accepted is taken back.

    The memory is empty if the update was `refused` because of its content.
    """
    facts, arrays = state.get(_FACTS), state.get(_ARRAYS)
    if not isinstance(facts, ConfigRecord) or facts["run"] != welcome.run:
        return SelectionMemory()
    lost = welcome.sequence < int(str(facts["sequence"]))
    if lost and refused:
        return SelectionMemory()
    averages = facts.get("norms")
    norms = NormAverages(*(float(n) for n in averages)) if isinstance(averages, list) else None
    if not isinstance(arrays, ArrayRecord) or "corrected" not in arrays:
        return SelectionMemory(norms=norms)
    corrected = np.asarray(arrays["corrected"].numpy(), np.float32)
    if corrected.size != layout.size:
        return SelectionMemory(norms=norms)
    sent = None if facts["whole"] else np.asarray(arrays["sent"].numpy(), np.int64)
    memory = SelectionMemory(corrected, sent, norms, welcome.sequence * HORIZON)
    return take_back(memory) if lost else memory

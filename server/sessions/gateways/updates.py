"""Pushes the updates of a gateway's devices to the engine, and sends the answers (docs/gateways.md)."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace

from edgeflock.server.coordination import Push
from edgeflock.server.engine import Accepted, frame_bytes
from edgeflock.server.roster import Device
from edgeflock.server.sessions.context import RunHost
from edgeflock.server.sessions.gateways.relayed_device import GatewaySender, RelayedDevice
from edgeflock.server.sessions.writer import PendingUpdate, Writer, settle
from edgeflock.shared.errors import AlreadyComputed, Malformed, Refused, RunComplete, SessionRefused
from edgeflock.shared.protocol import gateway, wire
from edgeflock.shared.protocol.messages import Update


class GatewayUpdates:
    """The updates of one gateway. The engine admits each one like an update of a direct session."""

    def __init__(
        self,
        host: RunHost,
        writer: Writer,
        connection: GatewaySender,
        on_refused: Callable[[RelayedDevice, Device, Refused], None],
    ) -> None:
        """`on_refused` is called for each refused update."""
        self._host, self._writer = host, writer
        self._connection, self._on_refused = connection, on_refused
        self._longest = frame_bytes(host.config, host.layout)
        self.counted = 0
        """How many of them are in the model."""

    def push(self, relayed: RelayedDevice, device: Device, item: gateway.DeviceUpdate) -> None:
        """Push an update. Raises Refused if it is invalid or out of turn."""
        relayed.count(item.ingress, item.egress)
        device.connection.mark_active()
        if len(item.update) > self._longest:
            raise Malformed(f"an update has at most {self._longest} bytes (limits.frame_bytes)")
        update = wire.decode(item.update, (Update,))
        assert isinstance(update, Update), "nothing else is taken"
        relayed.begin_update()
        # The gateway sends the device the model, so the answer has none.
        push = Push(device.id, time.time(), replace(update, pull=False), item.update)
        try:
            self._writer.put(push, _UpdateAnswer(self, relayed, device, update))
        except Refused as refusal:
            self.refuse(relayed, device, refusal)

    # Answers

    def accept(self, relayed: RelayedDevice, device: Device, update: Update, accepted: Accepted) -> None:
        """Note that an update is in the model. Send its receipt unless its session has ended."""
        device.connection.has_updated = True
        relayed.end_update(accepted=True)
        if self._host.engine.tasks is None:
            self._count(device, update, accepted)
        else:  # after held updates of the same round, whose futures call back in the next loop turn
            asyncio.get_running_loop().call_soon(self._count, device, update, accepted)
        receipt = accepted.receipt
        if not relayed.ended.is_set():
            taken = gateway.UpdateTaken(
                device.id,
                update.sequence,
                receipt.version,
                accepted.staleness,
                receipt.moments,
                receipt.labels,
            )
            self._connection.send(taken)

    def refuse(self, relayed: RelayedDevice, device: Device, refusal: Refused) -> None:
        """Note a refused update. Send the refusal unless its session has ended."""
        relayed.end_update(accepted=False)
        if not relayed.ended.is_set():
            self._connection.deny(refusal, device=device.id)
        if isinstance(refusal, AlreadyComputed):
            self._host.hub.count_duplicate(device)
        elif not isinstance(refusal, RunComplete | SessionRefused):
            self._on_refused(relayed, device, refusal)

    def hold(
        self, relayed: RelayedDevice, device: Device, update: Update, answer: "asyncio.Future[Accepted]"
    ) -> None:
        """Note that an update waits for others."""
        if not relayed.ended.is_set():
            self._connection.send(gateway.UpdateHeld(device.id))
        in_tasks = self._host.engine.tasks is not None
        if in_tasks:
            device.connection.has_updated = True
            relayed.end_update(accepted=True)

        def settle_held(answer: "asyncio.Future[Accepted]") -> None:
            if answer.cancelled():
                return
            outcome = _outcome(answer)
            if not in_tasks:
                settle(_UpdateAnswer(self, relayed, device, update), outcome)
            elif isinstance(outcome, Accepted):
                self._count(device, update, outcome)
            elif not isinstance(outcome, SessionRefused):
                self._on_refused(relayed, device, outcome)

        answer.add_done_callback(settle_held)

    def _count(self, device: Device, update: Update, accepted: Accepted) -> None:
        self.counted += 1
        self._host.hub.count_update(device, update, accepted.staleness)


class _UpdateAnswer:
    """Receives the answer to an update without a future, which would cost a turn of the event loop."""

    __slots__ = ("_relayed", "_device", "_update", "_updates")

    def __init__(
        self, updates: GatewayUpdates, relayed: RelayedDevice, device: Device, update: Update
    ) -> None:
        self._updates, self._relayed, self._device, self._update = updates, relayed, device, update

    def done(self) -> bool:
        return False

    def set_result(self, result: Accepted | PendingUpdate, /) -> None:
        if isinstance(result, PendingUpdate):
            self._updates.hold(self._relayed, self._device, self._update, result.answer)
        else:
            self._updates.accept(self._relayed, self._device, self._update, result)

    def set_exception(self, refusal: Refused, /) -> None:
        self._updates.refuse(self._relayed, self._device, refusal)


def _outcome(answer: "asyncio.Future[Accepted]") -> Accepted | Refused:
    """Return the outcome of an answer that is done."""
    error = answer.exception()
    if error is None:
        return answer.result()
    assert isinstance(error, Refused), "the writer raises nothing else"
    return error

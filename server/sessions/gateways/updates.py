"""What comes of the updates of a gateway's devices (docs/gateways.md)."""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import replace

from edgeflock.server.coordination import Push
from edgeflock.server.descent import Step
from edgeflock.server.engine import Accepted, decoded
from edgeflock.server.roster import Device
from edgeflock.server.sessions.gateways.behind import Behind, Through
from edgeflock.server.sessions.host import Host
from edgeflock.server.sessions.writer import Held, Writer, settle
from edgeflock.shared.errors import AlreadyComputed, Malformed, Refused, SessionRefused
from edgeflock.shared.protocol import gateway, wire
from edgeflock.shared.protocol.messages import Update

_SAMPLE = 64
"""The leader decodes the first update of a gateway, and one in so many after it, itself as well."""


class GatewayUpdates:
    """Of one gateway."""

    def __init__(self, host: Host, writer: Writer, line: Through, devices: Mapping[int, Behind]) -> None:
        """`devices` are those that are let in, by their numbers."""
        self._host, self._writer = host, writer
        self._line, self._devices = line, devices
        self._sampled = 0
        """Updates that came decoded."""
        self.counted = 0
        """Those that are in the model."""

    def given(self, given: gateway.Given) -> None:
        behind = self._behind(given.device, given.ingress, given.egress)
        if behind is None:
            return
        update = wire.decode(given.update, (Update,))
        assert isinstance(update, Update), "nothing else is taken"
        # The gateway answers with the model.
        self._push(behind, Push(given.device, time.time(), replace(update, pull=False), given.update))

    def decoded(self, told: gateway.Decoded) -> None:
        behind = self._behind(told.device, told.ingress, told.egress)
        if behind is None:
            return
        update, step = decoded.read(told, self._host.layout)
        if self._sampled % _SAMPLE == 0:
            self._check(told, (update, step))
        self._sampled += 1
        self._push(behind, Push(told.device, time.time(), update, told.update, step))

    def _check(self, told: gateway.Decoded, theirs: tuple[Update, Step]) -> None:
        """Raises Malformed if a gateway decodes otherwise than a replay will."""
        update, limits = wire.decode(told.update, (Update,)), self._host.config.limits
        assert isinstance(update, Update), "nothing else is taken"
        step = decoded.step_of(update, self._host.layout, limits.samples, limits.expansion_bytes)
        if step is None or not decoded.same(theirs, update, step):
            raise Malformed("it decodes updates otherwise than its leader: are they of one version?")

    def _behind(self, device: int, ingress: int, egress: int) -> Behind | None:
        """Of whom something has come; None if it is no device of this gateway, or has left."""
        behind = self._devices.get(device)
        if behind is not None and behind.device is not None:
            behind.count(ingress, egress)
            behind.device.connection.hear()
        return behind

    def _push(self, behind: Behind, push: Push) -> None:
        device = behind.device
        assert device is not None, "it is let in"
        behind.offers()
        try:
            self._writer.put(push, _Answer(self, device, push.update))
        except Refused as refusal:
            self._line.deny(refusal, device=device.id)

    # What comes of them

    def answered(self, device: Device, update: Update, accepted: Accepted) -> None:
        """An update is in the model, whether its device is still there or not."""
        self._taken(device)
        if self._host.engine.tasks is None:
            self._count(device, update, accepted)
        else:  # after those of the same round that were held: their futures are told with the next turn
            asyncio.get_running_loop().call_soon(self._count, device, update, accepted)
        version, staleness = accepted.receipt.version, accepted.staleness
        self._line.send(gateway.Taken(device.id, update.sequence, version, staleness))

    def refused(self, device: Device, refusal: Refused) -> None:
        """An update was. Its gateway says so if that counts."""
        if isinstance(refusal, AlreadyComputed):
            self._host.hub.duplicate(device)
        self._line.deny(refusal, device=device.id)

    def waits(self, device: Device, update: Update, answer: "asyncio.Future[Accepted]") -> None:
        """An update waits for others."""
        self._line.send(gateway.Held(device.id))
        in_tasks = self._host.engine.tasks is not None
        if in_tasks:
            self._taken(device)

        def over(answer: "asyncio.Future[Accepted]") -> None:
            if answer.cancelled():
                return
            outcome = _outcome(answer)
            if not in_tasks:
                settle(_Answer(self, device, update), outcome)
            elif isinstance(outcome, Accepted):
                self._count(device, update, outcome)
            elif not isinstance(outcome, SessionRefused):
                device.statistics.refuse()
                self._host.hub.refused(device, outcome)

        answer.add_done_callback(over)

    def _taken(self, device: Device) -> None:
        device.connection.given = True
        if (behind := self._devices.get(device.id)) is not None:
            behind.taken()

    def _count(self, device: Device, update: Update, accepted: Accepted) -> None:
        self.counted += 1
        self._host.hub.updated(device, update, accepted.staleness)


class _Answer:
    """Waits for what comes of an update, without a future: that costs a turn of the event loop."""

    __slots__ = ("_device", "_update", "_updates")

    def __init__(self, updates: GatewayUpdates, device: Device, update: Update) -> None:
        self._updates, self._device, self._update = updates, device, update

    def done(self) -> bool:
        return False

    def set_result(self, result: Accepted | Held, /) -> None:
        if isinstance(result, Held):
            self._updates.waits(self._device, self._update, result.answer)
        else:
            self._updates.answered(self._device, self._update, result)

    def set_exception(self, refusal: Refused, /) -> None:
        self._updates.refused(self._device, refusal)


def _outcome(answer: "asyncio.Future[Accepted]") -> Accepted | Refused:
    """Of one that is done."""
    error = answer.exception()
    if error is None:
        return answer.result()
    assert isinstance(error, Refused), "the writer raises nothing else"
    return error

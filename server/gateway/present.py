"""The devices that a leader has admitted at its gateway: their lines, and the leader's messages to them."""

import asyncio
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

from edgeflock.server.roster import Device, OpenSession
from edgeflock.shared.errors import REFUSALS, SessionRefused, Superseded
from edgeflock.shared.protocol import gateway, wire
from edgeflock.shared.protocol.messages import Hello, Over, Record, Stop, Task

_TASK_RECORDS: Collection[type[Record]] = (Task, Over, Stop)
"""The records that devices receive in a run of tasks without a request."""


class GatewayDevices:
    """The devices of one leader."""

    def __init__(self) -> None:
        self._devices: dict[int, Device] = {}
        """Device number -> the device, with its line."""
        self._entering: dict[int, tuple[Hello, OpenSession]] = {}
        """Ticket -> the Hello and line of an entering device."""
        self._listeners: dict[int, Callable[[Record], None]] = {}
        """Ticket -> the function that sends a device its tasks."""

    def __getitem__(self, number: int) -> Device:
        """Return a device by its number. Raises KeyError if it is not here."""
        return self._devices[number]

    @contextmanager
    def expect(self, ticket: int, hello: Hello, session: OpenSession) -> Iterator[None]:
        """While the context lasts, the leader may admit the sender of this Hello."""
        self._entering[ticket] = hello, session
        try:
            yield
        finally:
            self._entering.pop(ticket, None)

    def add(self, entered: gateway.Entered) -> bool:
        """Record an admitted device. Return whether it shares samples."""
        if (entering := self._entering.get(entered.ticket)) is None:
            return False
        hello, session = entering
        device = self._devices[entered.device] = Device(hello.device, entered.device)
        device.connection.join(session)
        if entered.paused is not None:
            device.connection.pause(entered.paused)
        return hello.shares

    def listen(self, ticket: int, send: Callable[[Record], None]) -> None:
        """Call `send` with the leader's records for this session's device, until it leaves."""
        self._listeners[ticket] = send

    def leave(self, ticket: int, device: Device | None) -> Device | None:
        """Remove and return the device of this ticket; None if it was not here."""
        self._listeners.pop(ticket, None)
        if device is None or self._devices.get(device.id) is not device:
            return None
        return self._devices.pop(device.id)

    def traffic(self, number: int) -> tuple[int, int]:
        """Return the bytes from a device in this session so far, and to it."""
        session = self._session(number)
        return (0, 0) if session is None else (session.meter.ingress, session.meter.egress)

    def forward(self, message: gateway.DeviceRecord) -> None:
        """Pass on a record from the leader. Raises Malformed if its kind is not sent to devices."""
        record = wire.decode(message.record, _TASK_RECORDS)
        if (send := self._listeners.get(message.ticket)) is not None:
            send(record)

    def set_paused(self, paused: gateway.Paused) -> None:
        device = self._devices.get(paused.device)
        if device is None:
            return
        if paused.reason is not None:
            device.connection.pause(paused.reason)
        elif device.connection.order is not None:
            device.connection.resume()

    async def end(self, end: gateway.End) -> None:
        session = self._session(end.device)
        if session is None:
            return
        kind = REFUSALS.get(end.code)
        if kind is None or not issubclass(kind, SessionRefused):
            await session.leave()
        elif kind is Superseded:
            await session.supersede()
        else:
            refusal = kind(end.detail)
            refusal.seconds = end.seconds
            await session.drop(refusal)

    async def is_alive(self, number: int) -> bool:
        """Whether the device's line is alive."""
        session = self._session(number)
        return session is not None and await session.is_alive()

    async def end_all(self) -> None:
        """End all sessions, because the leader is lost."""
        sessions = [self._session(number) for number in self._devices]
        self._devices, self._entering, self._listeners = {}, {}, {}
        await asyncio.gather(*(one.leave() for one in sessions if one is not None), return_exceptions=True)

    def _session(self, number: int) -> OpenSession | None:
        device = self._devices.get(number)
        return None if device is None else device.connection.session

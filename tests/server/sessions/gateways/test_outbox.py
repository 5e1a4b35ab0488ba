"""Items leave in their order, as many in a message as fit."""

import asyncio

import pytest

from edgeflock.server.sessions import Outbox
from edgeflock.shared.protocol import gateway, gateway_coding
from edgeflock.shared.protocol import gateway_coding as coding


class Sink:
    """Takes so many messages; then nobody is there any more."""

    def __init__(self, outbox: Outbox, room: int) -> None:
        self._outbox, self._room = outbox, room
        self.taken: list[list[gateway_coding.Item]] = []
        self.behind: list[int] = []
        """Bytes that waited as each came."""

    async def send_bytes(self, data: bytes, /) -> None:
        if len(self.taken) == self._room:
            raise ConnectionError("gone")
        self.behind.append(self._outbox.waiting)
        self.taken.append(list(gateway_coding.items(data, (gateway.UpdateHeld,))))


async def test_what_waits_goes_in_few_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sink is gone before the last one: nobody hears of that here."""
    packed = [gateway_coding.pack(gateway.UpdateHeld(device)) for device in range(5)]
    monkeypatch.setattr(coding, "LONGEST", 2 * len(packed[0]))
    outbox = Outbox()
    for octets in packed:
        outbox.add(octets)
    outbox.wake()
    sink = Sink(outbox, room=2)
    await outbox.send_through(sink)
    size = len(packed[0])
    assert sink.taken == [
        [gateway.UpdateHeld(0), gateway.UpdateHeld(1)],
        [gateway.UpdateHeld(2), gateway.UpdateHeld(3)],
    ]
    assert sink.behind == [5 * size, 3 * size]
    assert outbox.waiting == size


async def test_what_is_cleared_does_not_leave() -> None:
    outbox, last = Outbox(), gateway_coding.pack(gateway.UpdateHeld(9))
    outbox.add(gateway_coding.pack(gateway.UpdateHeld(1)))
    outbox.clear()
    assert outbox.waiting == 0
    outbox.add(last)
    outbox.wake()
    sink = Sink(outbox, room=1)
    sending = asyncio.create_task(outbox.send_through(sink))
    while not sink.taken:
        await asyncio.sleep(0)
    outbox.add(last)
    outbox.wake()
    await sending
    assert sink.taken == [[gateway.UpdateHeld(9)]]

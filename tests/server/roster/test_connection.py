"""The states of a device's connection: every event in every state."""

import itertools

import pytest

from edgeflock.server.connections.traffic import Meter
from edgeflock.server.roster.connection import TRANSITIONS, Connection, ConnectionEvent, ConnectionState
from edgeflock.shared.errors import SessionRefused
from edgeflock.shared.protocol.frames import GATEWAY_LOST


class Session:
    """A line that counts."""

    def __init__(self, ingress: int = 0, egress: int = 0) -> None:
        self.meter = Meter(ingress, egress)
        self.credential = b""
        self.heeded = 0

    async def supersede(self) -> None: ...

    async def drop(self, because: SessionRefused) -> None: ...

    async def leave(self) -> None: ...

    async def is_alive(self) -> bool:
        return True

    def apply_order(self) -> None:
        self.heeded += 1


WITH_A_LINE = {ConnectionState.ONLINE, ConnectionState.PAUSED, ConnectionState.DROPPING}
ORDERED = {
    ConnectionState.PAUSED: False,
    ConnectionState.PAUSED_OFFLINE: False,
    ConnectionState.DROPPING: True,
    ConnectionState.DROPPED: True,
}
"""state -> whether the operator's order is to drop."""


def happen(connection: Connection, event: ConnectionEvent) -> None:
    {
        ConnectionEvent.JOIN: lambda: connection.join(Session(1, 2)),
        ConnectionEvent.LEAVE: connection.leave,
        ConnectionEvent.PAUSE: lambda: connection.pause("a reason"),
        ConnectionEvent.DROP: lambda: connection.drop("a reason"),
        ConnectionEvent.RESUME: connection.resume,
    }[event]()


def test_a_line_an_order_and_a_state_always_agree() -> None:
    """Whatever happens in whatever order, as far as it can happen."""
    for events in itertools.product(ConnectionEvent, repeat=5):
        play(events)


def play(events: tuple[ConnectionEvent, ...]) -> None:
    connection, lines = Connection(), 0
    for event in events:
        if event not in TRANSITIONS[connection.state]:
            with pytest.raises(KeyError):
                happen(connection, event)
            return
        before = connection.order
        happen(connection, event)
        lines += event is ConnectionEvent.JOIN
        assert connection.is_connected == (connection.state in WITH_A_LINE)
        assert connection.present == (connection.state is ConnectionState.ONLINE)
        assert (connection.order is not None) == (connection.state in ORDERED)
        assert connection.dropped == ORDERED.get(connection.state, False)
        assert connection.traffic == (lines, 2 * lines)
        if before is not None and connection.order is not before:
            assert before.ended.is_set(), "whoever waits for it looks again"


@pytest.mark.parametrize("state", ConnectionState)
def test_an_operator_may_say_anything_at_any_time(state: ConnectionState) -> None:
    assert {ConnectionEvent.PAUSE, ConnectionEvent.DROP, ConnectionEvent.RESUME} <= TRANSITIONS[state].keys()


def test_nobody_joins_who_is_there_or_is_dropped() -> None:
    assert {state for state in ConnectionState if ConnectionEvent.JOIN in TRANSITIONS[state]} == {
        ConnectionState.OFFLINE,
        ConnectionState.PAUSED_OFFLINE,
    }


@pytest.mark.parametrize(
    ("reason", "early"),
    [
        ("killed: the connection broke", 1),
        ("timed out: nothing came for 90 s", 1),
        ("finished: its part is done", 0),
        ("stopped: the server closed the session", 0),
        (f"{GATEWAY_LOST} x broke", 0),
        (None, 0),
    ],
)
def test_an_early_end_is_one_that_the_device_or_its_network_caused(reason: str | None, early: int) -> None:
    connection = Connection()
    connection.join(Session())
    connection.leave(reason)
    assert connection.early_ends == early

"""A device's connection: every event, in every order."""

import itertools
import time
from types import SimpleNamespace

import pytest

from edgeflock.server.connections.traffic import Meter
from edgeflock.server.roster.connection import Connection
from edgeflock.shared.errors import SessionRefused
from edgeflock.shared.protocol.frames import GATEWAY_LOST, SESSION_CLOSED


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


EVENTS = ("join", "leave", "pause", "drop", "resume")


def test_a_line_and_an_order_always_agree() -> None:
    """An operator may say anything at any time. Nobody joins who is there or is dropped, or leaves twice."""
    for events in itertools.product(EVENTS, repeat=5):
        play(events)


def play(events: tuple[str, ...]) -> None:
    connection, lines, order = Connection(), 0, "resume"
    for event in events:
        before, session = connection.order, connection.session
        here = session is not None
        if (event == "join" and (here or order == "drop")) or (event == "leave" and not here):
            with pytest.raises(AssertionError):
                happen(connection, event)
            return
        happen(connection, event)
        if event in ("join", "leave"):
            here, lines = not here, lines + (event == "join")
            assert connection.order is before
        else:
            order = event
            assert before is None or before.ended.is_set(), "whoever waits for it looks again"
        assert connection.is_connected == here
        assert connection.present == (here and order == "resume")
        assert (connection.order is None) == (order == "resume")
        assert connection.dropped == (order == "drop")
        assert connection.traffic == (lines, 2 * lines)


def happen(connection: Connection, event: str) -> None:
    {
        "join": lambda: connection.join(Session(1, 2)),
        "leave": connection.leave,
        "pause": lambda: connection.pause("a reason"),
        "drop": lambda: connection.drop("a reason"),
        "resume": connection.resume,
    }[event]()


@pytest.mark.parametrize("event", ["pause", "drop", "resume"])
def test_a_session_is_told_of_every_order(event: str) -> None:
    connection, session = Connection(), Session()
    connection.join(session)
    happen(connection, event)
    assert session.heeded == 1


@pytest.mark.parametrize(
    ("reason", "early"),
    [
        ("killed: the connection broke", 1),
        ("timed out: nothing came for 90 s", 1),
        ("finished: its part is done", 0),
        ("stopped: the server closed the session", 0),
        ("retired: stopped by its owner", 0),
        (f"{GATEWAY_LOST} x broke", 0),
        (None, 0),
    ],
)
def test_an_early_end_is_one_that_the_device_or_its_network_caused(reason: str | None, early: int) -> None:
    connection = Connection()
    connection.join(Session())
    connection.leave(reason)
    assert connection.early_ends == early


@pytest.mark.parametrize(("away", "early"), [(0.5, 0), (5.0, 1)])
def test_a_device_that_begins_another_session_at_once_was_not_away(
    away: float, early: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = Connection()
    connection.join(Session())
    connection.leave(SESSION_CLOSED)
    returned = time.monotonic() + away
    monkeypatch.setattr(
        "edgeflock.server.roster.connection.time", SimpleNamespace(monotonic=lambda: returned)
    )
    connection.join(Session())
    assert connection.early_ends == early

"""What a leader's items settle, of what a session at its gateway waits for."""

import asyncio

import pytest

from edgeflock.server.coordination import Push
from edgeflock.server.engine import Accepted
from edgeflock.server.gateway.admission import GatewayAdmission
from edgeflock.server.sessions import PendingUpdate
from edgeflock.shared.errors import NonFinite, Unauthorized, Unavailable
from edgeflock.shared.identity import CHALLENGE
from edgeflock.shared.protocol import gateway, gateway_coding
from edgeflock.shared.protocol.messages import Receipt, Update

PUSH = Push(7, 0.0, Update(3, 0, 0, 0, 0, b"", b"", 0.0, 1, False), b"frame")


class Leader:
    """Remembers what it is sent. It has hung up if it is not `there`."""

    def __init__(self) -> None:
        self.there = True
        self.heard: list[gateway_coding.Item] = []

    def send(self, item: gateway_coding.Item) -> bool:
        self.heard.append(item)
        return self.there


@pytest.fixture
def leader() -> Leader:
    return Leader()


@pytest.fixture
def admission(leader: Leader) -> GatewayAdmission:
    return GatewayAdmission(1, leader.send, in_tasks=False)


def pushing(admission: GatewayAdmission) -> "asyncio.Task[Accepted | PendingUpdate]":
    return asyncio.create_task(admission.push(PUSH))


def taken(version: int) -> gateway.UpdateTaken:
    return gateway.UpdateTaken(7, 3, version, 2, b"moments", b"labels")


async def test_who_asks_is_answered(admission: GatewayAdmission, leader: Leader) -> None:
    asking = asyncio.create_task(admission.identify("secret", "/v1/session", b""))
    await asyncio.sleep(0)
    assert leader.heard == [gateway.AccessRequest(1, "secret", "/v1/session", b"")]
    admission.answer(gateway.AccessGranted(1, "challenge", False))
    await asking
    assert admission.headers == {CHALLENGE: "challenge"}
    admission.answer(gateway.AccessGranted(1, "", False))  # nobody asks any more


async def test_who_asks_may_be_refused(admission: GatewayAdmission) -> None:
    asking = asyncio.create_task(admission.identify("secret", "/v1/session", b""))
    await asyncio.sleep(0)
    admission.deny(gateway.Denied(1, 0, Unauthorized.code, "nobody knows it", 7))
    with pytest.raises(Unauthorized, match="nobody knows it") as refused:
        await asking
    assert refused.value.seconds == 7


async def test_an_update_is_taken(admission: GatewayAdmission, leader: Leader) -> None:
    pushed = pushing(admission)
    await asyncio.sleep(0)
    assert leader.heard == [gateway.DeviceUpdate(7, 0, 0, b"frame")]
    admission.take_result(taken(12))
    assert await pushed == Accepted(Receipt(3, 12, None, b"moments", b"labels"), 2)


async def test_an_update_is_refused(admission: GatewayAdmission) -> None:
    pushed = pushing(admission)
    await asyncio.sleep(0)
    admission.deny(gateway.Denied(0, 7, NonFinite.code, "not finite", 0))
    with pytest.raises(NonFinite):
        await pushed


async def test_an_update_that_waits_for_others_is_answered_later(admission: GatewayAdmission) -> None:
    pushed = pushing(admission)
    await asyncio.sleep(0)
    admission.hold_update(gateway.UpdateHeld(7))
    held = await pushed
    assert isinstance(held, PendingUpdate)
    assert not held.answer.done()
    admission.take_result(taken(12))
    assert (await held.answer).receipt.version == 12


async def test_nothing_is_answered_once_the_leader_is_lost(admission: GatewayAdmission) -> None:
    asking = asyncio.create_task(admission.identify("secret", "/v1/session", b""))
    pushed = pushing(admission)
    await asyncio.sleep(0)
    admission.hold_update(gateway.UpdateHeld(7))
    held = await pushed
    assert isinstance(held, PendingUpdate)
    admission.fail()
    for waiting in (asking, held.answer):
        with pytest.raises(Unavailable, match="has lost its leader"):
            await asyncio.wait_for(waiting, 60)
    admission.take_result(taken(12))  # of the next leader: nobody waits


async def test_nobody_is_asked_without_a_leader(admission: GatewayAdmission, leader: Leader) -> None:
    leader.there = False
    with pytest.raises(Unavailable, match="has lost its leader"):
        await admission.identify("secret", "/v1/session", b"")
    with pytest.raises(Unavailable, match="has lost its leader"):
        await admission.push(PUSH)


async def test_a_ticket_of_a_lost_leader_asks_the_next_one_nothing(
    admission: GatewayAdmission, leader: Leader
) -> None:
    admission.fail()
    leader.there = True
    with pytest.raises(Unavailable, match="has lost its leader"):
        await asyncio.wait_for(admission.identify("secret", "/v1/session", b""), 60)
    with pytest.raises(Unavailable, match="has lost its leader"):
        await asyncio.wait_for(admission.push(PUSH), 60)

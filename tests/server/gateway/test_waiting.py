"""What a leader's items settle, of what its gateway waits for."""

import asyncio

import pytest

from edgeflock.server.gateway.waiting import PendingRequests
from edgeflock.server.sessions import PendingUpdate
from edgeflock.shared.errors import NonFinite, Unauthorized, Unavailable
from edgeflock.shared.protocol import gateway
from edgeflock.shared.protocol.messages import Receipt

KNOWN = gateway.AccessGranted(1, "device", "pi", "", False)


async def test_an_answer_goes_to_who_asked_under_its_ticket() -> None:
    waiting = PendingRequests()
    with waiting.question(1) as one, waiting.question(2) as other:
        waiting.settle_question(KNOWN)
        waiting.deny(gateway.Denied(2, 0, Unauthorized.code, "nobody knows it", 7, 401))
        assert await one == KNOWN
        with pytest.raises(Unauthorized, match="nobody knows it") as refused:
            await other
        assert refused.value.seconds == 7
    waiting.settle_question(KNOWN)  # who asked is gone


async def test_an_update_is_taken_or_refused() -> None:
    waiting = PendingRequests()
    one, other = waiting.add_push(7), waiting.add_push(8)
    waiting.settle_push(gateway.UpdateTaken(7, 3, 12, 2, b"moments", b"labels"))
    waiting.deny(gateway.Denied(0, 8, NonFinite.code, "not finite", 0, 422))
    accepted = await one
    assert not isinstance(accepted, PendingUpdate)
    assert (accepted.receipt, accepted.staleness) == (Receipt(3, 12, None, b"moments", b"labels"), 2)
    with pytest.raises(NonFinite):
        await other


async def test_an_update_that_waits_for_others_is_answered_later() -> None:
    waiting = PendingRequests()
    pushed = waiting.add_push(7)
    waiting.hold_push(gateway.UpdateHeld(7))
    held = await pushed
    assert isinstance(held, PendingUpdate)
    assert not held.answer.done()
    waiting.settle_push(gateway.UpdateTaken(7, 3, 12, 2, b"", b""))
    assert (await held.answer).receipt.version == 12


async def test_nothing_is_answered_once_the_leader_is_lost() -> None:
    waiting = PendingRequests()
    pushed, later = waiting.add_push(7), waiting.add_push(8)
    waiting.hold_push(gateway.UpdateHeld(8))
    held = await later
    assert isinstance(held, PendingUpdate)
    with waiting.question(1) as asked:
        waiting.fail_all()
        for future in (asked, pushed, held.answer):
            with pytest.raises(Unavailable, match="has lost its leader"):
                await asyncio.wait_for(future, 60)
    waiting.settle_push(gateway.UpdateTaken(7, 3, 12, 2, b"", b""))  # of the next leader: nobody waits

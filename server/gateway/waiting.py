"""A gateway's unanswered requests to its leader: a question of each ticket, an update of each device."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from edgeflock.server.engine import Accepted
from edgeflock.server.sessions import PendingUpdate
from edgeflock.shared.errors import REFUSALS, Refused, Unavailable
from edgeflock.shared.protocol import gateway
from edgeflock.shared.protocol.messages import Receipt

LOST = "this gateway has lost its leader"

Answer = gateway.AccessGranted | gateway.Entered | gateway.Done


class PendingRequests:
    """Pending futures, and the methods that settle them."""

    def __init__(self) -> None:
        self._questions: dict[int, asyncio.Future[Answer]] = {}
        """Ticket -> the pending answer."""
        self._pushes: dict[int, asyncio.Future[Accepted | PendingUpdate] | asyncio.Future[Accepted]] = {}
        """Device -> the result of its one pending update."""

    @contextmanager
    def question(self, ticket: int) -> Iterator[asyncio.Future[Answer]]:
        """Yield a future of the answer, or the refusal, to a question of this ticket."""
        future = self._questions[ticket] = asyncio.get_running_loop().create_future()
        try:
            yield future
        finally:
            self._questions.pop(ticket, None)

    def add_push(self, device: int) -> asyncio.Future[Accepted | PendingUpdate]:
        """Return a future of the result, or the refusal, of a device's update."""
        future: asyncio.Future[Accepted | PendingUpdate] = asyncio.get_running_loop().create_future()
        self._pushes[device] = future
        return future

    def settle_question(self, answer: Answer) -> None:
        _settle(self._questions.get(answer.ticket), answer)

    def settle_push(self, answer: gateway.UpdateTaken) -> None:
        receipt = Receipt(answer.sequence, answer.version, None, answer.moments, answer.labels)
        accepted = Accepted(receipt, answer.staleness)
        _settle(self._pushes.pop(answer.device, None), accepted)

    def hold_push(self, held: gateway.UpdateHeld) -> None:
        before = self._pushes.get(held.device)
        if before is not None and not before.done():
            pending = ignore_failure(asyncio.get_running_loop().create_future())
            self._pushes[held.device] = pending
            _settle(before, PendingUpdate(pending))

    def deny(self, denied: gateway.Denied) -> None:
        refusal = REFUSALS.get(denied.code, Refused)(denied.detail)
        refusal.seconds = denied.seconds
        future: asyncio.Future[Any] | None
        if denied.ticket:
            future = self._questions.get(denied.ticket)
        else:
            future = self._pushes.pop(denied.device, None)
        if future is not None and not future.done():
            future.set_exception(refusal)

    def fail_all(self) -> None:
        """Fail all requests, because the leader is lost."""
        waiting = [*self._questions.values(), *self._pushes.values()]
        self._questions, self._pushes = {}, {}
        for future in waiting:
            if not future.done():
                future.set_exception(Unavailable(LOST))


def ignore_failure(answer: asyncio.Future[Accepted]) -> asyncio.Future[Accepted]:
    """Mark a future's failure as seen: its waiter may be gone, and asyncio warns of unseen failures."""
    answer.add_done_callback(lambda answer: answer.cancelled() or answer.exception())
    return answer


def _settle(future: "asyncio.Future[Any] | None", outcome: object) -> None:
    if future is not None and not future.done():
        future.set_result(outcome)

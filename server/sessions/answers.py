"""Answers to updates: who receives them, and the first answer to an update that waits for others."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar

from edgeflock.server.engine import Accepted
from edgeflock.shared.errors import Refused
from edgeflock.shared.protocol.messages import SecureSum, Update

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)


class SumAnswer(NamedTuple):
    """The answer to a step of a secure sum."""

    record: SecureSum
    applied: tuple[Update, Accepted] | None = None
    """The sum that is in the model now, if the device's vector is in it."""


class AnswerReceiver(Protocol[T_contra]):
    """Receives an answer to an update: a future, or an object that is cheaper than one."""

    def done(self) -> bool:
        """Whether nobody waits any more."""

    def set_result(self, result: T_contra, /) -> None: ...
    def set_exception(self, refusal: Refused, /) -> None: ...


@dataclass(frozen=True, slots=True)
class PendingUpdate:
    """The first answer to an update that waits for others. `answer` gets the result later."""

    answer: asyncio.Future[Accepted]

    @classmethod
    def begin(cls) -> "PendingUpdate":
        """Return one without a result yet. Nobody has to wait for it."""
        answer: asyncio.Future[Accepted] = asyncio.get_running_loop().create_future()
        # asyncio warns of an exception that is never retrieved.
        answer.add_done_callback(lambda answer: answer.cancelled() or answer.exception())
        return cls(answer)

    def on_settled(self, settle: Callable[[Accepted | Refused], object]) -> None:
        """Call `settle` with the result, once there is one."""

        def call(answer: asyncio.Future[Accepted]) -> None:
            if not answer.cancelled():
                error = answer.exception()
                assert error is None or isinstance(error, Refused), "the writer sets nothing else"
                settle(answer.result() if error is None else error)

        self.answer.add_done_callback(call)


def settle(answer: AnswerReceiver[T], outcome: T | Refused) -> None:
    """Set the outcome of an answer, unless nobody waits for it any more."""
    if answer.done():
        return
    if isinstance(outcome, Refused):
        answer.set_exception(outcome)
    else:
        answer.set_result(outcome)

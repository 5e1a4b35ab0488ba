"""The answers that wait for the end of a round, by the event loop's clock."""

import asyncio
from collections.abc import Callable, Set

from edgeflock.server.coordination import Rounds
from edgeflock.shared.messages import Receipt

Answer = asyncio.Future[Receipt]


class OpenRound:
    """Who waits, and whether it is over."""

    def __init__(self, rounds: Rounds, present: Callable[[], Set[int]], look: Callable[[], None]) -> None:
        """`present` tells the devices that are connected; `look` is called at the deadline."""
        self._rounds = rounds
        self._present = present
        self._look = look
        self._held: dict[int, Answer] = {}
        self._opened = 0.0
        self._deadline: asyncio.TimerHandle | None = None

    def hold(self, device: int, answer: Answer) -> Answer | None:
        """Keep `answer` until the end. Returns the one that this device had waiting, if it had."""
        if not self._held:
            loop = asyncio.get_running_loop()
            self._opened = loop.time()
            self._deadline = loop.call_later(self._rounds.deadline, self._look)
        earlier = self._held.get(device)
        self._held[device] = answer
        return earlier

    @property
    def is_over(self) -> bool:
        if not self._held:
            return False
        # A timer may be a little early.
        seconds = asyncio.get_running_loop().time() - self._opened + 1e-3
        return self._rounds.is_over(self._held.keys(), self._present(), seconds)

    def end(self) -> dict[int, Answer]:
        """device -> its answer, of all that waited; the next round is open."""
        if self._deadline is not None:
            self._deadline.cancel()
        held, self._held = self._held, {}
        return held

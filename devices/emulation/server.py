"""The server of an emulated fleet: the engine by the virtual clock, without sockets."""

import asyncio
from collections.abc import Callable

from edgeflock.server.coordination import Push
from edgeflock.server.engine import Accepted, Answer, Engine
from edgeflock.server.roster import Relay, Traffic
from edgeflock.server.sessions import settle
from edgeflock.shared.errors import Refused
from edgeflock.shared.settings.config import Config


class EmulatedServer:
    """The engine behind made-up links. `committed` is to be called after every receipt."""

    def __init__(
        self, config: Config, engine: Engine, committed: Callable[[], None], *, keep_frames: bool
    ) -> None:
        self.config = config
        self.keep_frames = keep_frames
        self.engine = engine
        self.traffic = Traffic()
        """WebSocket messages, framed. The HTTP request that opens a session is not counted."""
        self.committed = committed
        self.relay = Relay(config.injection, config.limits.samples)
        self._held: dict[Push, asyncio.Future[Accepted]] = {}
        self._alarm: asyncio.TimerHandle | None = None

    async def push(self, push: Push) -> Accepted:
        """What comes of one update. Raises what it is refused for."""
        answer = self._commit([push]).get(push)
        if answer is None:
            held: asyncio.Future[Accepted] = asyncio.get_running_loop().create_future()
            self._held[push] = held
            return await held
        if isinstance(answer, Refused):
            raise answer
        return answer

    def arrive(self, device: int, *, shares: bool) -> None:
        self.engine.arrived(device)
        if shares:
            self.relay.join(device)

    def leave(self, device: int) -> None:
        self.engine.left(device)
        self.relay.leave(device)
        self._commit([])

    def _commit(self, pushes: list[Push]) -> dict[Push, Answer]:
        """What comes of `pushes`. Those that were held until now have their answer."""
        loop = asyncio.get_running_loop()
        settled = dict(self.engine.commit(pushes, loop.time()))
        for push, answer in settled.items():
            if push in self._held:
                settle(self._held.pop(push), answer)
        if self._alarm is not None:
            self._alarm.cancel()
        due = self.engine.due
        self._alarm = None if due is None else loop.call_at(due, self._commit, [])
        return settled

"""The server of an emulated fleet: the engine in virtual time, without sockets."""

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

from edgeflock.server.connections import Meter, Traffic
from edgeflock.server.coordination import Push
from edgeflock.server.engine import Accepted, Answer, Engine
from edgeflock.server.roster import Device, RateLimiters, Relay
from edgeflock.server.sessions import PendingUpdate, SecureSums, SessionContext, settle
from edgeflock.shared.errors import Refused, RunComplete, SessionRefused
from edgeflock.shared.protocol.messages import Welcome
from edgeflock.shared.settings.config import Config

T = TypeVar("T")


class _IdleConnection:
    """The connection of a device that is present. Its methods do nothing."""

    credential = b""

    def __init__(self) -> None:
        self.meter = Meter()

    async def is_alive(self) -> bool:
        return True

    async def supersede(self) -> None: ...

    async def drop(self, because: SessionRefused) -> None: ...

    async def leave(self) -> None: ...

    def apply_order(self) -> None: ...


class EmulatedServer:
    """The engine behind emulated links.

    Sessions use it as their Writer, and call `on_commit` after every receipt. The server calls `on_applied`
    with each update in the model.
    """

    def __init__(
        self,
        config: Config,
        engine: Engine,
        on_commit: Callable[[], None],
        terms: Welcome,
        *,
        on_applied: Callable[[Push, Accepted], None],
        on_abandoned: Callable[[int, str], None] = lambda device, reason: None,
    ) -> None:
        self.config = config
        self.engine = engine
        self.traffic = Traffic()
        """Framed bytes of WebSocket messages. The HTTP request that opens a session is not counted."""
        self.on_commit = on_commit
        self.devices: dict[int, Device] = {}
        """The server's records of devices by number, in virtual time."""
        self._on_applied = on_applied
        is_private = config.coordination.traits.private
        self.relay = Relay(config.injection, config.limits.samples)
        self.context = SessionContext(
            config=config,
            engine=engine,
            traffic=self.traffic,
            relay=self.relay,
            rate_limiters=RateLimiters(config.limits),
            terms=terms,
            sums=SecureSums("fleet", config, engine, self, on_abandoned) if is_private else None,
        )
        self._round_changed = asyncio.Event()
        """Set and replaced when a round ends, or when a device joins or leaves."""
        self._pending: dict[Push, asyncio.Future[Accepted]] = {}
        self._timer: asyncio.TimerHandle | None = None

    async def push(self, push: Push) -> PendingUpdate:
        """Push one update, which may be held. Raises an immediate refusal."""
        result: asyncio.Future[Accepted] = asyncio.get_running_loop().create_future()
        answer = self._commit([push]).get(push)
        if isinstance(answer, Refused):
            raise answer
        if answer is None:
            self._pending[push] = result
        else:
            result.set_result(answer)
        return PendingUpdate(result)

    async def call(self, function: Callable[[], T]) -> T:
        return function()

    async def assign(self, device: int, base: int) -> int | None:
        """Return the device's next data shard in the round from version `base`. None: it has none now."""
        tasks = self.engine.tasks
        assert tasks is not None, "only a run of tasks assigns shards"
        if self.engine.published.version != base:
            return None
        shard = tasks.assign(device, asyncio.get_running_loop().time())
        self._set_timer()
        return shard

    async def wait_for_change(self) -> None:
        """Wait until a round ends, or a device joins or leaves."""
        await self._round_changed.wait()

    async def wait_for_turn(self, device: int) -> None:
        """Wait while the device is outside the cohort. Raises RunComplete."""
        while not self.engine.eligibility.has_turn(device):
            if self.engine.published.complete:
                raise RunComplete(self.engine.published.farewell)
            if (farewell := self.engine.eligibility.farewell(device)) is not None:
                raise RunComplete(farewell)
            await self.wait_for_change()

    def record_message(self, device: int) -> None:
        if (record := self.devices.get(device)) is not None:
            now = asyncio.get_running_loop().time()
            record.connection.last_seen = record.connection.last_heard = now

    def connect(self, device: int, name: str, *, shares: bool, shards: Sequence[str] = ()) -> Device:
        """Begin a session of the device. Return the server's record of it."""
        record = self.devices.setdefault(device, Device(name, device))
        record.connection.join(_IdleConnection())
        self.record_message(device)
        if self.engine.tasks is not None:
            self.engine.tasks.set_shards(device, shards)
        self.engine.add_device(device)
        if self.engine.turns is not None:
            self._commit([])  # its turn may begin, and end
        self._wake_waiting()
        if shares:
            self.relay.join(device)
        return record

    def leave(self, device: int, reason: str) -> None:
        if (record := self.devices.get(device)) is not None and record.connection.is_connected:
            record.connection.leave(reason)
        self.engine.remove_device(device)
        self.relay.leave(device)
        self._commit([])
        self._wake_waiting()

    def wake(self) -> None:
        """Check the held updates again after the current callbacks."""
        asyncio.get_running_loop().call_soon(self._commit_due)

    def _commit(self, pushes: list[Push]) -> dict[Push, Answer]:
        """Commit `pushes` and return their results. Resolve the futures of held updates that are settled."""
        loop = asyncio.get_running_loop()
        before = self.engine.published.version
        staged = self.engine.stage(pushes, loop.time())
        settled = dict(self.engine.publish(staged))
        for push, accepted in staged.applied:
            self._on_applied(push, accepted)
        for push, answer in settled.items():
            if push in self._pending:
                settle(self._pending.pop(push), answer)
        self._set_timer()
        if self.engine.published.version != before:
            self._wake_waiting()
        return settled

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        due = self.engine.due
        self._timer = None if due is None else asyncio.get_running_loop().call_at(due, self._commit_due)

    def _commit_due(self) -> None:
        self._commit([])
        self._wake_waiting()

    def _wake_waiting(self) -> None:
        round_changed, self._round_changed = self._round_changed, asyncio.Event()
        round_changed.set()

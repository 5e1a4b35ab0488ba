"""The server of an emulated fleet: the engine in virtual time, without sockets."""

import asyncio
from collections.abc import Callable, Sequence

from edgeflock.server.coordination import Push
from edgeflock.server.engine import Accepted, Answer, Engine
from edgeflock.server.roster import Device, Meter, Relay, Traffic
from edgeflock.server.roster.registry import DeviceIdentity
from edgeflock.server.sessions import settle
from edgeflock.shared.errors import Refused, SessionRefused
from edgeflock.shared.model.held_out import Sketch
from edgeflock.shared.settings.config import Config


class _Line:
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
    """The engine behind emulated links. Links call `committed` after every receipt. The server calls `made`
    with each update that is in the model.
    """

    def __init__(
        self,
        config: Config,
        engine: Engine,
        committed: Callable[[], None],
        shape: tuple[int, ...] | None,
        held_out: Sketch | None = None,
        *,
        keep_frames: bool,
        made: Callable[[Push, Accepted], None],
    ) -> None:
        self.config = config
        self.input = shape
        self.held_out = held_out
        self.keep_frames = keep_frames
        self.engine = engine
        self.traffic = Traffic()
        """Framed bytes of WebSocket messages. The HTTP request that opens a session is not counted."""
        self.committed = committed
        self.devices: dict[int, Device] = {}
        """The server's records of devices by number, in virtual time."""
        self._made = made
        self.relay = Relay(config.injection, config.limits.samples)
        self.turned = asyncio.Event()
        """Set and replaced when a round ends, or when a device joins or leaves."""
        self._held: dict[Push, asyncio.Future[Accepted]] = {}
        self._alarm: asyncio.TimerHandle | None = None

    async def push(self, push: Push) -> Accepted:
        """Return the result of one update. Raises the refusal of the update."""
        return await self.take(push)

    def take(self, push: Push) -> asyncio.Future[Accepted]:
        """Return a future of the update's result, which may be held. Raises an immediate refusal."""
        held: asyncio.Future[Accepted] = asyncio.get_running_loop().create_future()
        answer = self._commit([push]).get(push)
        if isinstance(answer, Refused):
            raise answer
        if answer is None:
            self._held[push] = held
        else:
            held.set_result(answer)
        return held

    def hand_out(self, device: int, base: int) -> int | None:
        """Return the device's next data shard in a run of tasks, or None if there is none now."""
        tasks = self.engine.tasks
        assert tasks is not None, "the Welcome says that there are tasks"
        if self.engine.published.version != base:
            return None
        shard = tasks.assign(device, asyncio.get_running_loop().time())
        self._set_alarm()
        return shard

    def hear(self, device: int) -> None:
        """Record that the device has sent a message."""
        if (known := self.devices.get(device)) is not None:
            now = asyncio.get_running_loop().time()
            known.connection.last_seen = known.connection.last_heard = now

    def arrive(self, device: int, name: str, *, shares: bool, shards: Sequence[str] = ()) -> None:
        known = self.devices.setdefault(device, Device(DeviceIdentity(name, device)))
        known.connection.join(_Line())
        self.hear(device)
        if self.engine.tasks is not None:
            self.engine.tasks.set_shards(device, shards)
        self.engine.add_device(device)
        self._turn()
        if shares:
            self.relay.join(device)

    def leave(self, device: int, why: str) -> None:
        if (known := self.devices.get(device)) is not None and known.connection.is_connected:
            known.connection.leave(why)
        self.engine.remove_device(device)
        self.relay.leave(device)
        self._commit([])
        self._turn()

    def look(self) -> None:
        """Check the held updates again after the current callbacks."""
        asyncio.get_running_loop().call_soon(self._ring)

    def _commit(self, pushes: list[Push]) -> dict[Push, Answer]:
        """Commit `pushes` and return their results. Resolve the futures of held updates that are settled."""
        loop = asyncio.get_running_loop()
        before = self.engine.published.version
        staged = self.engine.stage(pushes, loop.time())
        settled = dict(self.engine.publish(staged))
        for push, accepted in staged.applied:
            self._made(push, accepted)
        for push, answer in settled.items():
            if push in self._held:
                settle(self._held.pop(push), answer)
        self._set_alarm()
        if self.engine.published.version != before:
            self._turn()
        return settled

    def _set_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        due = self.engine.due
        self._alarm = None if due is None else asyncio.get_running_loop().call_at(due, self._ring)

    def _ring(self) -> None:
        self._commit([])
        self._turn()

    def _turn(self) -> None:
        turned, self.turned = self.turned, asyncio.Event()
        turned.set()

"""Where devices come in and leave: who is let in, under which name, in whose place.

A session asks its desk; that of a server is here, that of a gateway asks the server's (server/gateway).
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Protocol, TypeVar

from edgeflock.server.roster import WINDOW, Connection, Device, Line, Parcel
from edgeflock.server.sessions.context import RunHost
from edgeflock.server.sessions.task_feed import Send, ServerTaskFeed, TaskFeed
from edgeflock.server.sessions.writer import Writer
from edgeflock.shared.data.account import SampleAccount
from edgeflock.shared.errors import (
    LayoutMismatch,
    Malformed,
    NameInUse,
    ProtocolVersion,
    Quarantined,
    Refused,
)
from edgeflock.shared.identity import names
from edgeflock.shared.protocol.messages import PROTOCOL, Hello, Telemetry

R = TypeVar("R", bound=Refused)


class Authenticator(Protocol):
    """What a device that has joined must prove (identity/entry.py)."""

    @property
    def credential(self) -> bytes:
        """Digest of what it showed."""

    @property
    def headers(self) -> Mapping[str, str]:
        """What the answer to its request asks of it."""

    def check(self, name: str, proof: bytes) -> None:
        """Raises Unauthorized if it is not who it says, Quarantined if it is not to come yet."""

    def quarantine(self, because: str) -> Quarantined:
        """Keep it out for a time; what it is told."""


class AdmittedDevice(NamedTuple):
    """That of a device that is let in."""

    device: Device
    sequence: int
    """The highest number that was accepted of it."""
    secret: bytes
    """What it shows when it comes back."""


class DeviceAdmission(Protocol):
    """Where a session brings its device."""

    @property
    def headers(self) -> Mapping[str, str]:
        """What the answer to the device's request asks of it."""

    async def take(self, line: Line, hello: Hello, frame: bytes) -> AdmittedDevice:
        """Let the device in, or raise the refusal it meets. `frame` is its Hello as it came."""

    def greeted(self, device: Device, version: int) -> None:
        """It has its Welcome."""

    async def turn(self, device: Device) -> None:
        """Wait while others take part and it does not (coordination/cohort.py). Raises Refused if there is no
        use in that.
        """

    def talk(self, device: Device, send: Send) -> TaskFeed | None:
        """What says what it computes, in a run of tasks; `send` tells the device."""

    def tell(self, device: Device, told: Telemetry, frame: bytes) -> None:
        """What it says of itself."""

    def leave(self, device: Device, why: str) -> None:
        """Its session has ended."""

    def refuse(self, device: Device | None, refusal: Refused, *, update: bool = False) -> None:
        """Something of it was refused; an `update` or something else."""

    async def judge(self, device: Device, refusal: R) -> R | Quarantined:
        """What a device is told that is refused: that it is to stay out, if it was refused too often."""


@dataclass(frozen=True, slots=True)
class ServerAdmission:
    """A server's own, for one session."""

    host: RunHost
    writer: Writer
    entry: Authenticator | None = None
    """Without one anybody is believed."""
    through: str = ""
    """The gateway that the device comes through, and"""
    post: Callable[[Device, Parcel], None] | None = None
    """what hands samples of others on to it there."""

    @property
    def headers(self) -> Mapping[str, str]:
        return {} if self.entry is None else self.entry.headers

    async def take(self, line: Line, hello: Hello, frame: bytes) -> AdmittedDevice:
        host, layout = self.host, self.host.layout
        if hello.protocol != PROTOCOL:
            raise ProtocolVersion(f"the server speaks protocol {PROTOCOL}, not {hello.protocol}")
        if self.entry is None and (wrong := names.fault(hello.device)):
            raise Malformed(f"a device's name {wrong}")
        if hello.layout not in (b"", layout.digest):
            raise LayoutMismatch(
                f"the device has layout {hello.layout.hex()}, the run {layout.digest.hex()}; "
                "is it the same model?"
            )
        if self.entry is not None:
            self.entry.check(hello.device, hello.proof)
        shards = _shards_of(hello)
        device = host.registry.admit(hello.device)
        identity, connection = device.identity, device.connection
        while (sequence := await self._took_place(device, line, hello, shards)) is None:
            pass  # another one came in between
        identity.shards = len(shards) if host.engine.tasks is not None else 0
        identity.facts, identity.shares = hello.facts, hello.shares
        device.conduct.quarantined_until = 0.0
        device.statistics.telemetry = {}
        connection.hear()
        self.writer.see(device.id, connection.present)
        if device.statistics.sequence is None:
            # Later it is of what came in since, also while the device was away.
            device.statistics.sequence = sequence
        if identity.shares:
            host.relay.join(device.id, None if self.post is None else partial(self.post, device))
        return AdmittedDevice(device, sequence, connection.secret)

    def greeted(self, device: Device, version: int) -> None:
        by = f", through {self.through}" if self.through else ""
        self.host.hub.note("joined", device, f"at version {version:,}{by}")

    async def turn(self, device: Device) -> None:
        connection = device.connection
        connection.waits = True
        self.host.hub.changed(device)
        try:
            await self.writer.turn(device.id)
        finally:
            connection.waits = False
            connection.hear()  # until now nothing was to come from it
            self.host.hub.changed(device)

    def talk(self, device: Device, send: Send) -> TaskFeed | None:
        tasks = self.host.engine.tasks
        return None if tasks is None else ServerTaskFeed(self.host, self.writer, tasks, device.id, send)

    def tell(self, device: Device, told: Telemetry, frame: bytes) -> None:
        """It says that it is there, and gives nothing: it is as idle as before."""
        device.connection.be_seen()
        before, device.statistics.telemetry = device.rests, told.facts
        self.host.hub.changed(device)
        if (before is None) != (device.rests is None):
            self.writer.see(device.id, device.present)  # others wait for it no longer, or again
            if device.rests is None:
                self.host.hub.note("resumed", device, "by its owner")
            else:
                self.host.hub.note("paused", device, f"by its owner: {device.rests}")

    def leave(self, device: Device, why: str) -> None:
        device.connection.leave(why)
        self.host.relay.leave(device.id)
        self.writer.see(device.id, device.present)
        account = SampleAccount.of(device.statistics.telemetry)
        self.host.hub.note("left", device, why + (f"; {account}" if account is not None else ""))

    def refuse(self, device: Device | None, refusal: Refused, *, update: bool = False) -> None:
        if update and device is not None:
            device.statistics.refuse()
        self.host.hub.refused(device, refusal, self.through)

    async def judge(self, device: Device, refusal: R) -> R | Quarantined:
        most, now = self.host.config.limits.refusals, asyncio.get_running_loop().time()
        if self.entry is None or not device.conduct.refused(refusal, most, now):
            return refusal
        because = f"more than {most} refusals in {WINDOW:g} s, the last {refusal.code}: {refusal}"
        told = await asyncio.to_thread(self.entry.quarantine, because)  # it waits for the disk
        device.conduct.quarantined_until = time.time() + told.seconds
        return told

    async def _took_place(self, device: Device, line: Line, hello: Hello, shards: list[str]) -> int | None:
        """The device's last number, if its name is this line's now: it is not if, while the line that it had
        was looked at, another came.

        Raises NameInUse if the device that has it lives, and its secret was not shown.
        """
        connection, engine = device.connection, self.host.engine
        dead = None if connection.knows(hello.secret) else await _dead(connection, device.name)
        async with connection.arriving:  # in the order of their coming: the newest session stays
            if not device.identity.id:
                device.identity.id = await self.writer.call(lambda: engine.device_id(hello.device))
            if connection.line is not None:
                if connection.line is not dead and not connection.knows(hello.secret):
                    return None
                await connection.line.supersede()
            self.host.registry.admit(hello.device)  # an operator may have dropped it meanwhile
            if (tasks := engine.tasks) is not None:
                await self.writer.call(lambda: tasks.holds(device.id, shards))
            sequence = await self.writer.glance(lambda: engine.receipts.last_sequence(device.id))
            connection.join(line, hello.secret)
        return sequence


def _shards_of(hello: Hello) -> list[str]:
    """The names of what the device holds; if it names nothing, all its data are one shard of its own name."""
    names = hello.shards.split(",") if hello.shards else [hello.device]
    if not all(names) or len(set(names)) < len(names):
        raise Malformed("a device names each shard that it holds once")
    return names


async def _dead(connection: Connection, name: str) -> Line | None:
    """The device's line, if it has one of which nothing comes any more.

    Raises NameInUse if something does: then it is somebody else who comes under its name.
    """
    line = connection.line
    if line is not None and await line.is_alive():
        raise NameInUse(
            f"another device with the name {name} joined; give each its own --name (client.name), or have an "
            "operator drop that one"
        )
    return line

"""Admits devices and lets them leave: checks who a device is, its name, and whose place it takes.

A session uses a DeviceAdmission. The server's is here; a gateway's asks the server's (server/gateway).
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
    """The proof that a joined device must give (identity/entry.py)."""

    @property
    def credential(self) -> bytes:
        """Digest of the credential that it showed."""

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of the answer to its request."""

    def check(self, name: str, proof: bytes) -> None:
        """Raises Unauthorized if the proof does not hold, Quarantined during a quarantine."""

    def quarantine(self, because: str) -> Quarantined:
        """Quarantine the device; return the refusal for it."""


class AdmittedDevice(NamedTuple):
    """An admitted device with its session's first data."""

    device: Device
    sequence: int
    """The highest sequence number of its accepted updates."""
    secret: bytes
    """The secret that it shows when it comes back."""


class DeviceAdmission(Protocol):
    """Admits a session's device."""

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of the answer to the device's request."""

    async def take(self, line: Line, hello: Hello, frame: bytes) -> AdmittedDevice:
        """Admit the device, or raise a refusal. `frame` is the received Hello."""

    def greeted(self, device: Device, version: int) -> None:
        """Note that the device has its Welcome."""

    async def turn(self, device: Device) -> None:
        """Wait while the device is outside the cohort (coordination/cohort.py).

        Raises Refused if its turn will not come."""

    def task_feed(self, device: Device, send: Send) -> TaskFeed | None:
        """The device's task feed, in a run of tasks. `send` sends the device a record."""

    def tell(self, device: Device, told: Telemetry, frame: bytes) -> None:
        """Take the device's telemetry."""

    def leave(self, device: Device, why: str) -> None:
        """Note that its session has ended."""

    def refuse(self, device: Device | None, refusal: Refused, *, update: bool = False) -> None:
        """Note a refusal of an `update` or another record."""

    async def judge(self, device: Device, refusal: R) -> R | Quarantined:
        """The refusal to send: a quarantine if the device was refused too often, else `refusal`."""


@dataclass(frozen=True, slots=True)
class ServerAdmission:
    """The server's own admission, for one session."""

    host: RunHost
    writer: Writer
    entry: Authenticator | None = None
    """None: the device needs no proof."""
    through: str = ""
    """The name of the device's gateway, if it has one."""
    post: Callable[[Device, Parcel], None] | None = None
    """Sends samples of others to the device there."""

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
            pass  # another session came in between
        identity.shards = len(shards) if host.engine.tasks is not None else 0
        identity.facts, identity.shares = hello.facts, hello.shares
        device.conduct.quarantined_until = 0.0
        device.statistics.telemetry = {}
        connection.hear()
        self.writer.see(device.id, connection.present)
        if device.statistics.sequence is None:
            # Afterwards the statistics keep it, also for updates that came while the device was away.
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

    def task_feed(self, device: Device, send: Send) -> TaskFeed | None:
        tasks = self.host.engine.tasks
        return None if tasks is None else ServerTaskFeed(self.host, self.writer, tasks, device.id, send)

    def tell(self, device: Device, told: Telemetry, frame: bytes) -> None:
        """Store the telemetry. The device is present, but still as idle as before."""
        device.connection.be_seen()
        before, device.statistics.telemetry = device.rests, told.facts
        self.host.hub.changed(device)
        if (before is None) != (device.rests is None):
            self.writer.see(device.id, device.present)  # whether others wait for it
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
        """Give this line the device's name, and return the device's last sequence number.

        None if another line came during the check. Raises NameInUse if the device is alive and the secret
        was not shown.
        """
        connection, engine = device.connection, self.host.engine
        dead = None if connection.knows(hello.secret) else await _dead(connection, device.name)
        async with connection.arriving:  # in order of arrival: the newest session stays
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
    """The names of the device's data shards. By default all its data are one shard of its own name."""
    names = hello.shards.split(",") if hello.shards else [hello.device]
    if not all(names) or len(set(names)) < len(names):
        raise Malformed("a device names each shard that it holds once")
    return names


async def _dead(connection: Connection, name: str) -> Line | None:
    """The device's line, if it has one that does not answer any more.

    Raises NameInUse if it answers: then another device uses its name.
    """
    line = connection.line
    if line is not None and await line.is_alive():
        raise NameInUse(
            f"another device with the name {name} joined; give each its own --name (client.name), or have an "
            "operator drop that one"
        )
    return line

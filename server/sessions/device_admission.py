"""Admits devices and lets them leave: checks a device's name and proof, and ends its former session.

A session uses a DeviceAdmission. The server's is here. A gateway's asks its leader (server/gateway).
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Protocol

from edgeflock.server.identity import SessionAuthenticator
from edgeflock.server.roster import WINDOW, Connection, Device, OpenSession, SampleRecord
from edgeflock.server.sessions.context import RunHost
from edgeflock.server.sessions.conversation import DeviceEvents, R
from edgeflock.server.sessions.task_feed import Send, ServerTaskFeed, TaskFeed
from edgeflock.server.sessions.writer import Writer
from edgeflock.shared.data.account import SampleAccount
from edgeflock.shared.errors import (
    BaseInFuture,
    LayoutMismatch,
    Malformed,
    NameInUse,
    ProtocolVersion,
    Quarantined,
    Refused,
    SessionRefused,
)
from edgeflock.shared.identity import names
from edgeflock.shared.protocol.messages import PROTOCOL, Facts, Hello, Telemetry, Update

_LABEL = "label."
"""The beginning of the names of facts that are labels."""


class AdmittedDevice(NamedTuple):
    """An admitted device, and what its Welcome says to it alone."""

    device: Device
    sequence: int
    """The highest sequence number of its accepted updates."""
    secret: bytes
    """The secret with which it may replace this session when it connects again."""


class DeviceAdmission(DeviceEvents, Protocol):
    """Admits a session's device, and lets it leave."""

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of the answer to the device's request."""

    async def admit(self, session: OpenSession, hello: Hello, frame: bytes) -> AdmittedDevice:
        """Admit the device, or raise a refusal. `frame` is the received Hello."""

    def note_welcome(self, device: Device, version: int) -> None:
        """Note that the device has its Welcome."""

    def task_feed(self, device: Device, send: Send) -> TaskFeed | None:
        """The device's task feed; None in a run without tasks. `send` sends the device a record."""

    def leave(self, device: Device, reason: str) -> None:
        """Note that its session has ended."""


@dataclass(frozen=True, slots=True)
class ServerAdmission:
    """The server's own admission, for one session."""

    host: RunHost
    writer: Writer
    authenticator: SessionAuthenticator | None = None
    """None: the device needs no proof."""
    gateway_name: str = ""
    """The name of the device's gateway, if it has one."""
    post: Callable[[Device, SampleRecord], None] | None = None
    """Sends a device behind the gateway the samples that others shared."""

    @property
    def headers(self) -> Mapping[str, str]:
        return {} if self.authenticator is None else self.authenticator.headers

    async def admit(self, session: OpenSession, hello: Hello, frame: bytes) -> AdmittedDevice:
        host, layout = self.host, self.host.layout
        if hello.protocol != PROTOCOL:
            reason = f"the server speaks protocol {PROTOCOL}, not {hello.protocol}"
            if self._is_proven(hello):
                host.registry.note_outdated(hello.device, reason)
            raise ProtocolVersion(reason)
        if self.authenticator is None and (wrong := names.fault(hello.device)):
            raise Malformed(f"a device's name {wrong}")
        if hello.layout not in (b"", layout.digest):
            raise LayoutMismatch(
                f"the device has layout {hello.layout.hex()}, the run {layout.digest.hex()}; "
                "is it the same model?"
            )
        if self.authenticator is not None:
            self.authenticator.check(hello.device, hello.proof)
        shards = _parse_shards(hello)
        device = host.registry.admit(hello.device)
        connection = device.connection
        while (sequence := await self._replace_session(device, session, hello, shards)) is None:
            pass  # another session came in between
        device.shards = len(shards) if host.engine.tasks is not None else 0
        device.facts, device.shares = hello.facts, hello.shares
        given = {} if self.authenticator is None else self.authenticator.labels
        device.labels = {**_labels_in(hello.facts), **given}
        device.conduct.quarantined_until = 0.0
        device.statistics.telemetry = {}
        connection.mark_active()
        self.writer.set_presence(device.id, connection.present)
        if device.statistics.sequence is None:
            # Later the statistics follow it themselves, also for updates that were held as the device left.
            device.statistics.sequence = sequence
        if device.shares:
            host.relay.join(device.id, None if self.post is None else partial(self.post, device))
        return AdmittedDevice(device, sequence, connection.secret)

    def _is_proven(self, hello: Hello) -> bool:
        """Whether the device is who it says, as far as the run asks for proof."""
        if self.authenticator is None:
            return not names.fault(hello.device)
        try:
            self.authenticator.check(hello.device, hello.proof)
        except SessionRefused:
            return False
        return True

    def note_welcome(self, device: Device, version: int) -> None:
        by = f", through {self.gateway_name}" if self.gateway_name else ""
        self.host.hub.note("joined", device, f"at version {version:,}{by}")

    async def wait_for_turn(self, device: Device) -> None:
        self.mark_waiting(device, waits=True)
        try:
            await self.writer.wait_for_turn(device.id)
        finally:
            self.mark_waiting(device, waits=False)

    def mark_waiting(self, device: Device, *, waits: bool) -> None:
        device.connection.awaits_turn = waits
        if not waits:
            device.connection.mark_active()  # its silence counts from now: it could send nothing before
        self.host.hub.mark_changed(device)

    def task_feed(self, device: Device, send: Send) -> TaskFeed | None:
        in_tasks = self.host.engine.tasks is not None
        return ServerTaskFeed(self.host, self.writer, device.id, send) if in_tasks else None

    def count_update(self, device: Device, update: Update, staleness: int) -> None:
        self.host.hub.count_update(device, update, staleness)

    def count_duplicate(self, device: Device) -> None:
        self.host.hub.count_duplicate(device)

    def note_ahead(self, device: Device, detail: str) -> None:
        self.host.hub.note("refused", device, f"{BaseInFuture.code}: {detail}")

    def take_telemetry(self, device: Device, telemetry: Telemetry, frame: bytes) -> None:
        """Store the telemetry. The device is present, but still as idle as before."""
        device.connection.mark_seen()
        before, device.statistics.telemetry = device.owner_pause, telemetry.facts
        self.host.hub.mark_changed(device)
        if (before is None) != (device.owner_pause is None):
            self.writer.set_presence(device.id, device.present)  # whether others wait for it
            if device.owner_pause is None:
                self.host.hub.note("resumed", device, "by its owner")
            else:
                self.host.hub.note("paused", device, f"by its owner: {device.owner_pause}")

    def leave(self, device: Device, reason: str) -> None:
        device.connection.leave(reason)
        self.host.relay.leave(device.id)
        self.writer.set_presence(device.id, device.present)
        account = SampleAccount.from_facts(device.statistics.telemetry)
        self.host.hub.note("left", device, reason + (f"; {account}" if account is not None else ""))

    def note_refusal(self, device: Device | None, refusal: Refused, *, update: bool = False) -> None:
        if update and device is not None:
            device.statistics.count_refusal()
        self.host.hub.count_refusal(device, refusal, self.gateway_name)

    async def judge(self, device: Device, refusal: R) -> R | Quarantined:
        limit, now = self.host.config.limits.refusals, asyncio.get_running_loop().time()
        if self.authenticator is None or not device.conduct.count_refusal(refusal, limit, now):
            return refusal
        reason = f"more than {limit} refusals in {WINDOW:g} s, the last {refusal.code}: {refusal}"
        verdict = await asyncio.to_thread(self.authenticator.quarantine, reason)  # it waits for the disk
        device.conduct.quarantined_until = time.time() + verdict.seconds
        return verdict

    async def _replace_session(
        self, device: Device, session: OpenSession, hello: Hello, shards: list[str]
    ) -> int | None:
        """Give this session the device's name, and return the device's last sequence number.

        None if another session came during the check. Raises NameInUse if the device's session is alive and
        `hello` does not show its secret.
        """
        connection, engine = device.connection, self.host.engine
        dead = None if connection.has_secret(hello.secret) else await _find_dead(connection, device.name)
        async with connection.replacement_lock:  # in order of arrival: the newest session stays
            if not device.id:
                device.id = await self.writer.call(lambda: engine.device_id(hello.device))
            if connection.session is not None:
                if connection.session is not dead and not connection.has_secret(hello.secret):
                    return None
                await connection.session.supersede()
            self.host.registry.admit(hello.device)  # an operator may have dropped it meanwhile
            if (tasks := engine.tasks) is not None:
                await self.writer.call(lambda: tasks.set_shards(device.id, shards))
            sequence = await self.writer.read(lambda: engine.receipts.last_sequence(device.id))
            connection.join(session, hello.secret)
        return sequence


def _labels_in(facts: Facts) -> dict[str, str]:
    """Return NAME -> VALUE of the labels that a device's owner has given it (client.labels)."""
    found = {key.removeprefix(_LABEL): value for key, value in facts.items() if key.startswith(_LABEL)}
    return {name: value for name, value in found.items() if isinstance(value, str)}


def _parse_shards(hello: Hello) -> list[str]:
    """Return the device's data shards. By default all its data are one shard with the device's name."""
    names = hello.shards.split(",") if hello.shards else [hello.device]
    if not all(names) or len(set(names)) < len(names):
        raise Malformed("a device names each shard that it holds once")
    return names


async def _find_dead(connection: Connection, name: str) -> OpenSession | None:
    """Return the device's session if it does not answer any more; None if it has none.

    Raises NameInUse if it answers: then two devices use one name.
    """
    session = connection.session
    if session is not None and await session.is_alive():
        raise NameInUse(
            f"another device with the name {name} joined; give each its own --name (client.name), or have an "
            "operator drop that one"
        )
    return session

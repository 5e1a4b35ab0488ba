"""The devices of a run, as the server knows them."""

import asyncio
import hmac
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from edgeflock.server.journal import Account
from edgeflock.server.traffic import Meter
from edgeflock.shared import sparse
from edgeflock.shared.errors import TooManyDevices
from edgeflock.shared.messages import Facts, Update

if TYPE_CHECKING:
    from edgeflock.server.session import Session


@dataclass(slots=True)
class Device:
    """One device: who it is, what it did, how much it cost."""

    id: int
    """Its number in the journal; 0 until it has one."""
    name: str
    facts: Facts = field(default_factory=dict)
    """What it told with its Hello."""
    telemetry: Facts = field(default_factory=dict)
    """What its updates told last."""
    session: "Session | None" = None
    arriving: asyncio.Lock = field(default_factory=asyncio.Lock)
    sequence: int = 0
    """The last update that is counted here; a resent one is not counted again."""
    updates: int = 0
    compressed: int = 0
    """Updates that held a selection of the gradient, since the server started; and"""
    uncompressed: int = 0
    """those that held all of it."""
    refused: int = 0
    staleness: int = 0
    loss: float = 0.0
    samples: int = 0
    shares: bool = False
    """Whether it said that its owner lets samples of it go to others. Since the server started:"""
    shared: int = 0
    """Samples that it shared, and"""
    received: int = 0
    """samples of others that were sent to it."""
    last_seen: float = 0.0
    past: Meter = field(default_factory=Meter)
    """Traffic of its earlier connections."""

    @property
    def traffic(self) -> tuple[int, int]:
        """(ingress, egress) of all its connections."""
        now = self.session.meter if self.session else Meter()
        return self.past.ingress + now.ingress, self.past.egress + now.egress

    def count(self, update: Update, staleness: int) -> None:
        """Take note of an accepted update."""
        if update.sequence > self.sequence:
            self.sequence = update.sequence
            self.updates += 1
            self.samples += update.samples
            self.loss = update.loss
            self.staleness = max(0, staleness)
            if update.index_mode == sparse.DENSE:
                self.uncompressed += 1
            else:
                self.compressed += 1
            if update.facts is not None:
                self.telemetry = update.facts


class Registry:
    """Devices by name, and the secret that lets them in."""

    def __init__(self, token: str, limit: int, known: Iterable[Account] = ()) -> None:
        """An empty token lets everybody in. `known` are the devices of the run's past."""
        self._token = token.encode()
        self._limit = limit
        self.devices: dict[str, Device] = {
            account.name: Device(
                account.device,
                account.name,
                updates=account.updates,
                past=Meter(account.ingress, account.egress),
            )
            for account in known
        }

    def traffic(self) -> list[tuple[int, int, int]]:
        """(device, ingress, egress) for each."""
        return [(device.id, *device.traffic) for device in self.devices.values()]

    def present(self) -> set[int]:
        """The devices that are connected."""
        return {device.id for device in self.devices.values() if device.session is not None}

    def authorised(self, header: str) -> bool:
        """Whether an Authorization header carries the token."""
        octets = header.encode("utf-8", "surrogateescape")  # a header may hold any byte
        return not self._token or hmac.compare_digest(octets, b"Bearer " + self._token)

    def admit(self, name: str) -> Device:
        """The device of this name. Raises TooManyDevices if it is new and there is no room for it."""
        device = self.devices.get(name)
        if device is None:
            if len(self.devices) >= self._limit:
                raise TooManyDevices(f"the server takes {self._limit} devices (limits.devices)")
            device = self.devices[name] = Device(0, name)
        return device

"""A gateway's counterpart of a server's RunHost: what its sessions use."""

import logging
from dataclasses import dataclass, field

from edgeflock.server.engine import Published
from edgeflock.server.gateway.mirror import Mirror
from edgeflock.server.gateway.relay import GatewayRelay
from edgeflock.server.roster import Device, Paces, Traffic
from edgeflock.shared.model.description import Description
from edgeflock.shared.model.held_out import Sketch
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.protocol.frames import EventKind
from edgeflock.shared.protocol.messages import Update
from edgeflock.shared.settings.config import Config

log = logging.getLogger(__name__)


class Tally:
    """What the leader does not have to be told, since it knows."""

    updates = 0

    def updated(self, device: Device, update: Update, staleness: int) -> None:
        self.updates += 1

    def duplicate(self, device: Device) -> None:
        """In a run of tasks."""

    def note(self, kind: EventKind, device: Device | None, text: str) -> None:
        log.info("%s %s: %s", kind, "" if device is None else device.name, text)


@dataclass(frozen=True, slots=True)
class GatewayFront:
    """As long as one leader is followed."""

    engine: Mirror
    traffic: Traffic
    relay: GatewayRelay
    paces: Paces
    hub: Tally
    devices: dict[str, Device] = field(default_factory=dict)
    """Those that are connected, by name."""

    @classmethod
    def of(cls, mirror: Mirror, traffic: Traffic, relay: GatewayRelay) -> "GatewayFront":
        return cls(mirror, traffic, relay, Paces(mirror.config.limits), Tally())

    @property
    def run(self) -> str:
        return self.engine.terms.run

    @property
    def config(self) -> Config:
        return self.engine.config

    @property
    def input(self) -> tuple[int, ...] | None:
        return self.engine.terms.input

    @property
    def described(self) -> Description | None:
        return self.engine.terms.data

    @property
    def held_out(self) -> Sketch | None:
        return self.engine.terms.held_out

    @property
    def app(self) -> bytes:
        return self.engine.terms.app

    @property
    def published(self) -> Published:
        return self.engine.published

    @property
    def layout(self) -> Layout:
        return self.engine.layout

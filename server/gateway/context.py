"""The leader's run as a gateway's sessions see it."""

import logging
from dataclasses import dataclass, field

from edgeflock.server.connections import Traffic
from edgeflock.server.gateway.mirror import Mirror
from edgeflock.server.gateway.relay import GatewayRelay
from edgeflock.server.roster import Device, RateLimiters
from edgeflock.server.sessions import SessionContext
from edgeflock.shared.protocol.frames import EventKind
from edgeflock.shared.protocol.messages import Update

log = logging.getLogger(__name__)


class GatewayCounter:
    """A counter of what the leader already knows."""

    updates = 0

    def count_update(self, device: Device, update: Update, staleness: int) -> None:
        self.updates += 1

    def count_duplicate(self, device: Device) -> None:
        """Do nothing. Called in a run of tasks."""

    def note(self, kind: EventKind, device: Device | None, text: str) -> None:
        log.info("%s %s: %s", kind, "" if device is None else device.name, text)


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayContext(SessionContext):
    """The context of sessions while one leader is followed."""

    engine: Mirror
    relay: GatewayRelay
    devices: dict[str, Device] = field(default_factory=dict)
    """The connected devices, by name."""

    @classmethod
    def from_mirror(cls, mirror: Mirror, traffic: Traffic, relay: GatewayRelay) -> "GatewayContext":
        config, terms = mirror.config, mirror.terms
        return cls(
            run=terms.run,
            config=config,
            engine=mirror,
            hub=GatewayCounter(),
            traffic=traffic,
            relay=relay,
            rate_limiters=RateLimiters(config.limits),
            input=terms.input,
            description=terms.data,
            app=terms.app,
            held_out=terms.held_out,
            personal=terms.personal,
        )

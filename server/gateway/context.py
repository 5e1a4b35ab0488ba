"""The leader's run as a gateway's sessions see it."""

import logging

from edgeflock.server.connections import Traffic
from edgeflock.server.gateway.mirror import Mirror
from edgeflock.server.gateway.relay import GatewayRelay
from edgeflock.server.roster import Device, RateLimiters
from edgeflock.server.sessions import SessionContext
from edgeflock.shared.protocol.frames import EventKind
from edgeflock.shared.protocol.messages import Update

log = logging.getLogger(__name__)


class GatewayEvents:
    """The events of sessions: the leader counts updates, and this gateway logs the rest."""

    def count_update(self, device: Device, update: Update, staleness: int) -> None:
        """Do nothing: the leader counts."""

    def count_duplicate(self, device: Device) -> None:
        """Do nothing: the leader counts."""

    def note(self, kind: EventKind, device: Device | None, text: str) -> None:
        log.info("%s %s: %s", kind, "" if device is None else device.name, text)


def context_of(mirror: Mirror, traffic: Traffic, relay: GatewayRelay) -> SessionContext:
    """Return the context of sessions while one leader is followed."""
    config, terms = mirror.config, mirror.terms
    return SessionContext(
        run=terms.run,
        config=config,
        engine=mirror,
        hub=GatewayEvents(),
        traffic=traffic,
        relay=relay,
        rate_limiters=RateLimiters(config.limits),
        input=terms.input,
        description=terms.data,
        app=terms.app,
        held_out=terms.held_out,
        personal=terms.personal,
        adds_model=not config.coordination.traits.cohort,  # there a device asks, and the leader says when
    )

"""The leader's run as a gateway's sessions see it."""

from edgeflock.server.connections import Traffic
from edgeflock.server.gateway.mirror import Mirror
from edgeflock.server.gateway.relay import GatewayRelay
from edgeflock.server.roster import RateLimiters
from edgeflock.server.sessions import SessionContext


def context_of(mirror: Mirror, traffic: Traffic, relay: GatewayRelay) -> SessionContext:
    """Return the context of sessions while one leader is followed."""
    config, terms = mirror.config, mirror.terms
    return SessionContext(
        run=terms.run,
        config=config,
        engine=mirror,
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

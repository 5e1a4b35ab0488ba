"""What sessions are about."""

from dataclasses import dataclass

from edgeflock.server.engine import Engine
from edgeflock.server.roster import Hub, Registry, Relay, Traffic
from edgeflock.server.sessions.writer import Writer
from edgeflock.shared.settings.config import Config


@dataclass(frozen=True, slots=True)
class Host:
    """The run, and those who take care of its devices."""

    run: str
    config: Config
    engine: Engine
    writer: Writer
    registry: Registry
    traffic: Traffic
    relay: Relay
    hub: Hub

"""The run, for whoever serves it: sessions, and what operators ask."""

from dataclasses import dataclass

from edgeflock.server.engine import Engine, Published
from edgeflock.server.roster import Hub, Paces, Registry, Relay, Traffic
from edgeflock.shared.model.layout import Beside, Layout
from edgeflock.shared.settings.config import Config


@dataclass(frozen=True, slots=True)
class Host:
    """The run, and what is known of its devices. The engine is only the writer's to touch."""

    run: str
    config: Config
    engine: Engine
    registry: Registry
    hub: Hub
    traffic: Traffic
    relay: Relay
    paces: Paces
    input: tuple[int, ...] | None
    """The shape of a sample's x, if it is known."""
    beside: Beside
    """What a saved model has beside theta."""
    app: bytes = b""
    """What devices' own apps are told."""

    @property
    def published(self) -> Published:
        """What of the model is durable by now."""
        return self.engine.published

    @property
    def layout(self) -> Layout:
        return self.engine.layout

"""What sessions use of a run (`SessionContext`), and what its server has of it besides (`RunHost`)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from edgeflock.server.coordination import Push
from edgeflock.server.engine import Accepted, Engine, Published
from edgeflock.server.publication import Outlet
from edgeflock.server.roster import Device, Hub, Parcel, RateLimiters, Registry, Relay, Traffic
from edgeflock.server.sessions.writer import PendingUpdate
from edgeflock.shared.model.description import Description
from edgeflock.shared.model.held_out import Sketch
from edgeflock.shared.model.layout import Beside, Layout
from edgeflock.shared.model.start import Start
from edgeflock.shared.protocol.frames import EventKind
from edgeflock.shared.protocol.messages import Samples, Update
from edgeflock.shared.settings.config import Config

T = TypeVar("T")


class ServedModel(Protocol):
    """The model, as sessions ask for it: an engine, or a gateway's copy."""

    @property
    def layout(self) -> Layout: ...
    @property
    def start(self) -> Start | None: ...
    @property
    def published(self) -> Published: ...
    @property
    def outlet(self) -> Outlet: ...


class SessionEvents(Protocol):
    """What sessions tell a Hub of devices that were let in."""

    def updated(self, device: Device, update: Update, staleness: int) -> None:
        """An update was accepted, now or already before."""

    def duplicate(self, device: Device) -> None:
        """An update was of a task that another device had computed before."""

    def note(self, kind: EventKind, device: Device | None, text: str) -> None:
        """Something happened, to `device` if it is one's."""


class SampleExchange(Protocol):
    """What sessions ask a Relay."""

    def share(self, device: int, samples: Samples, octets: bytes) -> None: ...
    def take(self, device: int) -> list[Parcel]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionContext:
    """What a session uses of its run, at a server or at a gateway."""

    run: str
    config: Config
    engine: ServedModel
    hub: SessionEvents
    traffic: Traffic
    relay: SampleExchange
    paces: RateLimiters
    input: tuple[int, ...] | None
    """The shape of a sample's x, if it is known, and"""
    described: Description | None
    """what its numbers are, if they have names or units."""
    app: bytes = b""
    """What devices' own apps are told."""
    held_out: Sketch | None = None
    """Of the rows that the run is evaluated on."""

    @property
    def published(self) -> Published:
        """What of the model is durable by now."""
        return self.engine.published

    @property
    def layout(self) -> Layout:
        return self.engine.layout


@dataclass(frozen=True, slots=True, kw_only=True)
class RunHost(SessionContext):
    """The run at its server. The engine is only the writer's to touch."""

    engine: Engine
    hub: Hub
    relay: Relay
    registry: Registry
    beside: Beside
    """What a saved model has beside theta."""


class UpdateQueue(Protocol):
    """What sessions need of a Writer."""

    async def push(self, push: Push) -> Accepted | PendingUpdate:
        """What comes of one update, durable. Raises the Refused that it meets."""

    async def call(self, function: Callable[[], T]) -> T:
        """Run `function` while the model is at rest."""

"""The run, for whoever serves it: sessions, and what operators ask."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from edgeflock.server.coordination import Push
from edgeflock.server.engine import Accepted, Engine, Published
from edgeflock.server.publication import Outlet
from edgeflock.server.roster import Device, Hub, Paces, Parcel, Registry, Relay, Traffic
from edgeflock.server.sessions.writer import PendingUpdate
from edgeflock.shared.model.description import Description
from edgeflock.shared.model.held_out import Sketch
from edgeflock.shared.model.layout import Beside, Layout
from edgeflock.shared.model.start import Start
from edgeflock.shared.protocol.frames import EventKind
from edgeflock.shared.protocol.messages import Samples, Update
from edgeflock.shared.settings.config import Config

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RunHost:
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
    """The shape of a sample's x, if it is known, and"""
    described: Description | None
    """what its numbers are, if they have names or units."""
    beside: Beside
    """What a saved model has beside theta."""
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


class Theta(Protocol):
    """The model, as sessions ask for it: an engine, or a gateway's copy."""

    @property
    def layout(self) -> Layout: ...
    @property
    def start(self) -> Start | None: ...
    @property
    def published(self) -> Published: ...
    @property
    def outlet(self) -> Outlet: ...


class Heard(Protocol):
    """What sessions tell a Hub of devices that were let in."""

    def updated(self, device: Device, update: Update, staleness: int) -> None:
        """An update was accepted, now or already before."""

    def duplicate(self, device: Device) -> None:
        """An update was of a task that another device had computed before."""

    def note(self, kind: EventKind, device: Device | None, text: str) -> None:
        """Something happened, to `device` if it is one's."""


class Dealer(Protocol):
    """What sessions ask a Relay."""

    def share(self, device: int, samples: Samples, octets: bytes) -> None: ...
    def take(self, device: int) -> list[Parcel]: ...


class Front(Protocol):
    """The part of a RunHost that sessions use; a gateway has it, too."""

    @property
    def run(self) -> str: ...
    @property
    def config(self) -> Config: ...
    @property
    def engine(self) -> Theta: ...
    @property
    def hub(self) -> Heard: ...
    @property
    def traffic(self) -> Traffic: ...
    @property
    def relay(self) -> Dealer: ...
    @property
    def paces(self) -> Paces: ...
    @property
    def input(self) -> tuple[int, ...] | None: ...
    @property
    def described(self) -> Description | None: ...
    @property
    def held_out(self) -> Sketch | None: ...
    @property
    def app(self) -> bytes: ...
    @property
    def published(self) -> Published: ...
    @property
    def layout(self) -> Layout: ...


class Queue(Protocol):
    """What sessions need of a Writer."""

    async def push(self, push: Push) -> Accepted | PendingUpdate:
        """What comes of one update, durable. Raises the Refused that it meets."""

    async def call(self, function: Callable[[], T]) -> T:
        """Run `function` while the model is at rest."""

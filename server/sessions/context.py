"""The parts of a run that sessions use (`SessionContext`), and those that only its server has (`RunHost`)."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

from edgeflock.server.connections import Traffic
from edgeflock.server.coordination import Push
from edgeflock.server.engine import Accepted, Engine, Published
from edgeflock.server.publication import Outlet
from edgeflock.server.roster import Hub, RateLimiters, Registry, Relay
from edgeflock.server.sessions.answers import PendingUpdate, SumAnswer
from edgeflock.shared.model.layout import ExtraState, Layout
from edgeflock.shared.model.lora import Adapted
from edgeflock.shared.model.start import Weights
from edgeflock.shared.protocol.frames import RunState
from edgeflock.shared.protocol.messages import SecureSum, Welcome
from edgeflock.shared.settings.config import Config

T = TypeVar("T")


class ServedModel(Protocol):
    """The model as sessions see it: an engine, or a gateway's copy."""

    @property
    def layout(self) -> Layout: ...
    @property
    def published(self) -> Published: ...
    @property
    def outlet(self) -> Outlet: ...


class Sums(Protocol):
    """The part of SecureSums that sessions use."""

    async def take(self, device: int, time: float, message: SecureSum) -> SumAnswer:
        """Return the answer to a step of a device, which may take long. Raises Refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionContext:
    """The parts of a run that a session uses, at a server or at a gateway."""

    config: Config
    engine: ServedModel
    traffic: Traffic
    relay: Relay
    rate_limiters: RateLimiters
    terms: Welcome
    """The Welcome, without what is one device's own."""
    sums: Sums | None = None
    """The secure sums, in a run of such."""
    adds_model: bool = False
    """Whether receipts come without the model, which the session adds."""

    @property
    def published(self) -> Published:
        """The published state of the model, which is durable."""
        return self.engine.published

    @property
    def layout(self) -> Layout:
        return self.engine.layout

    def public_status(self, state: RunState) -> dict[str, Any]:
        """Return what every participant may read of the run, in plain JSON types."""
        return {
            "run": self.terms.run,
            "state": state,
            "diverged": self.published.diverged,
            "model": self.config.model.module,
            "parameters": self.layout.parameters.size,
            "version": self.published.version,
            "updates_target": self.config.end.updates,
        }

    def welcome(self, version: int, weights: Weights | None, sequence: int, secret: bytes) -> Welcome:
        """Return the Welcome for a device: the first model's file, its last update and its secret."""
        return replace(self.terms, version=version, weights=weights, sequence=sequence, secret=secret)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunHost(SessionContext):
    """The run at its server. Only the writer may use the engine."""

    engine: Engine
    hub: Hub
    registry: Registry
    extra_tensors: ExtraState
    """The tensors of a saved model that are not in theta."""
    adapted: Adapted | None
    """The base of a model whose adapters theta has."""


class UpdateQueue(Protocol):
    """The part of a Writer that sessions use."""

    def push(self, push: Push) -> Awaitable[Accepted | PendingUpdate]:
        """Push one update; return its durable result. Raises the Refused that it gets."""

    async def call(self, function: Callable[[], T]) -> T:
        """Return the result of `function`, which runs while nothing changes the model."""

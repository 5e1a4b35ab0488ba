"""Small fleets: models of a few hundred parameters, and runs that are watched."""

import asyncio
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from edgeflock.client.zoo import DigitsCNN
from edgeflock.devices.emulation.config import FleetFile, parse
from edgeflock.devices.emulation.fleet import FleetResult, PreparedFleet, prepare, run_fleet, running
from edgeflock.devices.emulation.server import EmulatedServer
from edgeflock.server.coordination.coordinator import Push
from edgeflock.server.engine.outcomes import Accepted
from edgeflock.server.monitoring.listeners import Callbacks
from edgeflock.server.sessions import PendingUpdate
from edgeflock.shared.errors import Refused
from edgeflock.shared.model.gradient import Gradient
from edgeflock.shared.model.torch_module import FlatModule
from edgeflock.shared.protocol.frames import Evaluation
from edgeflock.shared.protocol.messages import Receipt

ONE = """\
[end]
updates = 20
[local]
optimizer = "sgd"

[model]
module = "tests.devices.emulation.fleets:Linear"

[coordination]
average = 0

[compression]
select = 0.05
balance = 1
feedback = 0
indices = "golomb"
values = "codebook4"

[downlink]
mode = "exact"

[fleet]
devices = 1
samples = 300
evaluate_every = 1

[devices.pi]
step_ms = 100
"""
"""One device, whose step takes a tenth of a second and whose messages take no time."""

MIXED = """\
[end]
updates = 40
[local]
optimizer = "sgd"

[model]
module = "tests.devices.emulation.fleets:Linear"

[coordination]
average = 0

[compression]
select = 0.05
balance = 1
feedback = 0
indices = "golomb"
values = "codebook4"

[downlink]
mode = "exact"

[fleet]
devices = 6
samples = 300
evaluate_every = 4

[devices.quick]
step_ms = 10
spread = 0.3
share = 2

[devices.slow]
step_ms = 40
timing = "exponential"
uplink_mbps = 1
downlink_mbps = 2
latency_ms = 5
"""
"""Four quick devices and two slow ones, no two of which are ever in step."""

CHURN = ("devices.quick.session_s=0.05", "devices.quick.away_s=0.03", "devices.slow.crash=0.2")
"""Settings for MIXED: devices that leave, come back and crash."""


class Linear(nn.Sequential):
    """8 x 8 images in 10 classes: 650 parameters."""

    def __init__(self) -> None:
        super().__init__(nn.Flatten(), nn.Linear(64, 10))


class Wide(nn.Linear):
    """512 numbers in 2 classes, without biases: 1,024 parameters."""

    def __init__(self) -> None:
        super().__init__(512, 2, bias=False)


class Normed(nn.Sequential):
    """8 x 8 images in 10 classes, with BatchNorm: 2,978 parameters and 16 running statistics."""

    def __init__(self) -> None:
        super().__init__(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 10))


class Pretrained(DigitsCNN):
    """Under every seed the same."""

    def __init__(self) -> None:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            super().__init__()


class Counted(running.TimedBackend):
    """A backend that counts its gradients."""

    gradients = 0

    def gradient(
        self, theta: NDArray[np.float32], x: NDArray[np.float32], y: NDArray[np.generic]
    ) -> Gradient:
        self.gradients += 1
        return super().gradient(theta, x, y)


class CountedModule(FlatModule):
    """A model that counts its evaluations."""

    evaluations = 0

    def evaluate(self, *arguments: Any, **named: Any) -> tuple[float, float | None]:
        self.evaluations += 1
        return super().evaluate(*arguments, **named)


@dataclass(frozen=True, slots=True)
class Arrival:
    """One update at the server, and what became of it."""

    push: Push
    seconds: float
    answer: Receipt | Refused


class Watched(EmulatedServer):
    """A server that remembers every update."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.arrivals: list[Arrival] = []

    async def push(self, push: Push) -> PendingUpdate:
        now = asyncio.get_running_loop().time()

        def note(outcome: Accepted | Refused) -> None:
            answer = outcome if isinstance(outcome, Refused) else outcome.receipt
            self.arrivals.append(Arrival(push, now, answer))

        try:
            pending = await super().push(push)
        except Refused as refusal:
            note(refusal)
            raise
        pending.on_settled(note)
        return pending

    @property
    def accepted(self) -> list[tuple[Push, Receipt]]:
        return [(one.push, one.answer) for one in self.arrivals if isinstance(one.answer, Receipt)]


@dataclass(frozen=True, slots=True)
class Ran:
    """A run."""

    result: FleetResult
    """Without its real seconds, so that equal runs have equal ones."""
    rows: list[Evaluation]
    gradients: int
    evaluations: int
    server: Watched


def fleet_of(toml: str, *settings: str) -> FleetFile:
    return parse(toml, "fleet.toml", settings)


def run(file: FleetFile, *, seed: int = 0) -> Ran:
    """Run a fleet."""
    rows: list[Evaluation] = []
    servers: list[Watched] = []
    backends: list[Counted] = []
    modules: list[CountedModule] = []

    def make_server(*arguments: Any, **settings: Any) -> Watched:
        servers.append(Watched(*arguments, **settings))
        return servers[-1]

    def make_backend(*arguments: Any, **settings: Any) -> Counted:
        backends.append(Counted(*arguments, **settings))
        return backends[-1]

    def make_module(*arguments: Any) -> CountedModule:
        modules.append(CountedModule(*arguments))
        return modules[-1]

    prepared = _prepared(file.model_dump_json())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running, "EmulatedServer", make_server)
        patch.setattr(running, "TimedBackend", make_backend)
        patch.setattr(running, "FlatModule", make_module)
        result = run_fleet(prepared, seed, Callbacks(on_evaluated=rows.append))
    outcome = replace(result, gradient_s=0.0, evaluation_s=0.0, total_s=0.0)
    return Ran(outcome, rows, backends[0].gradients, modules[0].evaluations, servers[0])


@cache
def _prepared(file: str) -> PreparedFleet:
    return prepare(FleetFile.model_validate_json(file))

"""Section 4.1 of the paper, figures 4 and 5: three nodes of 5 or 10 workers that learn by acting.

What the paper does not say is ours: policies, batches, rates, and how long a step takes. A worker takes a
core of a node; those of a node share its link of 1 Gbps. IMPALA is not here: its learner gets observations
rather than gradients.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from edgeflock.devices.emulation.config import FleetFile
from edgeflock.papers.easgd.settings import NODES, chunk_count
from edgeflock.papers.reproduce import AS_PUBLISHED, Experiment, Method, Scale, fleet_file
from edgeflock.shared.environments import Constants

WORKERS = (5, 10)
"""Workers on a node."""
EVALUATIONS = 20
_NODE_MBPS = 1000.0


@dataclass(frozen=True, slots=True)
class Game:
    """An environment, its policy, and the times of a worker."""

    name: str
    environment: str
    policy: str
    solved: float | None
    """The mean return that counts as solved."""
    step_ms: float
    """Milliseconds of a gradient and its overhead."""
    sample_ms: float
    """Milliseconds of a step in the environment, and of the gradient of one more sample."""
    chunk: int
    """Parameters that staggered EASGD exchanges together."""
    episodes: int = 20
    """Episodes of an evaluation."""
    envs: int = 64
    """The most environments of a worker at a time: a game of ale-py takes a fifth of a second to load."""


ACROBOT = Game(
    "Acrobot", "Acrobot-v1", "edgeflock.client.zoo:ActorCritic(observations=6, actions=3)", -100, 5, 1, 1000
)
CARTPOLE = Game("CartPole", "CartPole-v1", "edgeflock.client.zoo:ActorCritic", 475, 5, 1, 1000)
QBERT = Game(
    "QBert", "ALE/Qbert-v5", "edgeflock.client.zoo:PixelActorCritic(actions=6)", None, 40, 4, 100_000, 1, 1
)
GAMES = (ACROBOT, CARTPOLE, QBERT)
LEARNED = (ACROBOT, CARTPOLE)
"""The games of figure 4. Only the throughput of QBert is measured."""


@dataclass(frozen=True, slots=True)
class Agent:
    """A method, and how its workers act."""

    method: Method
    batch: int = 16
    """Environment steps of a gradient."""
    local_steps: int = 1
    envs: int = 4
    """Environments of a worker at a time."""
    loss: str = "a2c"
    staggered: bool = False
    """EASGD exchanges layers one by one, and each exchange is an update."""

    @property
    def epochs(self) -> int:
        """How often training uses each environment step."""
        return Constants.from_loss(self.loss).epochs

    def updates(self, game: Game, workers: int, seconds: float) -> int:
        """How many `workers` make in so many seconds if nobody waits."""
        step = game.step_ms + game.sample_ms * self.batch / self.epochs
        parts = chunk_count(game.policy, "a2c", game.chunk) if self.staggered else 1
        return max(1, int(parts * workers * 1000 * seconds / step / self.local_steps))


_ADAM: dict[str, object] = {"coordination.rule": "none", "optimizer.kind": "adam"}
_DENSE: dict[str, object] = {"compression.select": 1.0}
_ELASTIC: dict[str, object] = {
    **_DENSE,
    "coordination.mode": "elastic",
    "coordination.rule": "elastic",
    "local.optimizer": "adafactor",
    "local.rate": 0.02,
}

A3C = Agent(Method("A3C", {**_DENSE, **_ADAM}, 0.001))
EASGD = Agent(Method("EASGD", _ELASTIC, 0.02), local_steps=10)
STAGGERED = Agent(Method("staggered EASGD", _ELASTIC, 0.02), local_steps=10, staggered=True)
ASP = Agent(
    Method(
        "ASP",
        {
            **_ADAM,
            "compression.selection": "significance",
            "compression.significance": 0.01,
            "compression.feedback": 1.0,
            "coordination.gate": "asp",
            "coordination.bound": 4,
        },
        0.001,
    )
)
PPO = Agent(Method("PPO", {**_DENSE, **_ADAM, "coordination.mode": "rounds"}, 0.001), batch=32, loss="ppo")
DEFAULT = Agent(Method("Edgeflock", {}, 0.0), batch=64, loss="ppo")
AGENTS = (A3C, EASGD, STAGGERED, ASP, PPO, DEFAULT)


@dataclass(frozen=True, slots=True)
class Horizon(Scale):
    """How much is run: virtual seconds for the returns of figure 4, and for the throughput of QBert."""

    learning: float
    throughput: float
    workers: tuple[int, ...]


FULL = Horizon(12.0, 3.0, WORKERS, seeds=(0, 1, 2))
QUICK = Horizon(3.0, 2.0, WORKERS[:1], seeds=(0,))


def learning(horizon: Horizon) -> Iterator[Experiment]:
    """Figure 4."""
    for game in LEARNED:
        for workers in horizon.workers:
            for agent in AGENTS:
                file = _fleet(game, agent, workers, horizon.learning, EVALUATIONS)
                yield Experiment(part_of(game, workers), agent.method.name, agent.method, file)


def qbert(horizon: Horizon) -> Iterator[Experiment]:
    """Figure 5 of QBert; of the others it comes from the runs of figure 4."""
    for workers in horizon.workers:
        for agent in AGENTS:
            file = _fleet(QBERT, agent, workers, horizon.throughput, 1)
            yield Experiment(part_of(QBERT, workers), agent.method.name, agent.method, file)


def part_of(game: Game, workers: int) -> str:
    """The name of a panel."""
    return f"{game.name}, {NODES} x {workers} workers"


def _fleet(game: Game, agent: Agent, workers: int, seconds: float, evaluations: int) -> FleetFile:
    devices, share = NODES * workers, _NODE_MBPS / workers
    sections: dict[str, dict[str, object]] = {
        "local": {"batch": agent.batch, "steps": agent.local_steps},
        "model": {
            "module": game.policy,
            "loss": agent.loss,
            "data": f"gym:{game.environment}?episodes={game.episodes}",
        },
        "fleet": {
            "devices": devices,
            "data": f"gym:{game.environment}?envs={min(agent.envs, game.envs)}",
            "evaluate_every": max(1, agent.updates(game, devices, seconds) // evaluations),
            "seconds": seconds,
        },
        "devices": {
            "worker": {
                "step_ms": game.step_ms,
                "sample_ms": game.sample_ms / agent.epochs,
                "spread": 0.1,
                "uplink_mbps": share,
                "downlink_mbps": share,
                "latency_ms": 0.1,
            }
        },
    }
    settings = dict(agent.method.settings)
    if settings.get("coordination.mode") == "elastic":
        settings["coordination.moving_rate"] = 0.9 / devices
        settings["coordination.chunk"] = game.chunk if agent.staggered else 0
    else:
        sections["optimizer"] = {"schedule": "cosine", "schedule_unit": "seconds", "period": seconds}
        if agent is not DEFAULT:
            settings["coordination.learning_rate"] = agent.method.rate
    return fleet_file(sections, settings if agent is DEFAULT else AS_PUBLISHED | settings)

"""The evaluation of D. Svoboda and A. Aggarwal, section 4: three nodes, tau = 20, thr = 0.01, batches of 16.

What they do not say is ours: alpha, layer widths, how long a step takes. CIFAR-10 stands in for SVHN, the UD
English Web Treebank with its Penn tags for the Wall Street Journal. In the quick run the MLP, which learns
little of CIFAR-10 in so few steps, has MNIST's digits, framed and in three equal colours. Their learning rate
of 0.01 takes 100,000 iterations; ours are larger, for runs that are shorter.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from edgeflock.devices.emulation.config import FleetFile
from edgeflock.papers.reproduce import AS_PUBLISHED, Experiment, Method, Scale, fleet_file
from edgeflock.shared.model.chunks import chunks
from edgeflock.shared.model.torch_module import FlatModule

NODES, BATCH, PERIOD = 3, 16, 20
ALPHA = 0.9 / NODES
"""beta / p with beta = 0.9 (Zhang, Choromanska, LeCun, section 5)."""
CHUNK = 100_000
LINKS = {"1 Gbps": 1000.0, "100 Mbps": 100.0, "10 Mbps": 10.0}
"""Rates of each node's link in Mbps, up and down."""


@dataclass(frozen=True, slots=True)
class EasgdTask:
    """A model and its data."""

    name: str
    module: str
    rate: float
    step_ms: float
    """Of a step on 16 samples: what one core of a 2.4 GHz server takes, rounded."""
    gain: float
    """The paper's throughput of staggered EASGD over that of EASGD on 1 Gbps, less one."""
    lost: float
    """The points of accuracy that the paper's EASGD loses to synchronized SGD, roughly."""
    significant: float
    """Those that its significance compression loses."""


TASKS = (
    EasgdTask("MLP", "edgeflock.client.zoo:SvhnMLP", 0.02, 15.0, 0.02, 1.0, 1.0),
    EasgdTask("CNN", "edgeflock.client.zoo:SvhnCNN", 0.05, 5.0, -0.005, 1.0, 1.0),
    EasgdTask("LSTM", "edgeflock.client.zoo:WordTagger", 1.0, 30.0, 0.08, 4.0, 0.0),
)

_DENSE = {"compression.select": 1.0, "compression.values": "f32"}
_FORGETTING: dict[str, object] = {"journal.snapshot_every": 50, "coordination.window": 16}
"""Updates that are whole models are in memory until a snapshot finds them older than the window."""
_ROUNDS: dict[str, object] = {**_FORGETTING, "coordination.mode": "rounds"}
_ELASTIC = {
    **_DENSE,
    "coordination.mode": "elastic",
    "coordination.rule": "elastic",
    "coordination.moving_rate": ALPHA,
    "local.steps": PERIOD,
}

SYNC = Method("sync SGD", {**_DENSE, **_ROUNDS}, 0)
EASGD = Method("EASGD", {**_ELASTIC, **_FORGETTING, "coordination.chunk": 0}, 0)
STAGGERED = Method("staggered EASGD", {**_ELASTIC, "coordination.chunk": CHUNK}, 0)
SIGCOMP = Method(
    "SigComp",
    {
        **_ROUNDS,
        "compression.selection": "significance",
        "compression.significance": 0.01,
        "compression.feedback": 1.0,
    },
    0,
)
METHODS = (SYNC, EASGD, STAGGERED, SIGCOMP)
"""Their rates are the tasks'."""


@dataclass(frozen=True, slots=True)
class EasgdScale(Scale):
    """The extent of the experiments. Steps count for each node.

    All but the accuracy of EASGD, staggered and not, uses the first seed.
    """

    steps: dict[str, int]
    """Steps for accuracy, by task."""
    rounds: int
    """Rounds for throughput, of synchronized methods."""
    periods: int
    """Periods for throughput, of EASGD."""
    evaluations: int
    test: int
    """Samples to evaluate on; 0: all."""
    digits: bool
    """The MLP's data are MNIST's."""


FULL = EasgdScale({"MLP": 10_000, "CNN": 20_000, "LSTM": 5_000}, 50, 10, 20, 0, False, seeds=(0, 1, 2))
QUICK = EasgdScale({"MLP": 400, "CNN": 1200, "LSTM": 160}, 5, 2, 10, 5000, True, seeds=(0,))


@lru_cache
def chunk_count(module: str, loss: str, chunk: int) -> int:
    """Return in how many parts staggered EASGD exchanges a model."""
    return len(chunks(FlatModule(module, loss).layout, chunk))


Data = dict[str, str]
"""task -> URI."""


def throughput(data: Data, scale: EasgdScale) -> Iterator[Experiment]:
    """Figure 2, on more links than the paper's."""
    for task in TASKS:
        for link in LINKS:
            for method in METHODS:
                steps = scale.rounds if method in (SYNC, SIGCOMP) else scale.periods * PERIOD
                file = _fleet(task, method, link, steps, 1, data)
                yield Experiment(f"throughput, {task.name}, {link}", method.name, method, file)


def accuracy(data: Data, scale: EasgdScale) -> Iterator[Experiment]:
    """Figure 3."""
    for task in TASKS:
        for method in METHODS:
            file = _fleet(task, method, "1 Gbps", scale.steps[task.name], scale.evaluations, data)
            yield Experiment(f"accuracy, {task.name}", method.name, method, file)


def updates_of(task: EasgdTask, method: Method, steps: int) -> int:
    """Return how many updates the fleet makes while each node takes `steps` steps."""
    if method in (SYNC, SIGCOMP):
        return NODES * steps
    return (
        NODES
        * (steps // PERIOD)
        * (chunk_count(task.module, "cross_entropy", CHUNK) if method is STAGGERED else 1)
    )


def _fleet(task: EasgdTask, method: Method, link: str, steps: int, evaluations: int, data: Data) -> FleetFile:
    updates = updates_of(task, method, steps)
    link_rates = {"uplink_mbps": LINKS[link], "downlink_mbps": LINKS[link], "latency_ms": 0.1}
    uri = data[task.name]
    sections: dict[str, dict[str, object]] = {
        "end": {"updates": updates},
        "local": {"batch": BATCH},
        "model": {"module": task.module, "data": uri},
        "fleet": {"devices": NODES, "data": uri, "evaluate_every": max(1, updates // evaluations)},
        "devices": {"node": {"step_ms": task.step_ms, "spread": 0.1, **link_rates}},
    }
    rate = "local.rate" if method in (EASGD, STAGGERED) else "coordination.learning_rate"
    return fleet_file(sections, AS_PUBLISHED | method.settings | {rate: task.rate})

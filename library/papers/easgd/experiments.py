"""The experiments: each method's throughput on each link, and its accuracy on the fastest link."""

from collections.abc import Iterator

from edgeflock.devices.emulation.config import FleetFile
from edgeflock.papers.easgd.settings import (
    BATCH,
    CHUNK,
    EASGD,
    LINKS,
    METHODS,
    NODES,
    PERIOD,
    SIGCOMP,
    STAGGERED,
    SYNC,
    TASKS,
    EasgdScale,
    EasgdTask,
    chunk_count,
)
from edgeflock.papers.reproduce import AS_PUBLISHED, Experiment, Method, fleet_file

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
        "run": {"updates": updates, "batch": BATCH},
        "model": {"module": task.module, "data": uri},
        "fleet": {"devices": NODES, "data": uri, "evaluate_every": max(1, updates // evaluations)},
        "devices": {"node": {"step_ms": task.step_ms, "spread": 0.1, **link_rates}},
    }
    rate = "run.local_rate" if method in (EASGD, STAGGERED) else "coordination.learning_rate"
    return fleet_file(sections, AS_PUBLISHED | method.settings | {rate: task.rate})

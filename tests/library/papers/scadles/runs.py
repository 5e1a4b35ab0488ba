"""ScaDLES' experiments, and runs of them made by hand."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from edgeflock.papers.reproduce import Experiment, Measured, Reproduction
from edgeflock.papers.scadles import experiments
from edgeflock.papers.scadles.settings import ScadlesScale
from edgeflock.results.outcomes import Outcome, Setting

FOLDER = "data"
ASKED = Reproduction("this", Path("out"), FOLDER)


def everything(scale: ScadlesScale, folder: str = FOLDER) -> list[Experiment]:
    return [
        *experiments.speed_up(folder, scale, {}),
        *experiments.noisy(folder, scale),
        *experiments.growing(folder, scale, {}),
        *experiments.changing(folder, scale, {}),
        *experiments.buffers(scale),
        *experiments.compression(folder, scale, {}),
        *experiments.non_iid(folder, scale, {}),
        *experiments.injection_traffic(scale),
        *experiments.asynchronous(folder, scale, {}),
    ]


def named(experiments: Iterable[Experiment]) -> dict[str, Experiment]:
    return {one.name: one for one in experiments}


def made(*reached: tuple[float, float], bytes_a_second: float = 10, **end: Any) -> Outcome:
    """A run with an evaluation for each (second, accuracy), 16 updates a second; half as much is sent."""
    rows = [
        {
            "updates": int(16 * second),
            "seconds": second,
            "loss": 1.0,
            "accuracy": accuracy,
            "ingress": int(bytes_a_second * second),
            "egress": int(bytes_a_second * second / 2),
        }
        for second, accuracy in reached
    ]
    tally = {"updates": 100, "compressed": 25, "floats": 5000, "ingress": 9, "shared": 40, "shared_bytes": 80}
    stream = {"depth": 30, "deepest": 40, "came": 700, "drops": 7, "gap": 1.0}
    streams = {f"all-{number}": {"rate": 20.0 + number, **stream} for number in range(16)}
    ended = {"seed": 0, "ended": "complete", "size": 10, "updates": rows[-1]["updates"] if rows else 0}
    return Outcome(rows, {**ended, "classes": {"all": tally}, "streams": streams, **end})


def measured(experiments: Iterable[Experiment], runs: dict[str, Outcome]) -> list[Measured]:
    """The experiments that there is a run for."""
    found = [one for one in experiments if one.name in runs]
    assert {one.name for one in found} == runs.keys()
    return [Measured(one, Setting(one.name, [runs[one.name]])) for one in found]


def of_mnist(experiments: Iterable[Experiment]) -> list[Experiment]:
    return [one for one in experiments if one.part.endswith("MNIST")]

"""The curves of runs as a figure for notebooks."""

from collections.abc import Callable
from io import BytesIO
from typing import Literal

from matplotlib.figure import Figure

from edgeflock.api.result import Evaluated
from edgeflock.results.curves import COLOURS
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.protocol.frames import Evaluation

Against = Literal["updates", "bytes", "time"]

_AXES: dict[str, tuple[str, Callable[[Evaluation, Evaluation], float]]] = {
    "updates": ("updates", lambda at, first: at.version),
    "bytes": ("bytes that the server received and sent", lambda at, first: at.ingress + at.egress),
    "time": ("seconds since the first evaluation", lambda at, first: at.time - first.time),
}


class Curves(Figure):
    """A figure that a notebook displays as PNG."""

    def _repr_png_(self) -> bytes:
        octets = BytesIO()
        self.savefig(octets, format="png", dpi=120)
        return octets.getvalue()


def plot(*runs: Evaluated, against: Against = "updates", **named: Evaluated) -> Curves:
    """Plot the runs' accuracy, or their loss if a run has no accuracy, against updates, bytes or time.

    Bytes count both ways. Keyword arguments name their runs. Raises ConfigError.
    """
    if against not in _AXES:
        raise ConfigError(f"plot(against={against!r}): must be one of {', '.join(_AXES)}")
    chosen = {**{f"run {number}": run for number, run in enumerate(runs, 1)}, **named}
    if not chosen:
        raise ConfigError("plot(): give it what Server.until or Fleet.run returned")
    if bare := [name for name, run in chosen.items() if not run.evaluations]:
        raise ConfigError(f"plot(): {bare[0]} has no evaluations; give its server evaluate=(x, y)")
    judged = all(one.accuracy is not None for run in chosen.values() for one in run.evaluations)
    label, place = _AXES[against]
    figure = Curves(figsize=(6.0, 4.0), layout="constrained")
    axes = figure.add_subplot()
    for number, (name, run) in enumerate(chosen.items()):
        x = [place(one, run.evaluations[0]) for one in run.evaluations]
        y = [one.accuracy if judged else one.loss for one in run.evaluations]
        known = [(at, value) for at, value in zip(x, y, strict=True) if value is not None]
        axes.plot(*zip(*known, strict=True), label=name, color=COLOURS[number % len(COLOURS)])
    axes.set_xlabel(label)
    axes.set_ylabel("accuracy" if judged else "loss")
    axes.grid(alpha=0.3)
    if len(chosen) > 1:
        axes.legend()
    return figure

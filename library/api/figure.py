"""The curves of runs as a figure for notebooks."""

from collections.abc import Callable
from io import BytesIO
from typing import Literal

from matplotlib.figure import Figure

from edgeflock.api.result import Evaluated
from edgeflock.results.figures import COLOURS
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.protocol.frames import Evaluation

Axis = Literal["updates", "bytes", "time"]

_AXES: dict[str, tuple[str, Callable[[Evaluation, Evaluation], float]]] = {
    "updates": ("updates", lambda now, first: now.version),
    "bytes": ("bytes that the server received and sent", lambda now, first: now.ingress + now.egress),
    "time": ("seconds since the first evaluation", lambda now, first: now.time - first.time),
}


class Curves(Figure):
    """A figure that a notebook displays as PNG."""

    def _repr_png_(self) -> bytes:
        octets = BytesIO()
        self.savefig(octets, format="png", dpi=120)
        return octets.getvalue()


def plot(*runs: Evaluated, against: Axis = "updates", **named: Evaluated) -> Curves:
    """Plot the runs' accuracy, or their loss if a run has no accuracy, against updates, bytes or time.

    Bytes count both ways. Keyword arguments name their runs. Raises ConfigError.
    """
    if against not in _AXES:
        raise ConfigError(f"plot(against={against!r}): must be one of {', '.join(_AXES)}")
    chosen = {**{f"run {number}": run for number, run in enumerate(runs, 1)}, **named}
    if not chosen:
        raise ConfigError("plot(): give it what Server.until or Fleet.run returned")
    if empty := [name for name, run in chosen.items() if not run.evaluations]:
        raise ConfigError(f"plot(): {empty[0]} has no evaluations; give its server evaluate=(x, y)")
    has_accuracy = all(one.accuracy is not None for run in chosen.values() for one in run.evaluations)
    label, position = _AXES[against]
    figure = Curves(figsize=(6.0, 4.0), layout="constrained")
    axes = figure.add_subplot()
    for number, (name, run) in enumerate(chosen.items()):
        x = [position(one, run.evaluations[0]) for one in run.evaluations]
        y = [one.accuracy if has_accuracy else one.loss for one in run.evaluations]
        points = [(a, b) for a, b in zip(x, y, strict=True) if b is not None]
        axes.plot(*zip(*points, strict=True), label=name, color=COLOURS[number % len(COLOURS)])
    axes.set_xlabel(label)
    axes.set_ylabel("accuracy" if has_accuracy else "loss")
    axes.grid(alpha=0.3)
    if len(chosen) > 1:
        axes.legend()
    return figure

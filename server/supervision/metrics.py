"""The metrics of all runs as one text: each sample has the label run="NAME"."""

import re
from collections.abc import Mapping

_OWN = 'run="'
"""A run's server names the run's identifier so in edgeflock_run_info."""


def merge_metrics(texts: Mapping[str, str]) -> str:
    """Return the metrics of all runs in Prometheus' text format. `texts` are those of each run by its name.

    The lines of a family come together, as the format demands. A label `run` of the run's own becomes
    `exported_run`, as Prometheus names it.
    """
    families: dict[str, list[str]] = {}
    for name, text in texts.items():
        for family in re.split("^(?=# HELP )", text, flags=re.MULTILINE)[1:]:
            about, kind, *samples = family.splitlines()
            lines = families.setdefault(about.split(" ", 3)[2], [about, kind])
            lines += (_labelled(sample, name) for sample in samples)
    return "".join(f"{line}\n" for lines in families.values() for line in lines)


def _labelled(sample: str, name: str) -> str:
    """Return a sample's line with the label `run`."""
    metric, brace, rest = sample.partition("{")
    if not brace or " " in metric:
        metric, _, value = sample.partition(" ")
        return f'{metric}{{run="{name}"}} {value}'
    if rest.startswith(_OWN):
        rest = f"exported_{rest}"
    return f'{metric}{{run="{name}",{rest.replace("," + _OWN, ",exported_" + _OWN, 1)}'


def state_metrics(states: Mapping[str, bool]) -> str:
    """Return the metric that says which runs can take updates."""
    lines = [
        "# HELP edgeflock_run_up 1 where a run's server takes updates, else 0.",
        "# TYPE edgeflock_run_up gauge",
        *(f'edgeflock_run_up{{run="{name}"}} {int(is_up)}' for name, is_up in states.items()),
    ]
    return "".join(f"{line}\n" for line in lines)

"""The metrics of all runs as one text: each sample has the label run="NAME"."""

from collections.abc import Mapping

_OWN = 'run="'
"""A run's server names the run's identifier so in edgeflock_run_info."""


def merge_metrics(texts: Mapping[str, str]) -> str:
    """Return the metrics of all runs in Prometheus' text format. `texts` are those of each run by its name.

    The lines of a family come together, as the format demands. A label `run` of the run's own becomes
    `exported_run`, as Prometheus names it.
    """
    families: dict[str, tuple[list[str], list[str]]] = {}
    for name, text in texts.items():
        lines: tuple[list[str], list[str]] = [], []
        is_new = False
        for line in text.splitlines():
            if line.startswith(("# HELP ", "# TYPE ")):
                family = line.split(" ", 3)[2]
                is_new = family not in families or (is_new and lines is families[family])
                lines = families.setdefault(family, ([], []))
                if is_new:
                    lines[0].append(line)
            elif line and not line.startswith("#"):
                lines[1].append(_labelled(line, name))
    return "".join(f"{line}\n" for heads, samples in families.values() for line in (*heads, *samples))


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

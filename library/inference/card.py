"""A model card: what a model is, what it was trained on and by whom, and how good it is; as Markdown.

Its sections follow M. Mitchell et al., "Model cards for model reporting", FAT* 2019.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from edgeflock.shared.artifacts import ModelInfo
from edgeflock.shared.numbers import size

Scores = Mapping[str, Mapping[str, float]]
"""Precision -> its scores on held-out data, by name."""


def card(info: ModelInfo, status: Mapping[str, Any], file: str, scores: Scores) -> str:
    """Return the card of a model in `file`. `status` is /v1/status; a device's token gives a part of it."""
    return "\n".join(_lines(info, status, file, scores)) + "\n"


def _lines(info: ModelInfo, status: Mapping[str, Any], file: str, scores: Scores) -> Iterator[str]:
    yield f"# {info.model}"
    yield ""
    yield f"`{file}`: version {info.version:,} of run `{info.run}`, trained with Edgeflock."
    yield ""
    yield from _table(
        "Model",
        {
            "parameters": f"{info.layout.parameters.size:,}",
            "input": "several fields" if info.input is None else str(list(info.input)),
            "loss": info.loss,
            "SHA-256 of the weights": info.digest,
        },
    )
    yield from _table("Data", _data(info))
    yield from _table("How good it is", _metrics(info, scores))
    if "devices" not in status:
        yield "A viewer's or an admin's token adds fleet, traffic, defence and privacy to this card."
        return
    yield from _table("Fleet", _fleet(status))
    yield from _table("Traffic", _traffic(status))
    yield from _table("Defence and privacy", _defence(status))


def _data(info: ModelInfo) -> dict[str, str]:
    data = info.data
    if data is None:
        return {"inputs": "numbers as the devices read them", "outputs": "as the module returns them"}
    found = {"columns": ", ".join(data.columns), "classes": ", ".join(data.labels)}
    if data.target:
        found["target"] = f"mean {data.target[0]:.6g}, standard deviation {data.target[1]:.6g}"
    return {name: text for name, text in found.items() if text}


def _metrics(info: ModelInfo, scores: Scores) -> dict[str, str]:
    found = {}
    if info.evaluation is not None:
        names = {"loss": info.evaluation.get("loss"), "accuracy": info.evaluation.get("accuracy")}
        at = f"at version {info.evaluation.get('version', info.version):,}"
        for name, value in {**names, **(info.evaluation.get("metrics") or {})}.items():
            if value is not None:
                found[f"{name}, {at}"] = f"{value:.4g}"
    for precision, values in scores.items():
        found |= {f"{name} of this file's {precision} weights": f"{x:.4g}" for name, x in values.items()}
    return found or {"held-out data": "none: the run does not evaluate its model"}


def _fleet(status: Mapping[str, Any]) -> dict[str, str]:
    devices = status["devices"]
    facts = [device["facts"] for device in devices]
    kinds = sorted({str(each.get("class") or each.get("machine") or "unknown") for each in facts})
    return {
        "devices": f"{len(devices):,}",
        "kinds": ", ".join(kinds),
        "updates": f"{sum(device['updates'] for device in devices):,}",
        "samples trained on": f"{sum(device['samples'] for device in devices):,}",
        "coordination": f"{status['coordination']['mode']}, {status['coordination']['rule']}",
    }


def _traffic(status: Mapping[str, Any]) -> dict[str, str]:
    both = status.get("reduction_both_ways")
    return {
        "received from devices": size(status["ingress"]),
        "sent to devices": size(status["egress"]),
        "less than dense float32": "unknown" if both is None else f"{both:,} times",
    }


def _defence(status: Mapping[str, Any]) -> dict[str, str]:
    refused = sum(device["refused"] for device in status["devices"])
    return {
        "defence": str(status.get("defence", "unknown")),
        "updates refused": f"{refused:,}",
        "data": "stays on the devices; the server receives updates and, if devices report them, class counts",
        "differential privacy": "none",
        "secure aggregation": "none: the server sees each device's update",
    }


def _table(title: str, rows: Mapping[str, str]) -> Iterator[str]:
    yield from (f"## {title}", "", "| | |", "|---|---|")
    for name, value in rows.items():
        yield f"| {_cell(name)} | {_cell(value)} |"
    yield ""


def _cell(text: str) -> str:
    """Text that is safe in a cell: names come from devices and tables."""
    safe = "".join(char if char.isprintable() else " " for char in text)
    return safe.replace("|", "\\|").replace("<", "&lt;")

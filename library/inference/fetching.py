"""A model from a running server, as a file with its card."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from edgeflock.shared.artifacts import ModelInfo
from edgeflock.shared.artifacts.info import describe, with_names
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.files import write_atomically
from edgeflock.shared.model.lora import is_adapter
from edgeflock.shared.numbers import size
from edgeflock.shared.protocol.frames import PrivacySpent
from edgeflock.shared.settings.modes import traits_of
from edgeflock.tui.sources import FeedClient


def card(info: ModelInfo, status: Mapping[str, Any], file: str) -> str:
    """Return the card of a model in `file`. `status` is /v1/status; a device's token gives a part of it."""
    return "\n".join(_lines(info, status, file)) + "\n"


def _lines(info: ModelInfo, status: Mapping[str, Any], file: str) -> Iterator[str]:
    yield f"# {info.model}"
    yield ""
    yield f"`{file}`: version {info.version:,} of run `{info.run}`, trained with Edgeflock."
    yield ""
    yield from _table(
        "Model",
        {
            "parameters": f"{info.layout.parameters.size:,}",
            **_adapters(info),
            "input": "several fields" if info.input is None else str(list(info.input)),
            "loss": info.loss,
            "SHA-256 of the weights": info.digest,
        },
    )
    yield from _table("Data", _data(info))
    yield from _table("How good it is", _metrics(info))
    yield from _table("Differential privacy", _privacy(info))
    if "devices" not in status:
        yield "A viewer's or an admin's token adds fleet, traffic, defence and privacy to this card."
        return
    yield from _table("Fleet", _fleet(status))
    yield from _table("Traffic", _traffic(status))
    yield from _table("Defence and privacy", _defence(status))


def _privacy(info: ModelInfo) -> dict[str, str]:
    if info.privacy is None:
        return {"differential privacy": "none"}
    spent = PrivacySpent(**info.privacy)
    return {
        "hides": f"a {spent.unit}" if spent.unit == "device" else "an example of a device",
        "epsilon so far": spent.text,
        "delta": f"{spent.delta:.3g}",
        "noise multiplier": f"{spent.noise:.4g}",
        "updates of a device that count": f"{spent.participations:,}",
    }


def _adapters(info: ModelInfo) -> dict[str, str]:
    if info.lora is None:
        return {}
    layers = ", ".join(map(str, info.lora["layers"]))
    return {"fine-tuned": f"adapters of rank {info.lora['rank']}, alpha {info.lora['alpha']:g}, of {layers}"}


def _data(info: ModelInfo) -> dict[str, str]:
    data = info.data
    if data is None:
        return {"inputs": "numbers as the devices read them", "outputs": "as the module returns them"}
    found = {"columns": ", ".join(data.columns), "classes": ", ".join(data.labels)}
    if data.target:
        found["target"] = f"mean {data.target[0]:.6g}, standard deviation {data.target[1]:.6g}"
    return {name: text for name, text in found.items() if text}


def _metrics(info: ModelInfo) -> dict[str, str]:
    found = {}
    if info.evaluation is not None:
        names = {"loss": info.evaluation.get("loss"), "accuracy": info.evaluation.get("accuracy")}
        at = f"at version {info.evaluation.get('version', info.version):,}"
        for name, value in {**names, **(info.evaluation.get("metrics") or {})}.items():
            if value is not None:
                found[f"{name}, {at}"] = f"{value:.4g}"
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
    both, base = status.get("reduction_both_ways"), status.get("base")
    sent = {} if base is None else {"frozen base, sent since the server started": size(base["egress"])}
    return {
        **sent,
        "received from devices": size(status["ingress"]),
        "sent to devices": size(status["egress"]),
        "less than dense float32": "unknown" if both is None else f"{both:,} times",
    }


def _defence(status: Mapping[str, Any]) -> dict[str, str]:
    refused = sum(device["refused"] for device in status["devices"])
    private = traits_of(status["coordination"]["mode"]).private
    return {
        "defence": str(status.get("defence", "unknown")),
        "updates refused": f"{refused:,}",
        "data": "stays on the devices; the server receives updates and, if devices report them, class counts",
        "secure aggregation": "of each round: the server sees no single device's update"
        if private
        else "none: the server sees each device's update",
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


FORMATS = {
    "safetensors": ("/v1/model.safetensors", {}, "model.safetensors"),
    "onnx": ("/v1/model.onnx", {}, "model.onnx"),
    "peft": ("/v1/model.safetensors", {"part": "adapters"}, "model-peft"),
}
"""Format -> (route, parameters, the usual name of the file)."""

_SECONDS = 900
"""The server may have to export the model first, or to replay updates since a snapshot."""


class Fetched(NamedTuple):
    """A model that was written."""

    path: Path
    card: Path
    version: int
    octets: int


async def fetch_model(server: str, token: str, version: str, format: str, out: Path | None) -> Fetched:
    """Write the model of `version` (last, best or a number), and its card next to it, or in its folder.

    Raises ConfigError for another version or if a file cannot be written, EdgeflockError if the server does
    not give the model.
    """
    if version not in ("last", "best") and not version.isdecimal():
        raise ConfigError(f"--version {version!r} must be last, best or a number")
    route, parameters, usual = FORMATS[format]
    path = out or Path(usual)
    client = FeedClient(server, token)
    wanted = {"version": version, **parameters}
    async with client.send("GET", route, params=wanted, seconds=_SECONDS) as response:
        octets = await response.read()
    status: dict[str, Any] = await client.request("GET", "/v1/status")
    info = describe(octets, "onnx" if format == "onnx" else "safetensors", path.name)
    files, described = {path: octets}, path.with_suffix(".md")
    if format == "peft":
        files = {path / name: content for name, content in _peft_folder(octets, info).items()}
        described = path / "README.md"
    try:
        for file, content in files.items():
            file.parent.mkdir(exist_ok=True)
            write_atomically(file, content, 0o666)
        write_atomically(described, card(info, status, path.name).encode(), 0o666)
    except OSError as error:
        raise ConfigError(f"{error.filename}: cannot be written: {error.strerror}") from error
    return Fetched(path, described, info.version, len(octets))


def _peft_folder(octets: bytes, info: ModelInfo) -> dict[str, bytes]:
    """Return the files of a folder that PeftModel.from_pretrained loads, from a server's file of adapters.

    adapter_model.safetensors has base_model.model.LAYER.lora_A.weight [rank, in], and .lora_B.weight [out,
    rank]. adapter_config.json has rank, alpha, and the layers.
    """
    lora = info.lora or {"rank": 1, "alpha": 1.0, "layers": []}
    config = {
        "peft_type": "LORA",
        "base_model_name_or_path": info.model,
        "r": lora["rank"],
        "lora_alpha": lora["alpha"],
        # A list would also match layers whose names end in one of these.
        "target_modules": "|".join(re.escape(layer) for layer in lora["layers"]),
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
        "task_type": None,
    }
    tensors = with_names(octets, lambda name: f"base_model.model.{name}.weight" if is_adapter(name) else name)
    return {
        "adapter_config.json": f"{json.dumps(config, indent=2)}\n".encode(),
        "adapter_model.safetensors": tensors,
    }

"""A model from a running server, as a file with its card."""

import json
from pathlib import Path
from typing import Any, NamedTuple

from edgeflock.inference.card import Scores, card
from edgeflock.shared.artifacts.files import describe
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.files import write_atomically
from edgeflock.tui.sources import FeedClient

FORMATS = {
    "safetensors": ("/v1/model.safetensors", {}, "model.safetensors"),
    "onnx": ("/v1/model.onnx", {}, "model.onnx"),
    "int8-onnx": ("/v1/model.onnx", {"precision": "int8"}, "model-int8.onnx"),
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
    scores: Scores
    """Of int8-onnx: precision -> its scores on held-out data."""


async def fetch_model(server: str, token: str, version: str, format: str, out: Path | None) -> Fetched:
    """Write the model of `version` (last, best or a number), and its card next to it.

    Raises ConfigError if a file cannot be written, EdgeflockError if the server does not give the model.
    """
    route, parameters, usual = FORMATS[format]
    path = out or Path(usual)
    client = FeedClient(server, token)
    wanted = {"version": version, **parameters}
    async with client.send("GET", route, params=wanted, seconds=_SECONDS) as response:
        octets = await response.read()
        scores: Scores = json.loads(response.headers.get("X-Edgeflock-Scores", "{}"))
    status: dict[str, Any] = await client.request("GET", "/v1/status")
    info = describe(octets, format.removeprefix("int8-"), path.name)
    described = path.with_suffix(".md")
    try:
        write_atomically(path, octets, 0o666)
        write_atomically(described, card(info, status, path.name, scores).encode(), 0o666)
    except OSError as error:
        raise ConfigError(f"{error.filename}: cannot be written: {error.strerror}") from error
    return Fetched(path, described, info.version, len(octets), scores)

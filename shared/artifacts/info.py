"""Description of a trained model, which travels in the metadata of its file: text to text."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgeflock.shared.errors import BadGraph, ConfigError, Malformed
from edgeflock.shared.graphs.writing import metadata_of
from edgeflock.shared.model.description import Description
from edgeflock.shared.model.layout import Entry, Layout
from edgeflock.shared.model.losses import LOSSES

_FORMAT = "1"
"""The version of the metadata. A reader ignores keys that it does not know."""

_METADATA = "__metadata__"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """What a file of a trained model says about it."""

    model: str
    """package.module:Name of the torch module."""
    layout: Layout
    run: str
    """The identity of the run."""
    version: int
    """The version of the model."""
    loss: str = ""
    """model.loss of the run; empty: not known."""
    input: tuple[int, ...] | None = None
    """The shape of a sample; None: unknown, or the model has several inputs."""
    data: Description | None = None
    """How samples become inputs, and what outputs mean. None: no conversion."""
    evaluation: Mapping[str, Any] | None = None
    """version, loss, accuracy and metrics of the run's latest evaluation until this version."""
    lora: Mapping[str, Any] | None = None
    """rank, alpha and layers of the adapters that a run has trained. The weights have their sum added. A
    run's best.safetensors has each adapter besides, as LAYER.lora_A or LAYER.lora_B."""
    privacy: Mapping[str, Any] | None = None
    """What differential privacy had cost (PrivacySpent); None: the run had none."""
    digest: str = ""
    """SHA-256 of theta as little-endian float32, in hex: the ETag of GET /v1/model."""

    def metadata(self) -> dict[str, str]:
        """Encode the info as the metadata of a file. `read` decodes it."""
        tensors = [[tensor.name, tensor.shape, tensor.buffer] for tensor in self.layout.tensors]
        optional = {
            "input": self.input,
            "data": None if self.data is None else self.data._asdict(),
            "evaluation": self.evaluation,
            "lora": self.lora,
            "privacy": self.privacy,
        }
        return {
            "format": _FORMAT,
            "model": self.model,
            "run": self.run,
            "version": str(self.version),
            "layout": json.dumps(tensors),
            "sha256": self.digest,
            "loss": self.loss,
            **{key: json.dumps(value) for key, value in optional.items() if value is not None},
        }

    @classmethod
    def read(cls, metadata: Mapping[str, str], name: str) -> "ModelInfo":
        """Decode what `metadata` returned. `name` is the file's. Raises ConfigError."""
        if not {"model", "run", "version", "layout"} <= metadata.keys():
            raise ConfigError(
                f"{name} has no description of its model: take a file that an Edgeflock server wrote, such "
                "as best.safetensors of a run, or `edgeflock model pull`"
            )
        try:
            tensors: list[Entry] = [
                (str(tensor), tuple(map(int, shape)), bool(buffer))
                for tensor, shape, buffer in json.loads(metadata["layout"])
            ]
            data = json.loads(metadata["data"]) if "data" in metadata else None
            shape = json.loads(metadata["input"]) if "input" in metadata else None
            return cls(
                model=metadata["model"],
                layout=Layout.from_shapes(tensors),
                run=metadata["run"],
                version=int(metadata["version"]),
                loss=metadata.get("loss", ""),
                input=None if shape is None else tuple(map(int, shape)),
                data=None if data is None else Description.from_msgpack([*data.values()], "data"),
                evaluation=json.loads(metadata["evaluation"]) if "evaluation" in metadata else None,
                lora=json.loads(metadata["lora"]) if "lora" in metadata else None,
                privacy=json.loads(metadata["privacy"]) if "privacy" in metadata else None,
                digest=metadata.get("sha256", ""),
            )
        except (ValueError, TypeError, AttributeError, RecursionError, ConfigError, Malformed) as error:
            raise ConfigError(f"{name}: its description is damaged: {error}; take the file again") from error


def digest_of(theta: NDArray[np.float32]) -> str:
    """SHA-256 of theta, float32 [P + B], in hex."""
    return sha256(theta.astype("<f4", copy=False).tobytes()).hexdigest()


def describe(octets: bytes, format: str, name: str) -> ModelInfo:
    """Return the description in a file of `format`, onnx or safetensors. Needs neither's library.

    Raises ConfigError that names the file, `name`.
    """
    try:
        metadata = metadata_of(octets) if format == "onnx" else _metadata(octets)
    except (BadGraph, ValueError, RecursionError) as error:
        raise ConfigError(f"{name} is not a {format} file: {error}") from error
    return ModelInfo.read(metadata, name)


def with_tensors(octets: bytes, tensors: Mapping[str, NDArray[np.float32]]) -> bytes:
    """Return a safetensors file with other values of float32 `tensors`. ConfigError if it lacks one."""
    changed, header = bytearray(octets), _header(octets)
    begin = 8 + int.from_bytes(octets[:8], "little")
    for name, values in tensors.items():
        entry, content = header.get(name), values.astype("<f4").tobytes()
        place = entry.get("data_offsets") if isinstance(entry, dict) and entry.get("dtype") == "F32" else None
        if not isinstance(place, list) or [type(end) for end in place] != [int, int]:
            place = [-1, -1]
        start, stop = (begin + end for end in place)
        if not begin <= start <= stop <= len(octets) or stop - start != len(content):
            raise ConfigError(f"the file has no float32 {name} of {values.size} numbers; take the file again")
        changed[start:stop] = content
    return bytes(changed)


def with_names(octets: bytes, rename: Callable[[str], str]) -> bytes:
    """Return a safetensors file with other names of its tensors. Raises ConfigError if it is none."""
    try:
        header = _header(octets)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"the file is no safetensors file: {error}; take it again") from error
    named = {name if name == _METADATA else rename(name): entry for name, entry in header.items()}
    text = json.dumps(named).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + octets[8 + int.from_bytes(octets[:8], "little") :]


def _header(octets: bytes) -> dict[str, Any]:
    """The header of a safetensors file. Raises ValueError."""
    size = int.from_bytes(octets[:8], "little")
    if not 0 < size <= len(octets) - 8:
        raise ValueError("its header is cut short")
    found = json.loads(octets[8 : 8 + size])
    return found if isinstance(found, dict) else {}


def _metadata(octets: bytes) -> dict[str, str]:
    """The metadata of a safetensors file. Raises ValueError."""
    metadata = _header(octets).get(_METADATA)
    return metadata if isinstance(metadata, dict) else {}


class Predictions(NamedTuple):
    """Predictions of n samples."""

    values: NDArray[np.generic]
    """[n, ...]: names or numbers of classes; numbers in their units; or the outputs as they are."""
    probabilities: NDArray[np.float32] | None = None
    """float32 [n, classes, ...] of a classifier; None of anything else."""
    classes: tuple[str, ...] = ()
    """The names of the classes, in the order of the probabilities."""


def interpret(outputs: NDArray[np.float32], info: ModelInfo) -> Predictions:
    """Interpret the first output of a model, float32 [n, ...], as its run did in training.

    Outputs of cross entropy are logits [n, classes, ...]: probabilities are their softmax. Outputs of bce are
    logits of a yes or no: probabilities are their sigmoid. Raises ConfigError if the outputs do not have a
    place for each class.
    """
    data = info.data
    names = () if data is None else data.labels
    if names or info.loss == "cross_entropy":
        if outputs.ndim < 2 or (names and outputs.shape[1] != len(names)):
            raise ConfigError(
                f"the model's output is {list(outputs.shape[1:])}, and its run has {len(names)} classes: "
                "take the file again"
            )
        classes = names or tuple(map(str, range(outputs.shape[1])))
        chosen = outputs.argmax(axis=1)
        values: NDArray[np.generic] = np.array(classes)[chosen] if names else chosen
        return Predictions(values, _softmax(outputs), classes)
    if info.loss == "bce":
        likely = 1 / (1 + np.exp(-outputs.astype(np.float64)))
        return Predictions((outputs > 0).astype(np.int64), likely.astype(np.float32))
    if data is not None and data.target and _are_numbers(info.loss):
        mean, deviation = data.target
        return Predictions(outputs * np.float32(deviation) + np.float32(mean))
    return Predictions(outputs)


def _are_numbers(loss: str) -> bool:
    """Whether outputs are in deviations from the mean; so they are by an unknown loss of an early file."""
    known = LOSSES[loss] if loss in LOSSES else None
    return known is None or known.numbers


def _softmax(outputs: NDArray[np.float32]) -> NDArray[np.float32]:
    powers = np.exp(outputs.astype(np.float64) - outputs.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True), np.float32)

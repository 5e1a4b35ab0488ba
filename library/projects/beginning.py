"""A new project: the few files that say what is trained on what. Everything else has defaults."""

import os
import re
import shlex
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from edgeflock.projects.remarks import remarks
from edgeflock.shared.data import datasets
from edgeflock.shared.data.fitting import read_as
from edgeflock.shared.data.samples import Dataset, join_names
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.model.description import MAX_NAMES

MADE_UP = "data:samples"
"""The data of a project that is begun without any."""

_DATA = '''\
"""Made-up samples. Read yours here, or name a file instead: csv:PATH?label=COLUMN, images:FOLDER, ...

It is asked for "train" on devices and for "test" on the server.
"""

import numpy as np


def samples(split: str) -> tuple[np.ndarray, np.ndarray]:
    """x float32 [n, ...]; y [n] class numbers, class names, or numbers to predict."""
    random = np.random.default_rng(0 if split == "test" else 1)
    x = random.standard_normal((1000, 8)).astype(np.float32)
    return x, np.where(x[:, :4].sum(axis=1) > x[:, 4:].sum(axis=1), "left", "right")
'''

_TABLE = '''\
"""The model. It is the server's: devices get it as a graph, and need neither this file nor torch."""

from torch import nn


class Model(nn.Sequential):
    """{inputs} numbers in, {kind} out."""

    def __init__(self) -> None:
        super().__init__(
            nn.Linear({inputs}, {hidden}), nn.ReLU(), nn.Linear({hidden}, {hidden}), nn.ReLU(), {last}
        )
'''

_IMAGES = '''\
"""The model. It is the server's: devices get it as a graph, and need neither this file nor torch."""

from torch import nn


class Model(nn.Sequential):
    """Images of {shape} in, {kind} out."""

    def __init__(self) -> None:
        super().__init__(
            *(nn.Conv2d({channels}, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Flatten(), nn.Linear({inputs}, {hidden}), nn.ReLU(), {last}),
        )
'''

_SETTINGS = """# What is trained, on what, for how long. `edgeflock config` prints every other setting.

[end]
updates = 1000           # then the run is over; 0: never

[local]
batch = 32               # samples of a step

[model]
module = "model:Model"   # model.py
loss = {loss}
{metrics}
data = {held_out}
                         # to evaluate on; devices learn columns, units and classes from it

[compression]
select = 1               # send all of the gradient, coded: right for a small model. 0: a large one's largest

[client]
{training}
"""

_TRAINING = """data = {uri}
                         # what a device trains on, where the command line does not say"""

_OWN_DATA = """# data = {uri}
                         # each device's own rows, never the held-out ones: --data on its command line"""

_CLASSES = """# metrics = ["f1", "auroc"]
                         # beside loss and accuracy: pip install torchmetrics, and uncomment it"""

_NUMBERS = """metrics = ["mae", "rmse"]
                         # in the units of what is predicted; the loss is of targets scaled to deviation 1"""

_README = """# {name}

Check the project, before anything joins:

    edgeflock check edgeflock.toml

Serve it; it prints the line that lets devices join (beyond this machine: `--set server.host=0.0.0.0`):

    edgeflock server edgeflock.toml

Train, on each device, on data of its own:

    edgeflock client --data {data}

`edgeflock status` shows how good the model is; the best so far is `edgeflock-run/best.safetensors`.
"""


@dataclass(frozen=True, slots=True)
class Project:
    """Files by their names."""

    folder: Path
    files: dict[str, str]
    samples: str = ""
    """What the model takes and predicts."""
    remarks: tuple[str, ...] = ()
    """What may be wrong with the data."""

    def write(self) -> None:
        """Raises ConfigError if one is there already, or none can be written."""
        for name in self.files:
            if (self.folder / name).exists():
                raise ConfigError(f"{self.folder / name} is there already: name another folder, or remove it")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            for name, text in self.files.items():
                (self.folder / name).write_text(text, "utf-8")
        except OSError as error:
            raise ConfigError(f"{self.folder}: cannot be written: {error.strerror}") from error


def create_project(folder: Path, data: str) -> Project:
    """A project in `folder` on what the URI `data` names, seen from here; empty: on made-up data.

    Raises ConfigError.
    """
    if not data:
        made_up = _TABLE.format(inputs=8, hidden=64, kind="2 classes", last="nn.Linear(64, 2)")
        return _project(folder, MADE_UP, MADE_UP, made_up, "cross_entropy", {"data.py": _DATA}, splits=True)
    raw = datasets.read(data, "test")
    sample, note = read_as(raw)
    uri = _relative_to(folder, data)
    loss = "mse" if sample.description.numbers else "cross_entropy"
    splits = datasets.has_splits(data)
    project = _project(folder, uri, uri if splits else _own_data(data), _model(sample), loss, splits=splits)
    found = (*filter(None, [note]), *remarks(sample, chosen=raw.numbers is not None))
    return replace(project, samples=_describe(sample), remarks=found)


def _describe(sample: Dataset) -> str:
    """What the model of these samples takes and predicts, as a person says it."""
    description = sample.description
    categories = description.categories or ((),) * len(description.columns)
    columns = [
        f"{name} (categories: {len(names)})" if names else name
        for name, names in zip(description.columns, categories, strict=True)
    ]
    x = join_names(columns) if columns else f"samples of {list(sample.x.shape[1:])}"
    labels = f": {join_names(description.labels)}" if description.labels else ""
    return f"from {x}, the model predicts {_outputs(sample)[0]}{labels}"


def _outputs(sample: Dataset) -> tuple[str, str]:
    """Return (what the model predicts, the last layer for that)."""
    if sample.description.numbers:
        return "a number", "nn.Linear(64, 1), nn.Flatten(0)"
    classes = len(sample.description.labels) or int(sample.y.max()) + 1
    if classes > MAX_NAMES and sample.description.columns:
        raise ConfigError(
            f"the label goes up to {classes - 1:,}, and classes are numbered from 0 to {MAX_NAMES - 1:,} at "
            "most; give classes names, or add &targets=numbers if the label is a number to predict"
        )
    return f"{classes} class{'es' * (classes != 1)}", f"nn.Linear(64, {classes})"


def _own_data(data: str) -> str:
    """What a device calls data of its own that are like `data`."""
    scheme, _, rest = data.partition(":")
    _, mark, query = rest.partition("?")
    return f"{scheme}:YOURS{mark}{query}"


def _project(
    folder: Path,
    held_out: str,
    training: str,
    model: str,
    loss: str,
    extra: dict[str, str] | None = None,
    *,
    splits: bool,
) -> Project:
    """`splits`: whether devices may train on what `held_out` names, since it keeps both apart."""
    readme = _README.format(name=folder.resolve().name, data=shlex.quote(training))
    files = {
        "edgeflock.toml": _SETTINGS.format(
            held_out=_quote(held_out),
            loss=_quote(loss),
            training=(_TRAINING if splits else _OWN_DATA).format(uri=_quote(training)),
            metrics=_CLASSES if loss == "cross_entropy" else _NUMBERS,
        ),
        "model.py": model,
        "README.md": readme,
    }
    return Project(folder, {**files, **(extra or {})})


def _model(sample: Dataset) -> str:
    """A model that takes such samples: small, and no more than a beginning."""
    shape = sample.x.shape[1:]
    kind, last = _outputs(sample)
    if len(shape) == 1:
        return _TABLE.format(inputs=shape[0], hidden=64, kind=kind, last=last)
    if len(shape) == 3 and min(shape[1:]) >= 4:
        channels, height, width = shape
        inputs = 32 * (height // 4) * (width // 4)
        size = "x".join(map(str, shape))
        return _IMAGES.format(shape=size, channels=channels, inputs=inputs, hidden=64, kind=kind, last=last)
    raise ConfigError(
        f"samples have the shape {list(shape)}, for which there is no ready-made beginning: begin without "
        "--data, and write model.py"
    )


def _relative_to(folder: Path, data: str) -> str:
    """The URI as it is to be read in `folder`: what it names by a path is elsewhere from there."""
    scheme, _, rest = data.partition(":")
    path, mark, query = rest.partition("?")
    if scheme in datasets.READERS and path and not os.path.isabs(path):
        path = os.path.relpath(path, folder)
    return f"{scheme}:{path}{mark}{query}"


def _quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def replace_setting(text: str, source: str, name: str, value: float | str) -> str:
    """`text`, the TOML of `source`, with the setting `name`, which is SECTION.KEY, at `value`.

    Raises ConfigError if the setting stands there in another way than `KEY = ...` below `[SECTION]`.
    """
    section, _, key = name.partition(".")
    written = f'"{value}"' if isinstance(value, str) else f"{value:g}"
    lines, line = text.splitlines(keepends=True), f"{key} = {written}"
    header = _find_line(rf"\[\s*{section}\s*\]", lines, 0, len(lines))
    if header is None:
        gap = "" if text in ("", "\n") else "\n" if text.endswith("\n") else "\n\n"
        changed = f"{text}{gap}[{section}]\n{line}\n"
    else:
        end = _find_line(r"\[", lines, header + 1, len(lines))
        index = _find_line(rf"{key}\s*=", lines, header + 1, len(lines) if end is None else end)
        if index is None:
            lines[header] = lines[header].rstrip("\n") + "\n"
            lines.insert(header + 1, line + "\n")
        else:
            lines[index] = re.sub(rf"({key}\s*=\s*)[^\s#]+", rf"\g<1>{written}", lines[index], count=1)
        changed = "".join(lines)
    if _parse(changed) != _set_value(_parse(text), section, key, value):
        raise ConfigError(f"{source} says {name} in a form that is not changed here: set {line} yourself")
    return changed


def _find_line(pattern: str, lines: list[str], start: int, stop: int) -> int | None:
    """The first of the lines that begins so."""
    return next((index for index in range(start, stop) if re.match(rf"\s*{pattern}", lines[index])), None)


def _parse(text: str) -> dict[str, Any] | None:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return None


def _set_value(settings: dict[str, Any] | None, section: str, key: str, value: float | str) -> dict[str, Any]:
    tables = settings or {}
    return {**tables, section: {**tables.get(section, {}), key: value}}

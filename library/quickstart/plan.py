"""The options of a quickstart, and its settings and folder."""

import os
from dataclasses import dataclass
from pathlib import Path

from edgeflock.shared.data import datasets
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.extras import install_command
from edgeflock.shared.settings.config import parse

_DEFAULTS = {
    (1, 8, 8): ("edgeflock.client.zoo:DigitsCNN", 3000),
    (1, 28, 28): ("edgeflock.client.zoo:PaperCNN", 4700),
}
"""Input shape -> a suitable model and number of updates."""

_BACKENDS = ("auto", "onnx", "torch", "mixed")


@dataclass(frozen=True, slots=True)
class QuickstartPlan:
    """The model, the data and the number of processes."""

    data: str
    model: str
    clients: int
    backend: str
    """client.backend, or mixed: every second client is onnx, the others torch."""
    updates: int
    seed: int
    out: Path
    overrides: tuple[str, ...] = ()


def settings_of(plan: QuickstartPlan) -> list[str]:
    """Return overrides for the server. They are checked here, so that a mistake shows before the start.

    Raises ConfigError.
    """
    if plan.backend not in _BACKENDS:
        raise ConfigError(
            f"--backend {plan.backend!r}: must be {', '.join(_BACKENDS[:-1])} or {_BACKENDS[-1]}"
        )
    sample = datasets.load(plan.data, "train")
    if plan.clients > len(sample):
        raise ConfigError(f"--clients {plan.clients}: there are only {len(sample)} samples to share out")
    shape = sample.x.shape[1:]
    model, updates = _DEFAULTS.get(shape, ("", 8000))
    if not (plan.model or model):
        raise ConfigError(f"no ready-made model takes inputs of shape {shape}; name yours with --model")
    overrides = [
        "server.port=0",
        f"end.updates={plan.updates or updates}",
        f"model.seed={plan.seed}",
        "server.open=false",
        "server.host=127.0.0.1",
        f"model.module={plan.model or model}",
        f"model.data={plan.data}",
        *plan.overrides,
    ]
    try:
        from edgeflock.server.hosting.choices import CHOICES
    except ImportError as error:
        raise ConfigError(f"a quickstart needs {error.name}: {install_command('quickstart')}") from error
    parse(environ=os.environ, overrides=overrides, tables=CHOICES)
    return overrides


def backend_of(plan: QuickstartPlan, number: int) -> str:
    """Return the backend of client `number`, counted from 1."""
    if plan.backend != "mixed":
        return plan.backend
    return "torch" if number % 2 else "onnx"


def fresh_folder(out: Path) -> Path:
    """Make a new folder out/run-N. Raises ConfigError."""
    number = 1
    while True:
        try:
            (out / f"run-{number}").mkdir(parents=True)
            return out / f"run-{number}"
        except FileExistsError:
            number += 1
        except OSError as error:
            raise ConfigError(f"--out {out}: {error.strerror}; choose another folder") from error

"""Edgeflock from Python: its commands' functions for notebooks, scripts and programs.

    Server   hosts a model            Client   trains for a server on data at hand
    Model    what is trained          deal     data in equal random parts
    Fleet    an emulated fleet        plot     curves of runs, as a figure
    Result   a model that was trained      Loss    what outputs cost, and what is right
    load     a model of a file, to predict

    status, roll_back    of a server that runs elsewhere      back_up, restore    a run in one file

Importing this package loads almost nothing. Each name loads its modules on first use. docs/library.md
describes the names.
"""

import os
from importlib import import_module, metadata
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edgeflock.api.client import Client
    from edgeflock.api.data import deal
    from edgeflock.api.figure import plot
    from edgeflock.api.fleet import Fleet
    from edgeflock.api.model import Model
    from edgeflock.api.result import Result
    from edgeflock.api.server import Server
    from edgeflock.inference.predicting import load
    from edgeflock.operations.status import roll_back, status
    from edgeflock.server.ledger import back_up, restore
    from edgeflock.shared.errors import ConfigError, Diverged, EdgeflockError, Refused
    from edgeflock.shared.model.losses import Loss

    __version__: str

__all__ = [
    "Client",
    "ConfigError",
    "Diverged",
    "EdgeflockError",
    "Fleet",
    "Loss",
    "Model",
    "Refused",
    "Result",
    "Server",
    "__version__",
    "back_up",
    "deal",
    "load",
    "plot",
    "restore",
    "roll_back",
    "status",
]

_NO_TELEMETRY = {
    "ORT_DISABLE_TELEMETRY": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "WANDB_ERROR_REPORTING": "false",
}
"""Environment variables that keep libraries from contacting their makers. A library reads its variable on
import, and every process of Edgeflock imports this package first. A value that the owner set stays.
"""
for _name, _value in _NO_TELEMETRY.items():
    os.environ.setdefault(_name, _value)

_MODULES = {
    "api.client": ("onnx", "Client"),
    "api.data": ("", "deal"),
    "api.figure": ("demo", "plot"),
    "api.fleet": ("server", "Fleet"),
    "api.model": ("", "Model"),
    "api.result": ("", "Result"),
    "api.server": ("server", "Server"),
    "inference.predicting": ("server", "load"),
    "operations.status": ("", "roll_back status"),
    "server.ledger": ("server", "back_up restore"),
    "shared.errors": ("", "ConfigError Diverged EdgeflockError Refused"),
    "shared.model.losses": ("", "Loss"),
}
"""Module -> (the extra that installs what it needs, the names that are imported from it)."""
_NAMES = {name: (module, extra) for module, (extra, names) in _MODULES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    """Import a name of `__all__` on first use (PEP 562). Raises ConfigError if an extra is missing."""
    if name == "__version__":
        return metadata.version("edgeflock")
    if name not in _NAMES:
        raise AttributeError(f"module 'edgeflock' has no attribute {name!r}; it has {', '.join(__all__)}")
    module, extra = _NAMES[name]
    try:
        found = getattr(import_module(f"edgeflock.{module}"), name)
    except ModuleNotFoundError as error:
        if not extra:
            raise
        from edgeflock.shared.errors import ConfigError
        from edgeflock.shared.extras import install_command

        raise ConfigError(f"edgeflock.{name} needs {error.name}: {install_command(extra)}") from error
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)

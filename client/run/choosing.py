"""Chooses the backend: the owner's choice, or an installed and permitted one; and objects in their place."""

import os
import platform
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from edgeflock.client.backends import Backend
from edgeflock.client.data import Batches
from edgeflock.client.data.open import directory
from edgeflock.client.identity import ClientIdentity
from edgeflock.client.machine import device_class, memory_of
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.extras import install_command
from edgeflock.shared.model.calls import Call
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.model.losses import LOSSES
from edgeflock.shared.model.personal import whole_layout
from edgeflock.shared.protocol.messages import Facts, Welcome

if TYPE_CHECKING:  # its pydantic is a quarter of the client's import time
    from edgeflock.client.backends.onnx import OnnxBackend
    from edgeflock.client.flower.app import FlowerApp
    from edgeflock.shared.model.modules.building import Make
    from edgeflock.shared.settings.client import ClientSettings

ZOO = "edgeflock.client.zoo:"

Kind = Literal["onnx", "torch", "flower"]

_NEEDS = {"onnx": "onnxruntime", "torch": "torch", "flower": "flwr"}
"""Backend -> the module that it needs."""

_NOT_FOR_APPS = ("data", "shards", "share", "model", "graph_digest")
"""Settings that do not apply to a Flower app."""


@dataclass(frozen=True, slots=True)
class ClientObjects:
    """Objects that replace settings."""

    identity: ClientIdentity | None = None
    """Replaces client.identity. It is not stored."""
    batches: Callable[[list[int]], Batches] | None = None
    """Makes batches from the device's seed. Replaces client.data."""
    samples: Callable[..., Any] | None = None
    """A generator function of samples. client.data is then only its name."""
    make: "Make | None" = None
    """Builds the model. Replaces client.model."""
    threads: bool = True
    """Whether to set torch's threads, which are process-wide, to client.threads."""
    gentle: bool = False
    """Whether the process lowers its priority once it has joined."""


NO_OBJECTS = ClientObjects()
"""No objects: the settings define everything."""


def choose(
    settings: "ClientSettings", model: str, objects: ClientObjects = NO_OBJECTS, loss: str = "cross_entropy"
) -> Kind:
    """Return the backend for `model`: client.backend, or torch if installed and permitted, or onnx.

    Without the owner's consent, a server may name only zoo models and losses without import strings. The
    owner must also name a module's arguments. A loss by import string must be from the owner's module, since
    consent to a model does not cover other code.

    Raises ConfigError if no backend is possible.
    """
    allowed = bool(settings.model or objects.make) or (model.startswith(ZOO) and "(" not in model)
    named = settings.model
    if Call.parse(model, "the server's model").name == Call.parse(named, "client.model").name != "":
        allowed = allowed and named == model
    imported = ":" in loss.partition("(")[0] and not LOSSES.is_registered(loss)
    if imported:
        allowed = allowed and loss.partition(":")[0] == named.partition(":")[0]
    # find_spec does not import: importing torch takes seconds.
    installed = {kind: find_spec(module) is not None for kind, module in _NEEDS.items()}
    wanted: Kind | Literal["auto"] = "flower" if settings.flower_app else settings.backend
    if wanted == "auto":
        if not (installed["torch"] or installed["onnx"]):
            raise ConfigError(
                f"nothing that trains is installed: {install_command('onnx')}, which is small, or "
                f"{install_command('torch')}"
            )
        may = installed["torch"] and not settings.graph_digest
        wanted = "torch" if may and (allowed or not installed["onnx"]) else "onnx"
    if not installed[wanted]:
        raise ConfigError(f"{_setting(settings)} needs {_NEEDS[wanted]}: {install_command(wanted)}")
    if wanted == "torch" and settings.graph_digest:
        raise ConfigError(
            "client.graph_digest pins a graph, and client.backend = 'torch' takes none: leave one of them out"
        )
    if wanted == "onnx" and settings.accelerator not in ("", "cuda"):
        raise ConfigError(
            f"client.accelerator = {settings.accelerator!r} is of torch, and onnx trains here, on the "
            "processor or with cuda: leave it out, or set client.backend=torch"
        )
    if wanted == "torch" and not allowed:
        with_it = f" with the loss {loss}, which must be of client.model's module" if imported else ""
        raise ConfigError(
            f"the server asks to train {model}{with_it}; a server may "
            f"only name models of {ZOO}... by itself. If you trust it, set client.model={model}; without its "
            "code, client.backend=onnx trains it"
        )
    return wanted


def _setting(settings: "ClientSettings") -> str:
    if settings.flower_app:
        return f"client.flower_app = {settings.flower_app!r}"
    return f"client.backend = {settings.backend!r}"


def torch_backend(
    settings: "ClientSettings", welcome: Welcome, objects: ClientObjects, base: Path | None = None
) -> Backend:
    """Build a torch backend, with the owner's model if it is set. The file `base` has the frozen numbers."""
    with _loading("torch"):
        from edgeflock.client.backends.torch import TorchBackend

    model = settings.model or welcome.model
    threads = settings.threads if objects.threads else 0
    layout = Layout.from_shapes(welcome.layout)  # type: ignore[arg-type]  # the link has looked at it
    backend = TorchBackend(
        model,
        welcome.loss,
        seed=settings.seed,
        threads=threads,
        make=objects.make,
        accelerator=settings.accelerator,
        lora=None if welcome.base is None else welcome.base.lora(layout),
    )
    if welcome.base is not None and base is not None:
        if backend.base is None or list(backend.base.shapes()) != welcome.base.shapes:
            raise ConfigError(f"{model} has other layers here than the server's model; use the same code")
        backend.hold_base(welcome.base.at(base))
    return backend


def onnx_backend(
    settings: "ClientSettings", welcome: Welcome, graph: bytes, memory: int, base: Path | None = None
) -> "OnnxBackend":
    """Build an onnx backend. A graph can only compute, so any model is allowed, unless a digest is set.

    The file `base` has the frozen numbers.
    """
    from edgeflock.client.backends.onnx import OnnxBackend

    layout = Layout.from_shapes(welcome.layout)  # type: ignore[arg-type]  # the link has looked at it
    if welcome.personal is not None:
        layout = whole_layout(layout, welcome.personal.shapes)
    return OnnxBackend(
        graph,
        layout,
        threads=settings.threads,
        model=welcome.model,
        memory=memory,
        digest=settings.graph_digest,
        base=None if welcome.base is None or base is None else welcome.base.at(base),
        accelerator=settings.accelerator,
    )


def flower_app(settings: "ClientSettings") -> "FlowerApp":
    """The Flower app that the settings name. Raises ConfigError."""
    for key in _NOT_FOR_APPS:
        if key in settings.model_fields_set and (value := getattr(settings, key)):
            raise ConfigError(
                f"client.{key} = {value!r} is not of a Flower app, which has its own model and data: leave "
                "it out, or client.flower_app"
            )
    choose(settings, "")
    with _loading("flower"):
        from edgeflock.client.flower.app import FlowerApp

    return FlowerApp(settings.flower_app, settings.node_config, settings.name, directory(settings))


def facts_of(kind: Kind, labels: Iterable[str] = ()) -> Facts:
    """Return the facts about this device for its Hello, with its owner's `labels` (client.labels)."""
    facts: Facts = {"backend": _engine(kind), "machine": platform.machine(), "cores": os.cpu_count() or 1}
    facts["memory"] = memory_of() >> 20
    facts["version"] = metadata.version("edgeflock")
    facts |= {f"label.{name}": value for name, _, value in (label.partition("=") for label in labels)}
    device = device_class()
    return facts if device is None else {**facts, "class": device}


def _engine(kind: Kind) -> str:
    if kind in ("torch", "flower"):
        return f"{_NEEDS[kind]} {metadata.version(_NEEDS[kind])}"
    with _loading("onnx"):
        import onnxruntime  # its package has one of several names

    return f"onnxruntime {onnxruntime.__version__}"


@contextmanager
def _loading(kind: Kind) -> Iterator[None]:
    try:
        yield
    except ImportError as error:  # it is installed: choose checks that
        raise ConfigError(f"{_NEEDS[kind]} cannot be loaded on this device: {error}") from error

"""Builds the torch module that a string names, finds its tensors, and calls it."""

import importlib
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from inspect import Parameter, signature
from typing import Any

import torch
from torch import Tensor, nn

from edgeflock.shared.errors import ConfigError
from edgeflock.shared.model.calls import Call
from edgeflock.shared.model.fields import Fields, Inputs
from edgeflock.shared.model.layout import Layout

_RANDOM = threading.RLock()

Make = Callable[[], nn.Module]
"""Builds a module in its initial state."""

X = Tensor | dict[str, Tensor]
"""The argument of a module: a tensor, or several by name."""


@contextmanager
def seeded_random(seed: int | Tensor) -> Iterator[None]:
    """Run torch with a seed or a random state, and restore the state afterwards.

    Random numbers are global to the process, so only one such block runs at a time. Meanwhile other threads
    also draw from this state.
    """
    with _RANDOM, torch.random.fork_rng(devices=()):
        if isinstance(seed, int):
            torch.manual_seed(seed)
        else:
            torch.set_rng_state(seed)
        yield


def create_module(path: str, make: Make | None = None) -> nn.Module:
    """Build the module that `path` names with its arguments, or that `make` builds. Raises ConfigError."""
    call = Call.parse(path, "model.module")
    name, _, attribute = call.name.partition(":")
    if make is None and not (name and attribute):
        raise ConfigError(f"model.module {path!r} must be package.module:Name")
    try:
        factory = make or getattr(importlib.import_module(name), attribute)
        module = factory() if make is not None else factory(**call.arguments)
    except ModuleNotFoundError as error:
        hint = (
            "modules are searched in the folder of the settings file or of the model, in that of the "
            "command, and among the installed packages"
        )
        raise ConfigError(f"model.module {path!r}: {type(error).__name__}: {error}; {hint}") from error
    except Exception as error:  # user modules may raise anything
        raise ConfigError(f"model.module {path!r}: {type(error).__name__}: {error}") from error
    if not isinstance(module, nn.Module):
        raise ConfigError(f"model.module {path!r} makes a {type(module).__name__}, not a torch.nn.Module")
    return module


def build_module(path: str, make: Make | None) -> nn.Module:
    """Build it as `create_module` does. Raises ConfigError if it cannot travel as a flat vector."""
    module = create_module(path, make)
    for parameter_name, parameter in module.named_parameters():
        if isinstance(parameter, nn.parameter.UninitializedParameter):
            raise ConfigError(f"model.module {path!r}: {parameter_name} is lazy; give its layer its sizes")
    for tensor_name, tensor in (*module.named_parameters(), *statistics_of(module)):
        if tensor.dtype != torch.float32:
            raise ConfigError(f"model.module {path!r}: {tensor_name} is {tensor.dtype}, not float32")
    for buffer_name, _ in statistics_of(module):
        child_name = buffer_name.rpartition(".")[0]
        child = module.get_submodule(child_name)
        if getattr(child, "momentum", 1.0) is None:
            raise ConfigError(
                f"model.module {path!r}: {child_name or 'it'} averages over all batches (momentum=None), but "
                "the server over the latest ones; give it a momentum, e.g. 0.1"
            )
        child.momentum = 1.0  # type: ignore[assignment]
    return module


def tensors_of(module: nn.Module) -> list[tuple[str, Tensor, bool]]:
    """(name, tensor, whether it is a running statistic) of all tensors that travel, in order."""
    named: list[tuple[str, Tensor, bool]] = []
    named += ((name, parameter, False) for name, parameter in module.named_parameters())
    named += ((name, buffer, True) for name, buffer in statistics_of(module))
    return named


def layout_of(tensors: list[tuple[str, Tensor, bool]]) -> Layout:
    """Return the layout of these tensors."""
    return Layout.from_shapes((name, tensor.shape, buffer) for name, tensor, buffer in tensors)


def statistics_of(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """(name, tensor) of all running statistics."""
    for name, buffer in module.named_buffers():
        if name.rpartition(".")[2] in ("running_mean", "running_var"):
            yield name, buffer


def to_tensors(x: Inputs, device: torch.device | None = None) -> X:
    """Convert x to torch tensors on a device; None: on the CPU."""
    if isinstance(x, Fields):
        return {name: torch.from_numpy(array).to(device) for name, array in x.items()}
    return torch.from_numpy(x).to(device)


def apply(module: nn.Module, x: X) -> Any:
    """What `module` returns for x."""
    arguments, named = arguments_of(module, x)
    return module(*arguments, **named)


def arguments_of(module: nn.Module, x: X) -> tuple[tuple[Any, ...], dict[str, Tensor]]:
    """Return (arguments, keyword arguments) of forward for x.

    Fields are passed by name, and those named 0, 1, ... by position. A forward with one argument gets all as
    a dict or a tuple.
    """
    if isinstance(x, Tensor):
        return (x,), {}
    places = tuple(x[str(place)] for place in range(len(x)) if str(place) in x)
    if len(places) < len(x):
        return ((x,), {}) if _takes_one(module) and not _takes(module, x) else ((), dict(x))
    return ((places,) if _takes_one(module) and len(x) > 1 else places), {}


def _takes_one(module: nn.Module) -> bool:
    parameters = signature(module.forward).parameters.values()
    needed = [one for one in parameters if one.default is Parameter.empty]
    return len(needed) == 1 and needed[0].kind in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


def _takes(module: nn.Module, names: Mapping[str, object]) -> bool:
    return names.keys() <= signature(module.forward).parameters.keys()

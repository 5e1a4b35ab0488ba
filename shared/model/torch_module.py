"""A torch module whose parameters and gradients are in two flat vectors. It is loaded only with torch.

The running statistics of its normalisation layers follow the parameters and travel with them. Other buffers
stay in the module: num_batches_tracked counts its own batches, and nothing depends on it. A step replaces the
statistics by those of its batch. The server averages them (server/descent/parameters.py); the momentum of the
layers has no effect.
"""

import importlib
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from inspect import Parameter, signature
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from edgeflock.shared.errors import ConfigError
from edgeflock.shared.model.adapters import add_adapters, load_tensors, set_training
from edgeflock.shared.model.calls import Call
from edgeflock.shared.model.fields import Fields, Inputs, describe_shape, rows
from edgeflock.shared.model.gradient import Gradient
from edgeflock.shared.model.layout import ExtraState, Layout
from edgeflock.shared.model.lora import Adapted, Lora, first_adapters
from edgeflock.shared.model.losses import Loss, resolve_loss
from edgeflock.shared.model.measuring import measure
from edgeflock.shared.model.start import Start, generate

_EXAMPLES = 8

_ALIGNED = 64
"""The alignment of tensors on an accelerator, in entries: its kernels need aligned addresses."""

_RANDOM = threading.RLock()

Make = Callable[[], nn.Module]
"""Builds a module in its initial state."""

X = Tensor | dict[str, Tensor]
"""The argument of a module: a tensor, or several by name."""


class FlatModule:
    """A `module` whose theta (P parameters, B running statistics) and gradient are two float32 vectors."""

    def __init__(
        self, path: str, loss: str, seed: int = 0, make: Make | None = None, lora: Lora | None = None
    ) -> None:
        """Build the module that the import string `path` names, initialised under `seed`.

        If `make` is given, it builds the module and `path` is a display name. With `lora`, theta has its
        adapters alone, and all else is frozen. It computes on the device of its parameters: the CPU, or that
        of a `with torch.device` around this call. Raises ConfigError if it cannot be imported, is not a
        module, or cannot travel as a flat vector.
        """
        self.path = path
        self.loss, call = resolve_loss(loss)
        self._mean_loss = _loss_function(self.loss, call)
        self._make = make
        with seeded_random(seed):
            self.module = _build(path, make)
        tensors = _tensors(self.module)
        self.lora = lora
        self.frozen: list[Tensor] = []
        """The tensors of the base, in its order."""
        self.base: Layout | None = None
        """The layout of the frozen parameters and statistics, with `lora`."""
        if lora is not None:
            self.base = _layout(tensors)
            self.frozen = [tensor for _, tensor, _ in tensors]
            tensors = add_adapters(self.module, lora)
        self.layout = _layout(tensors)
        self.device = tensors[0][1].device if tensors else torch.device("cpu")
        every = 1 if self.device.type == "cpu" else _ALIGNED
        sizes = [entry.stop - entry.start for entry in self.layout.tensors]
        starts = [0, *np.cumsum([-(-size // every) * every for size in sizes]).tolist()]
        self._theta = torch.zeros(starts.pop(), device=self.device)
        self._gradient = torch.zeros_like(self._theta)
        parts = [slice(start, start + size) for start, size in zip(starts, sizes, strict=True)]
        self._places: Tensor | None = None
        """The places of theta's entries, if they are not contiguous."""
        if every > 1:
            self._places = torch.cat([torch.arange(p.start, p.stop, device=self.device) for p in parts])
        for (_, tensor, buffer), entry, place in zip(tensors, self.layout.tensors, parts, strict=True):
            self._theta[place] = tensor.detach().flatten()
            tensor.data = self._theta[place].view(entry.shape)
            if not buffer:
                tensor.grad = self._gradient[place].view(entry.shape)

    def theta(self) -> NDArray[np.float32]:
        """float32 [P + B], a copy."""
        return self._theta[self._indices(0)].numpy(force=True).copy()

    def base_theta(self) -> NDArray[np.float32]:
        """The frozen numbers: float32 [base.size], a copy; [0] without `lora`."""
        return np.concatenate([np.zeros(0, np.float32), *(t.numpy(force=True).ravel() for t in self.frozen)])

    def adapted(self) -> Adapted | None:
        """The base and the layout of its adapters; None without `lora`. The module uses that base."""
        if self.lora is None or self.base is None:
            return None
        adapted = Adapted(self.base, self.base_theta(), self.layout, self.lora.scale)
        self.load_base(adapted.theta)
        return adapted

    @property
    def whole(self) -> Layout:
        """The layout of a state_dict of the module without adapters."""
        return self.base or self.layout

    def load_base(self, values: NDArray[np.float32]) -> None:
        """Take the frozen numbers, float32 [base.size]. On the CPU the module uses the array itself."""
        load_tensors(self.frozen, torch.from_numpy(values))

    def set_training(self, training: bool) -> None:
        """Set the module to training or evaluation. Frozen layers keep their running statistics."""
        set_training(self.module, training=training, frozen=self.base is not None)

    def _indices(self, start: int, stop: int | None = None) -> slice | Tensor:
        """Return the places of these entries in theta or its gradient."""
        place = slice(start, stop)
        return place if self._places is None else self._places[place]

    def _move(self, theta: NDArray[np.float32], start: int = 0) -> None:
        """Set the module's parameters to theta, float32 [P + B], from entry `start` on."""
        if self._places is None:
            self._theta.numpy()[start:] = theta[start:]
        else:
            self._theta[self._places[start:]] = torch.tensor(theta[start:], device=self.device)

    def evaluation_module(self, theta: NDArray[np.float32]) -> nn.Module:
        """Return the module at theta, float32 [P + B], in evaluation mode. Valid until the next call."""
        self._move(theta)
        return self.module.eval()

    def predictor(
        self, theta: NDArray[np.float32]
    ) -> Callable[[NDArray[np.float32]], tuple[NDArray[np.float32], ...]]:
        """Return a function: x [n, ...] -> the module's output tensors at theta. Valid until the next call.

        It raises ConfigError if the module returns anything else, or does not accept x.
        """
        module = self.evaluation_module(theta)

        @torch.no_grad()
        def predicted(x: NDArray[np.float32]) -> tuple[NDArray[np.float32], ...]:
            try:
                output = module(torch.from_numpy(x).to(self.device))
                outputs = (output,) if isinstance(output, Tensor) else output
                return tuple(one.numpy(force=True) for one in outputs)
            except (RuntimeError, IndexError, ValueError, TypeError, AttributeError) as error:
                raise ConfigError(
                    f"model.module {self.path!r} does not fit inputs {describe_shape(x)}: {error}"
                ) from error

        return predicted

    def first_model(self, seed: int) -> tuple[NDArray[np.float32], Start | None]:
        """Return (theta to begin a run with, the Start for devices), for a module built under `seed`.

        If the module starts from weights of its own, these are theta, and devices must receive it. Builds the
        module once more, under another seed. Adapters are always made from the seed.
        """
        if self.base is not None:
            adapters = first_adapters(self.layout, seed)
            return generate(adapters, self.layout), adapters
        theta = self.theta()
        with seeded_random(seed ^ 1):
            module = _build(self.path, self._make)
        other = torch.cat([tensor.detach().flatten() for _, tensor, _ in _tensors(module)])
        start = measure(theta, other.numpy(force=True), self.layout, seed)
        return (theta, None) if start is None else (generate(start, self.layout), start)

    @property
    def predicts(self) -> bool:
        """Whether outputs can be right or wrong: then they are logits."""
        return self.loss.right is not None and not self.loss.own

    def gradient(
        self, theta: NDArray[np.float32], x: Inputs, y: NDArray[np.generic], temperature: float = 1.0
    ) -> Gradient:
        """Return the gradient of a batch, valid until the next call.

        Accuracy is that of the step's own outputs. The loss is that of the outputs divided by the
        temperature. theta is float32 [P + B]; the statistics are in the order of theta[P:].
        """
        self._move(theta)
        self._gradient.zero_()
        self.set_training(True)
        inputs, target = to_tensors(x, self.device), torch.from_numpy(y).to(self.device)
        output = apply(self.module, inputs)
        loss = self.loss_of(output if temperature == 1 else output / temperature, target, inputs)
        right = self.right_of(output, target)
        loss.backward()  # type: ignore[no-untyped-call]
        trained = self.layout.parameters.size
        statistics = self._theta[self._indices(trained)].numpy(force=True).copy()
        self._move(theta, trained)
        gradient = self._gradient[self._indices(0, trained)].numpy(force=True)
        return Gradient(loss.item(), gradient, statistics, None if right is None else right.item())

    @torch.no_grad()
    def output_deviation(self, theta: NDArray[np.float32], x: Inputs) -> float:
        """The standard deviation of all outputs for x."""
        output = apply(self.evaluation_module(theta), to_tensors(x, self.device))
        return float(output.std(correction=0))

    def extra_state(self) -> ExtraState:
        """The entries of state_dict that theta does not have."""
        same, constants = {}, {}
        own = {tensor.name for layout in (self.layout, self.base) if layout for tensor in layout.tensors}
        names = {id(parameter): name for name, parameter in self.module.named_parameters()}
        for name, tensor in self.module.state_dict(keep_vars=True).items():
            if name in own:
                continue
            if id(tensor) in names:
                same[name] = names[id(tensor)]
            elif isinstance(tensor, Tensor):
                constants[name] = tensor.numpy(force=True).copy()
        return ExtraState(same, constants)

    @torch.no_grad()
    def example(self, shape: tuple[int, ...]) -> tuple[NDArray[np.float32], NDArray[np.generic]]:
        """Return (x, y) of artificial samples: x of this shape, from 0 to 1; y as the loss requires.

        Raises ConfigError if the module does not accept such x.
        """
        random = np.random.default_rng(0)
        self.module.eval()
        if self.loss.own:
            raise ConfigError(
                f"model.loss = {_loss_name(self.loss)} does not say which targets it takes; set "
                "model.data on "
                "the server, whose samples have such targets"
            )
        try:
            x = random.random((_EXAMPLES, *shape), np.float32)
            output = self.module(torch.from_numpy(x.copy()))  # a module may modify its input
            if self._takes_classes(output):
                y = random.integers(0, output.shape[1], (len(output), *output.shape[2:]))
            else:
                y = random.integers(0, 2, tuple(output.shape)).astype(np.float32)
            self.loss_of(output, torch.from_numpy(y), torch.from_numpy(x))
        except (RuntimeError, IndexError, ValueError, TypeError, AttributeError, MemoryError) as error:
            raise ConfigError(
                f"model.input = {list(shape)} does not fit model.module {self.path!r}: {error}; "
                "it is the shape of one sample, e.g. [16] or [1, 28, 28]"
            ) from error
        return x, y

    def _takes_classes(self, output: Tensor) -> bool:
        """Whether the loss's targets are classes; if it does not say so, whether it accepts them."""
        if self.loss.classes is not None:
            return self.loss.classes
        if output.dim() < 2 or output.shape[1] < 2:
            return False
        try:
            target = torch.zeros((len(output), *output.shape[2:]), dtype=torch.int64)
            self.loss_of(output, target, {})
        except (RuntimeError, IndexError, ValueError, TypeError):
            return False
        return True

    def flops(self, x: Inputs, y: NDArray[np.generic]) -> int:
        """Floating-point operations of one `gradient` on this batch, as torch counts them."""
        with FlopCounterMode(display=False) as counter:
            self.gradient(self.theta(), x, y)
        return int(counter.get_total_flops())

    def loss_of(self, output: Any, target: Tensor, x: X) -> Tensor:
        """Return the loss. Outputs [b, 1] with targets [b] are refused: they would broadcast to [b, b].

        A user's own loss gets the batch: y, and x or its fields.
        """
        if self.loss.own:
            loss = self._mean_loss(output, {**(x if isinstance(x, dict) else {"x": x}), "y": target})
            if not isinstance(loss, Tensor) or loss.numel() != 1:
                shown = list(loss.shape) if isinstance(loss, Tensor) else type(loss).__name__
                raise ValueError(f"model.loss {_loss_name(self.loss)} returns {shown}, not a scalar tensor")
            return loss.reshape(())
        if not isinstance(output, Tensor):
            raise TypeError(f"the output is a {type(output).__name__}; model.loss must be one of your own")
        if self.loss.classes is False and output.shape != target.shape:
            raise ValueError(f"outputs {list(output.shape)} and targets {list(target.shape)} must be alike")
        return self._mean_loss(output, target)

    def right_of(self, output: Any, target: Tensor) -> Tensor | None:
        """Return the part of the predictions that are right, as float32.

        None if the loss has no accuracy, or only in evaluations as losses of the batch, or if the targets
        are probabilities of classes.
        """
        if self.loss.right is None or self.loss.own or (self.loss.classes and target.is_floating_point()):
            return None
        right: Tensor = self.loss.right(output.detach(), target)
        return right.to(torch.float32).mean()

    @torch.no_grad()
    def evaluate(
        self,
        theta: NDArray[np.float32],
        x: Inputs,
        y: NDArray[np.generic],
        batch: int = 200,
        on_batch: Callable[[Any, Tensor, Tensor | None], object] = lambda output, target, right: None,
    ) -> tuple[float, float | None]:
        """Return (mean loss, accuracy) over all samples; no accuracy for a regression loss.

        The accuracy counts single predictions; a sample may have several. `on_batch` gets the outputs and
        targets of each batch, and which predictions are right if the loss knows that.
        """
        module = self.evaluation_module(theta)
        total, correct = 0.0, 0
        for start in range(0, len(y), batch):
            target = torch.from_numpy(y[start : start + batch]).to(self.device)
            inputs = to_tensors(rows(x, slice(start, start + batch)), self.device)
            output = apply(module, inputs)
            total += self.loss_of(output, target, inputs).item() * len(target)
            right: Tensor | None = None if self.loss.right is None else self.loss.right(output, target)
            correct += 0 if right is None else int(right.sum())
            shown = output.cpu() if isinstance(output, Tensor) else output
            on_batch(shown, target.cpu(), None if right is None else right.cpu())
        return total / len(y), None if self.loss.right is None else correct / y.size


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


def _loss_function(loss: Loss, call: Call) -> Callable[..., Tensor]:
    """Return the function that computes the loss in torch. Raises ConfigError."""
    function = loss.function
    try:
        if isinstance(function, str):
            package, _, name = function.partition(":")
            function = getattr(importlib.import_module(package), name)
        if isinstance(function, type):
            built: Callable[..., Tensor] = function(**call.arguments)
            return built
        if not call.arguments:
            return function
        arguments = {name: value if loss.own else _as_tensor(value) for name, value in call.arguments.items()}
        signature(function).bind_partial(**arguments)
    except Exception as error:  # user code may raise anything
        raise ConfigError(f"model.loss = {str(call)!r}: {type(error).__name__}: {error}") from error
    return partial(function, **arguments)


def _loss_name(loss: Loss) -> str:
    return loss.function if isinstance(loss.function, str) else getattr(loss.function, "__name__", "of yours")


def _as_tensor(value: Any) -> Any:
    """Convert lists to tensors, which torch's own losses take, e.g. for weights of classes."""
    return torch.tensor(value, dtype=torch.float32) if isinstance(value, list) else value


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
        hint = "modules are searched in the folder of the settings and among the installed packages"
        raise ConfigError(f"model.module {path!r}: {type(error).__name__}: {error}; {hint}") from error
    except Exception as error:  # user modules may raise anything
        raise ConfigError(f"model.module {path!r}: {type(error).__name__}: {error}") from error
    if not isinstance(module, nn.Module):
        raise ConfigError(f"model.module {path!r} makes a {type(module).__name__}, not a torch.nn.Module")
    return module


def _build(path: str, make: Make | None) -> nn.Module:
    module = create_module(path, make)
    for parameter_name, parameter in module.named_parameters():
        if isinstance(parameter, nn.parameter.UninitializedParameter):
            raise ConfigError(f"model.module {path!r}: {parameter_name} is lazy; give its layer its sizes")
    for tensor_name, tensor in (*module.named_parameters(), *_statistics(module)):
        if tensor.dtype != torch.float32:
            raise ConfigError(f"model.module {path!r}: {tensor_name} is {tensor.dtype}, not float32")
    for buffer_name, _ in _statistics(module):
        child_name = buffer_name.rpartition(".")[0]
        child = module.get_submodule(child_name)
        if getattr(child, "momentum", 1.0) is None:
            raise ConfigError(
                f"model.module {path!r}: {child_name or 'it'} averages over all batches (momentum=None), but "
                "the server over the latest ones; give it a momentum, e.g. 0.1"
            )
        child.momentum = 1.0  # type: ignore[assignment]
    return module


def _tensors(module: nn.Module) -> list[tuple[str, Tensor, bool]]:
    """(name, tensor, whether it is a running statistic) of all tensors that travel, in order."""
    named: list[tuple[str, Tensor, bool]] = []
    named += ((name, parameter, False) for name, parameter in module.named_parameters())
    named += ((name, buffer, True) for name, buffer in _statistics(module))
    return named


def _layout(tensors: list[tuple[str, Tensor, bool]]) -> Layout:
    return Layout.from_shapes((name, tensor.shape, buffer) for name, tensor, buffer in tensors)


def _statistics(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """(name, tensor) of all running statistics."""
    for name, buffer in module.named_buffers():
        if name.rpartition(".")[2] in ("running_mean", "running_var"):
            yield name, buffer

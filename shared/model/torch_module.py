"""A torch module whose parameters and gradients are in two flat vectors. It is loaded only with torch.

The running statistics of its normalisation layers follow the parameters and travel with them. Other buffers
stay in the module: num_batches_tracked counts its own batches, and nothing depends on it. A step replaces the
statistics by those of its batch. The server averages them (server/descent/parameters.py); the momentum of the
layers has no effect.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from edgeflock.shared.errors import ConfigError
from edgeflock.shared.model.base_file import SCALES
from edgeflock.shared.model.fields import Inputs, describe_shape, rows
from edgeflock.shared.model.gradient import Gradient
from edgeflock.shared.model.layout import ExtraState, Layout
from edgeflock.shared.model.lora import Adapted, Lora, first_adapters
from edgeflock.shared.model.measuring import measure
from edgeflock.shared.model.modules.adapters import add_adapters, set_training
from edgeflock.shared.model.modules.building import (
    Make,
    apply,
    build_module,
    layout_of,
    seeded_random,
    tensors_of,
    to_tensors,
)
from edgeflock.shared.model.modules.criterion import Criterion
from edgeflock.shared.model.modules.int8 import Int8Matrix, replace_parameter, saving_references
from edgeflock.shared.model.start import Start, generate

_EXAMPLES = 8

_ALIGNED = 64
"""The alignment of tensors on an accelerator, in entries: its kernels need aligned addresses."""


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
        self.criterion = Criterion(loss)
        self.loss = self.criterion.kind
        self._make = make
        with seeded_random(seed):
            self.module = build_module(path, make)
        tensors = tensors_of(self.module)
        self._training: bool | None = None
        """The module's mode, if `set_training` set it last."""
        self.lora = lora
        self.frozen: list[Tensor] = []
        """The tensors of the base, in its order."""
        self.base: Layout | None = None
        """The layout of the frozen parameters and statistics, with `lora`."""
        if lora is not None:
            self.base = layout_of(tensors)
            self.frozen = [tensor for _, tensor, _ in tensors]
            tensors = add_adapters(self.module, lora)
        self._saving: Callable[[], AbstractContextManager[object]] = nullcontext
        self.layout = layout_of(tensors)
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
        adapted = Adapted.from_theta(self.base, self.base_theta(), self.layout, self.lora)
        self.load_base(adapted.theta)
        return adapted

    @property
    def whole(self) -> Layout:
        """The layout of a state_dict of the module without adapters."""
        return self.base or self.layout

    def load_base(self, values: NDArray[np.float32]) -> None:
        """Take the frozen numbers, float32 [base.size]. On the CPU the module uses the array itself."""
        base = self.base.tensors if self.base is not None else ()
        self.hold_base({t.name: values[t.start : t.stop].reshape(t.shape) for t in base})

    def hold_base(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Take the frozen tensors by name. On the CPU the module uses the arrays themselves.

        A matrix in eight bits has its int8 numbers and its scales (base_file.py).
        """
        names = (t.name for t in self.base.tensors) if self.base is not None else ()
        for tensor, name in zip(self.frozen, names, strict=True):
            values = torch.from_numpy(arrays[name]).to(self.device)
            scales = arrays.get(name + SCALES)
            if scales is None:
                tensor.data = values
            else:
                matrix = Int8Matrix(values, torch.from_numpy(scales).to(self.device))
                replace_parameter(self.module, tensor, matrix)
                tensor.data = tensor.new_empty(0)
                self._saving = saving_references

    def set_training(self, training: bool) -> None:
        """Set the module to training or evaluation. Frozen layers keep their running statistics."""
        if self._training is not training:  # torch visits each layer, which takes 0.1 ms
            set_training(self.module, training=training, frozen=self.base is not None)
            self._training = training

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
        self._training = None
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
            module = build_module(self.path, self._make)
        other = torch.cat([tensor.detach().flatten() for _, tensor, _ in tensors_of(module)])
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
        with self._saving():
            output = apply(self.module, inputs)
            loss = self.criterion(output if temperature == 1 else output / temperature, target, inputs)
        right = self.criterion.right(output, target)
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
        self._training = None
        if self.loss.own:
            raise ConfigError(
                f"model.loss = {self.criterion.name} does not say which targets it takes; set "
                "model.data on the server, whose samples have such targets"
            )
        try:
            x = random.random((_EXAMPLES, *shape), np.float32)
            output = self.module(torch.from_numpy(x.copy()))  # a module may modify its input
            if self.criterion.takes_classes(output):
                y = random.integers(0, output.shape[1], (len(output), *output.shape[2:]))
            else:
                y = random.integers(0, 2, tuple(output.shape)).astype(np.float32)
            self.criterion(output, torch.from_numpy(y), torch.from_numpy(x))
        except (RuntimeError, IndexError, ValueError, TypeError, AttributeError, MemoryError) as error:
            raise ConfigError(
                f"model.input = {list(shape)} does not fit model.module {self.path!r}: {error}; "
                "it is the shape of one sample, e.g. [16] or [1, 28, 28]"
            ) from error
        return x, y

    def flops(self, x: Inputs, y: NDArray[np.generic]) -> int:
        """Floating-point operations of one `gradient` on this batch, as torch counts them."""
        with FlopCounterMode(display=False) as counter:
            self.gradient(self.theta(), x, y)
        return int(counter.get_total_flops())

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
            total += self.criterion(output, target, inputs).item() * len(target)
            right: Tensor | None = None if self.loss.right is None else self.loss.right(output, target)
            correct += 0 if right is None else int(right.sum())
            shown = output.cpu() if isinstance(output, Tensor) else output
            on_batch(shown, target.cpu(), None if right is None else right.cpu())
        return total / len(y), None if self.loss.right is None else correct / y.size

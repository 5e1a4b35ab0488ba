"""Adds low-rank adapters to a torch module, and freezes the rest (lora.py). It is loaded only with torch."""

from collections import Counter
from fnmatch import fnmatchcase

from torch import Tensor, nn
from torch.nn import functional as F

from edgeflock.shared.errors import ConfigError
from edgeflock.shared.model.lora import A, B, Lora


def add_adapters(module: nn.Module, lora: Lora) -> list[tuple[str, Tensor, bool]]:
    """Freeze `module` and add adapters to its layers. Return (name, adapter, False) of each, in order.

    All of them are zeros. Raises ConfigError if a target matches no linear layer.
    """
    layers = _targets(module, lora)
    for parameter in module.parameters():
        parameter.requires_grad_(False)
    adapters: list[tuple[str, Tensor, bool]] = []
    for name, layer in layers.items():
        a = nn.Parameter(layer.weight.new_zeros(lora.rank, layer.in_features))
        b = nn.Parameter(layer.weight.new_zeros(layer.out_features, lora.rank))
        layer.register_parameter(A[1:], a)
        layer.register_parameter(B[1:], b)
        layer.register_forward_hook(_Adapted(lora.scale))
        adapters += [(name + A, a, False), (name + B, b, False)]
    return adapters


def set_training(module: nn.Module, *, training: bool, frozen: bool) -> None:
    """Set the module's mode. Layers with running statistics use these, and keep them, if it is `frozen`."""
    module.train(training)
    for layer in module.modules() if frozen else ():
        if getattr(layer, "running_mean", None) is not None:
            layer.eval()


class _Adapted:
    """A hook that adds scale B A x to what a linear layer returns for x."""

    def __init__(self, scale: float) -> None:
        self._scale = scale

    def __call__(self, layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        a, b = getattr(layer, A[1:]), getattr(layer, B[1:])  # an export replaces the parameters by tensors
        return output + self._scale * F.linear(F.linear(inputs[0], a), b)


def _targets(module: nn.Module, lora: Lora) -> dict[str, nn.Linear]:
    """Return the linear layers that the targets match, by name. Raises ConfigError.

    Only layers with a weight of their own are considered: merged adapters would change a tied one elsewhere.
    """
    uses = Counter(id(weight) for _, weight in module.named_parameters(remove_duplicate=False))
    attention = {id(m.out_proj) for m in module.modules() if isinstance(m, nn.MultiheadAttention)}
    linear = {
        name: layer
        for name, layer in module.named_modules()
        # An attention layer of torch takes the weight of its last layer, and does not call that layer.
        if isinstance(layer, nn.Linear) and uses[id(layer.weight)] == 1 and id(layer) not in attention
    }
    for pattern in lora.targets:
        if not any(fnmatchcase(name, pattern) for name in linear):
            raise ConfigError(
                f"model.lora: the target {pattern!r} matches no linear layer with a weight of its own; the "
                f"model has {', '.join([*linear][:20]) or 'none'}"
            )
    return {
        name: layer
        for name, layer in linear.items()
        if any(fnmatchcase(name, pattern) for pattern in lora.targets)
    }

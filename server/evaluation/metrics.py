"""Metrics over all held-out data, batch by batch: by name through torchmetrics, or a user's own.

Outputs are logits, as for the losses by name: a softmax or a sigmoid turns them into probabilities here.
"""

import inspect
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from edgeflock.shared.data.samples import IGNORED
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.extras import install_command
from edgeflock.shared.model.calls import Call

UserMetric = Callable[..., Any]
"""A function of the (outputs, targets) of all samples to a number; or an object, or its class, with
update(outputs, targets), compute and reset."""

Metric = tuple[Any, Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]]
"""(an object with update, compute and reset; what makes its arguments of a batch's outputs and targets)."""

MakeMetric = Callable[[Any, Tensor], Metric]
"""Makes a metric. It is called with the first batch, which shows the kind of prediction."""


def _classes(name: str, **defaults: Any) -> Callable[[Mapping[str, Any], Tensor, Tensor], Metric]:
    """Return the maker of a multiclass, binary or multilabel metric, as the targets require."""

    def create(arguments: Mapping[str, Any], output: Tensor, target: Tensor) -> Metric:
        from torchmetrics import classification

        if not target.is_floating_point():
            if output.dim() != target.dim() + 1:
                raise ValueError(f"targets are classes, and outputs {list(output.shape)} not one for each")
            kind = getattr(classification, f"Multiclass{name}")
            arguments = {"num_classes": output.shape[1], "ignore_index": IGNORED, **defaults, **arguments}
            return kind(**arguments), lambda output, target: (_flat(output).softmax(1), target.flatten())
        _labels(output, target)
        labels = output[0].numel()
        if labels == 1:
            kind, arguments = getattr(classification, f"Binary{name}"), dict(arguments)
        else:
            kind = getattr(classification, f"Multilabel{name}")
            arguments = {"num_labels": labels, **defaults, **arguments}

        def prepare(output: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
            _labels(output, target)
            shape = (-1,) if labels == 1 else (-1, labels)
            return output.sigmoid().reshape(shape), target.long().reshape(shape)

        return kind(**arguments), prepare

    return create


def _r2(arguments: Mapping[str, Any], output: Tensor, target: Tensor) -> Metric:
    import torchmetrics

    _flatten_numbers(output, target)
    return torchmetrics.R2Score(**arguments), _flatten_numbers


def _error(power: int) -> Callable[[Mapping[str, Any], Tensor, Tensor], Metric]:
    """Return the maker of (mean |output - target|^power)^(1 / power), over all predicted numbers."""

    def create(arguments: Mapping[str, Any], output: Tensor, target: Tensor) -> Metric:
        _flatten_numbers(output, target)
        if arguments:
            raise ValueError(f"it takes no arguments, not {min(arguments)}")
        return _Errors(power), _flatten_numbers

    return create


def _flatten_numbers(output: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Return both as [n] or [n, numbers of a sample]."""
    if not target.is_floating_point() or output.shape != target.shape:
        raise ValueError(
            f"it is of numbers that are predicted: outputs {list(output.shape)} for targets "
            f"{list(target.shape)} of {str(target.dtype).removeprefix('torch.')}"
        )
    shape = (-1,) if output[0].numel() == 1 else (len(output), -1)
    return output.reshape(shape), target.reshape(shape)


def _perplexity(arguments: Mapping[str, Any], output: Tensor, target: Tensor) -> Metric:
    from torchmetrics.text import Perplexity

    if target.is_floating_point() or output.dim() != target.dim() + 1:
        raise ValueError("it is of classes that are predicted")
    return Perplexity(**{"ignore_index": IGNORED, **arguments}), lambda output, target: (
        _flat(output).unsqueeze(0),
        target.reshape(1, -1),
    )


def _topk(arguments: Mapping[str, Any], output: Tensor, target: Tensor) -> Metric:
    if target.is_floating_point():
        raise ValueError("it is of one class of several")
    if unknown := arguments.keys() - {"k"}:
        raise ValueError(f"it takes k alone, not {min(unknown)}")
    return _classes("Accuracy", average="micro")({"top_k": arguments.get("k", 5)}, output, target)


METRICS: Mapping[str, Callable[[Mapping[str, Any], Tensor, Tensor], Metric]] = {
    "accuracy": _classes("Accuracy", average="micro"),
    "topk": _topk,
    "f1": _classes("F1Score"),
    "auroc": _classes("AUROC"),
    "mae": _error(1),
    "rmse": _error(2),
    "r2": _r2,
    "perplexity": _perplexity,
}

_WITHOUT_TORCHMETRICS = ("mae", "rmse")


def _flat(output: Tensor) -> Tensor:
    """Return [n, classes] from [b, classes, ...]."""
    return output.movedim(1, -1).reshape(-1, output.shape[1])


def _labels(output: Tensor, target: Tensor) -> None:
    if output.shape != target.shape:
        raise ValueError(f"outputs {list(output.shape)} and targets {list(target.shape)} must be alike")
    if not ((target == 0) | (target == 1)).all():
        raise ValueError("targets are numbers to predict, not classes; for these there are mae and r2")


class _Errors:
    """mean(|output - target|^power)^(1 / power), with the interface of torchmetrics."""

    def __init__(self, power: int) -> None:
        self._power = power
        self.reset()

    def update(self, output: Tensor, target: Tensor) -> None:
        errors = (output - target).abs().to(torch.float64)
        self._total += float((errors**self._power).sum())
        self._count += errors.numel()

    def compute(self) -> float:
        return float((self._total / self._count) ** (1 / self._power))

    def reset(self) -> None:
        self._total, self._count = 0.0, 0


class _FunctionMetric:
    """A function of all outputs and all targets at once."""

    def __init__(self, function: UserMetric) -> None:
        self._function = function
        self.reset()

    def update(self, output: Tensor, target: Tensor) -> None:
        if not isinstance(output, Tensor):
            raise TypeError(
                f"outputs are a {type(output).__name__}, which cannot be joined: give a class with update, "
                "compute and reset"
            )
        self._outputs.append(output)
        self._targets.append(target)

    def compute(self) -> Any:
        return self._function(torch.cat(self._outputs), torch.cat(self._targets))

    def reset(self) -> None:
        self._outputs: list[Tensor] = []
        self._targets: list[Tensor] = []


def metric_by_name(text: str) -> tuple[str, MakeMetric]:
    """Return (the name of a metric, its maker). Raises ConfigError."""
    call = Call.parse(text, "model.metrics")
    if call.is_import_string:
        module, _, attribute = call.name.partition(":")
        try:
            found = getattr(import_module(module), attribute)
        except Exception as error:  # a user's module may raise anything
            raise ConfigError(
                f"model.metrics {text!r} cannot be imported: {type(error).__name__}: {error}; mend it, or "
                "name another"
            ) from error
        return str(Call(attribute, call.arguments)), user_metric(
            found, call.arguments, f"model.metrics {text!r}"
        )
    if call.name not in METRICS:
        raise ConfigError(
            f"model.metrics {text!r} is unknown; known are {', '.join(METRICS)}, and package.module:name"
        )
    try:
        if call.name not in _WITHOUT_TORCHMETRICS:
            import_module("torchmetrics")
    except ImportError as error:
        raise ConfigError(
            f"model.metrics {text!r} needs torchmetrics: {install_command('metrics')}"
        ) from error
    make = METRICS[call.name]

    def create(output: Any, target: Tensor) -> Metric:
        if not isinstance(output, Tensor):
            raise TypeError(f"the output is a {type(output).__name__}: only a metric of your own takes it")
        return make(call.arguments, output, target)

    return str(call), create


def user_metric(found: Any, arguments: Mapping[str, Any], setting: str) -> MakeMetric:
    """Return the maker of a user's metric. Raises ConfigError."""
    if not callable(found):
        raise ConfigError(f"{setting} is a {type(found).__name__}; give a function of (outputs, targets)")
    try:
        metric = found(**arguments) if inspect.isclass(found) else found
    except Exception as error:
        raise ConfigError(f"{setting}: {type(error).__name__}: {error}") from error
    if not all(hasattr(metric, name) for name in ("update", "compute", "reset")):
        if inspect.isclass(found):
            raise ConfigError(f"{setting} is a class without update, compute and reset, as torchmetrics has")
        metric = _FunctionMetric(lambda outputs, targets: found(outputs, targets, **arguments))
    return lambda output, target: (metric, lambda output, target: (output, target))

"""The model of a run, and its evaluation on the server: a torch module, or a file of arrays."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from edgeflock.server.engine import check_limits
from edgeflock.server.evaluation import episodes
from edgeflock.server.evaluation.model_scores import Evaluate, ModelScores
from edgeflock.server.findings import Targets
from edgeflock.server.hosting import trusting
from edgeflock.server.hosting.episodes import EpisodeProcess
from edgeflock.server.hosting.program_objects import ServerObjects
from edgeflock.server.monitoring.guarding import ComputeTrusted
from edgeflock.shared.data import datasets
from edgeflock.shared.data.datasets import Dataset
from edgeflock.shared.environments import is_environment, open_environment
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.model.description import Description
from edgeflock.shared.model.fields import Fields, describe_shape, rows
from edgeflock.shared.model.gradient import SAMPLES, Trial, trial
from edgeflock.shared.model.layout import NO_EXTRA_STATE, ExtraState, Layout
from edgeflock.shared.model.lora import Adapted
from edgeflock.shared.model.losses import LOSSES, scales_targets
from edgeflock.shared.model.personal import Personal
from edgeflock.shared.model.start import Start, generate
from edgeflock.shared.protocol.app import App, Arrays, encode
from edgeflock.shared.settings.config import Config

if TYPE_CHECKING:
    from torch import nn

    from edgeflock.server.evaluation.scoring import Scores
    from edgeflock.shared.model.torch_module import FlatModule


@dataclass(frozen=True, slots=True)
class ModelSetup:
    """The parts of a hosted model that a server uses, except theta."""

    evaluate: Evaluate | None = None
    data: Dataset | None = None
    """The data that it is evaluated on."""
    targets: Targets | None = None
    """The regression targets, if they are not scaled."""
    trusted_gradients: ComputeTrusted | None = None
    """Computes the gradient that the guard trusts, if it needs one."""
    input: tuple[int, ...] | None = None
    """The shape of a sample's x, if it is known."""
    app: bytes = b""
    """The settings for devices' own apps (protocol/app.py)."""
    extras: ExtraState = NO_EXTRA_STATE
    """The parts of a saved model that are not in theta."""
    personal: Personal | None = None
    """The layers that devices train for themselves. The model's layout does not have them."""
    adapted: Adapted | None = None
    """The base of a model of which only adapters are trained. The model's layout has the adapters."""


@dataclass(frozen=True, slots=True)
class HostedModel:
    """The model with which a run begins."""

    layout: Layout
    theta: NDArray[np.float32]
    """The first model: float32 [P + B]."""
    setup: ModelSetup
    start: Start | None = None
    description: Description | None = None
    trial: Trial | None = None
    """The result of a trial step."""


def model_of(config: Config, objects: ServerObjects, data: Description | None = None) -> HostedModel:
    """Build the model. `data` describes the samples of a resumed run.

    Raises ConfigError if the model cannot be built, or not be evaluated as the settings require.
    """
    return _array_model(config) if config.model.arrays else _module_model(config, objects, data)


def _array_model(config: Config) -> HostedModel:
    """Build a model of arrays, without torch."""
    from edgeflock.server.hosting import arrays as files

    arrays, theta = files.read(config.model)
    check_limits(config, arrays.layout)
    if trusting.is_wanted(config.defence.mode):
        raise ConfigError(
            f"defence.mode = {config.defence.mode!r} needs gradients that the server computes, which is not "
            "possible with a file of arrays; set defence.mode = 'clip'"
        )
    evaluate = files.load_evaluate(config.model, arrays)
    _check_needed(config, evaluated=evaluate is not None)
    return HostedModel(arrays.layout, theta, ModelSetup(evaluate, app=_encode_app(config, arrays)))


def _module_model(config: Config, objects: ServerObjects, data: Description | None) -> HostedModel:
    # torch takes seconds to import and only hosting needs it.
    from edgeflock.server.evaluation.scoring import Scores
    from edgeflock.server.hosting.weights import first_model
    from edgeflock.shared.model.torch_module import FlatModule

    if config.model.evaluate:
        raise ConfigError(
            f"model.evaluate = {config.model.evaluate!r} is for arrays, and model.module = "
            f"{config.model.module!r} is a torch module, which model.data evaluates: leave model.evaluate out"
        )
    settings = config.model
    flat = FlatModule(settings.module, settings.loss, config.model.seed, objects.make, settings.adapters)
    check_limits(config, flat.layout)
    theta, start = first_model(flat, config.model.weights, config.model.seed)
    if config.model.personal:
        return _personal_model(config, objects, flat, theta, data)
    adapted = flat.adapted()
    extras = flat.extra_state()
    acts = objects.held_out is None and is_environment(config.model.data)
    episodes.check(config, acts=acts)
    if acts:
        return _policy_model(config, objects, flat, theta, start)
    held_out = _open_held_out(config, objects, data)
    gradients: ComputeTrusted | None = None
    if trusting.is_wanted(config.defence.mode):
        gradients, held_out = _split(config, objects, held_out, adapted)
    evaluate: Evaluate | None = None
    result: Trial | None = None
    scores = Scores(config.model.metrics, objects.metrics)
    if scores and (objects.evaluate is not None or held_out is None):
        raise ConfigError(
            f"model.metrics = {config.model.metrics or list(objects.metrics)} need held-out data: set "
            "model.data, or leave them out"
        )
    if objects.evaluate is not None:
        evaluate = partial(_evaluate_with, flat, objects.evaluate)
    elif held_out is not None:
        scores.set_scale(held_out.description.target)
        evaluate, result = _evaluation(config, flat, theta, held_out, scores)
    _check_needed(config, evaluated=evaluate is not None)
    shape = _input_shape(config, flat.example, held_out)
    layout, app = flat.layout, b""
    if config.client_config.model_extra or config.evaluation.on_devices:
        app = _encode_app(config, Arrays.from_layout(layout))
    description = None if held_out is None else held_out.description.reported
    targets = None
    if held_out is not None and scales_targets(config.model.loss) and not held_out.description.target:
        targets = Targets.from_y(held_out.y)
    setup = ModelSetup(evaluate, held_out, targets, gradients, shape, app, extras, adapted=adapted)
    return HostedModel(layout, theta, setup, start, description, result)


def _personal_model(
    config: Config,
    objects: ServerObjects,
    flat: "FlatModule",
    theta: NDArray[np.float32],
    data: Description | None,
) -> HostedModel:
    """Build a model whose personal layers are on the devices, which alone can evaluate it."""
    from edgeflock.server.evaluation.scoring import Scores
    from edgeflock.server.hosting.weights import personal_layers

    needed = {"model.metrics": config.model.metrics, "metrics": objects.metrics, "evaluate": objects.evaluate}
    for key, value in needed.items():
        if value:
            raise ConfigError(f"{key}: only devices have the layers of model.personal; leave {key} out")
    _check_needed(config, evaluated=config.evaluation.on_devices > 0)
    layers = personal_layers(flat, config.model.personal, config.model.seed)
    split = layers.split
    own, start = layers.own, None if config.model.weights else layers.start
    held_out = _open_held_out(config, objects, data)
    tried = None
    if held_out is not None:
        _, tried = _evaluation(config, flat, theta, held_out, Scores([], {}))
    shared = split.split(theta)[0] if start is None else generate(start, split.shared)
    first = generate(own.start, split.personal)
    extras = flat.extra_state()
    constants = {t.name: first[t.start : t.stop].reshape(t.shape) for t in split.personal.tensors}
    setup = ModelSetup(
        data=held_out,
        input=_input_shape(config, flat.example, held_out),
        extras=extras._replace(constants={**extras.constants, **constants}),
        personal=own,
    )
    description = None if held_out is None else held_out.description.reported
    return HostedModel(split.shared, shared, setup, start, description, tried)


def _policy_model(
    config: Config,
    objects: ServerObjects,
    flat: "FlatModule",
    theta: NDArray[np.float32],
    start: Start | None,
) -> HostedModel:
    """Build the model of devices that act in an environment."""
    if config.model.adapters:
        raise ConfigError("model.lora: policies that act train all parameters; leave it out")
    if objects.evaluate is not None or objects.metrics or trusting.is_wanted(config.defence.mode):
        raise ConfigError(
            f"model.data = {config.model.data!r} is an environment, whose episodes judge the model: leave "
            "out evaluate, metrics, and a defence.mode that needs held-out samples"
        )
    environment = open_environment(config.model.data)
    in_process = objects.make is not None or LOSSES.is_process_local(config.model.loss)
    scores = episodes.EpisodeScores(flat, environment)
    judge = scores if in_process else EpisodeProcess(config.model)
    app = _encode_app(config, Arrays.from_layout(flat.layout)) if config.client_config.model_extra else b""
    setup = ModelSetup(judge.evaluate, input=environment.shape, app=app, extras=flat.extra_state())
    return HostedModel(flat.layout, theta, setup, start)


def _open_held_out(config: Config, objects: ServerObjects, data: Description | None) -> Dataset | None:
    if objects.held_out is not None or not config.model.data:
        return objects.held_out
    scaled = scales_targets(config.model.loss)
    return datasets.open_stored(config.model.data, "test", data, scales_targets=scaled)


def _split(
    config: Config, objects: ServerObjects, held_out: Dataset | None, adapted: Adapted | None
) -> tuple[ComputeTrusted, Dataset]:
    """Return (the trusted gradients of the defence, the remaining samples for evaluation)."""
    from edgeflock.shared.model.torch_module import FlatModule

    if held_out is None:
        raise ConfigError(
            f"defence.mode = {config.defence.mode!r} needs held-out samples, and there are none; set "
            "model.data, or defence.mode = 'clip'"
        )
    samples, rest = trusting.split_trusted(held_out)
    # A module of its own: the evaluator is at work at the same time.
    settings = config.model
    flat = FlatModule(settings.module, settings.loss, config.model.seed, objects.make, settings.adapters)
    if adapted is not None:
        flat.load_base(adapted.theta)
    return trusting.TrustedGradients(flat, samples), rest


def _encode_app(config: Config, arrays: Arrays) -> bytes:
    """Encode the settings for the devices' own apps."""
    return encode(App(dict(config.client_config.model_extra or {}), config.evaluation.on_devices, arrays))


def _check_needed(config: Config, *, evaluated: bool) -> None:
    """Raise ConfigError if a setting needs evaluations, and there are none."""
    if evaluated:
        return
    dependent = {
        "end.accuracy": config.end.accuracy,
        "end.patience": config.end.patience,
        "callbacks.on_evaluated": config.callbacks.on_evaluated,
    }
    for key, value in dependent.items():
        if value:
            raise ConfigError(
                f"{key} = {value!r} needs evaluations, and there are no data for them; set model.data"
            )


def _evaluation(
    config: Config, flat: "FlatModule", theta: NDArray[np.float32], held_out: Dataset, scores: "Scores"
) -> tuple[Evaluate, Trial]:
    """Return (the evaluation on the held-out data, the result of a trial step).

    Raises ConfigError if the module cannot train on such data, or one of `scores` cannot use them.
    """
    evaluate = flat.evaluate
    x, y = rows(held_out.x, slice(SAMPLES)), held_out.y[:SAMPLES]
    try:
        evaluate(theta, x, y, on_batch=scores.update)
        if y.dtype.kind == "i":  # the highest class, too
            top = [int(held_out.y.reshape(len(held_out), -1).max(axis=1).argmax())]
            evaluate(theta, rows(held_out.x, top), held_out.y[top])
        result = trial(flat.gradient, theta, x, y)
    except (RuntimeError, IndexError, ValueError, TypeError) as error:
        raise ConfigError(
            f"model.module {config.model.module!r} does not fit model.data {config.model.data!r}: {error}"
        ) from error
    scores.check()
    return partial(scores.evaluate, flat, held_out), result


def _evaluate_with(
    flat: "FlatModule",
    evaluate: "Callable[[nn.Module], tuple[float, float | None]]",
    theta: NDArray[np.float32],
) -> ModelScores:
    """Return the result of `evaluate` for the module at theta."""
    return ModelScores(*evaluate(flat.evaluation_module(theta)))


def _input_shape(
    config: Config, example: Callable[[tuple[int, ...]], object], held_out: Dataset | None
) -> tuple[int, ...] | None:
    """Return the shape of a sample's x; None if unknown. `example` raises if the model cannot take it."""
    model = config.model
    if held_out is None:
        if model.input:
            example(tuple(model.input))
        return tuple(model.input) or None
    if isinstance(held_out.x, Fields):
        if model.input:
            raise ConfigError(
                f"model.input = {model.input}: samples of model.data = {model.data!r} have several fields, "
                f"{describe_shape(held_out.x)}; leave it empty"
            )
        return None
    shape: tuple[int, ...] = held_out.x.shape[1:]
    if model.input and tuple(model.input) != shape:
        raise ConfigError(
            f"model.input = {model.input}: samples of model.data = {model.data!r} have the shape "
            f"{list(shape)}; leave one of the two empty"
        )
    return shape

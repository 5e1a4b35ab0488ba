"""A project whose devices act put to the test: what a server and its devices will meet."""

import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from edgeflock.client.backends.onnx import OnnxBackend
from edgeflock.client.backends.torch import TorchBackend
from edgeflock.client.data.acting import Actor
from edgeflock.client.training import Trainer
from edgeflock.projects.range_test import RangeTest
from edgeflock.server.engine import check_limits
from edgeflock.server.engine.welcome import welcome
from edgeflock.server.evaluation.episodes import EpisodeScores, check
from edgeflock.server.hosting.weights import first_model
from edgeflock.server.training_graph.export import export_model
from edgeflock.shared.environments import Constants, is_environment, open_environment
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.model.torch_module import FlatModule
from edgeflock.shared.numbers import size
from edgeflock.shared.protocol import wire
from edgeflock.shared.settings.config import Config


@dataclass(frozen=True, slots=True)
class PolicyCheck:
    """What was found of a policy and its environment."""

    model: str
    parameters: int
    environment: str
    observations: tuple[int, ...]
    actions: int
    first_return: float
    """Of the evaluation's episodes, before anything is learned."""
    samples: int
    """Steps of an update."""
    milliseconds: float
    """That a device without torch takes for an update: to act and to learn, in the mean of a rollout."""
    graph: int
    """Bytes of the two graphs that devices without torch get."""
    update: int
    """Bytes of an update on the wire."""
    rate: RangeTest | None = None
    """None: a range test needs data."""

    def lines(self) -> Iterator[str]:
        yield f"model   {self.model}, {self.parameters:,} parameters"
        yield f"acts in {self.environment}: observations {list(self.observations)}, {self.actions} actions"
        yield f"return  {self.first_return:.4g} before it has learned"
        yield f"step    acts and learns from {self.samples} in {self.milliseconds:.1f} ms, without torch"
        yield f"export  {size(self.graph)}, the same gradients as torch's"
        yield f"update  {self.update:,} bytes; dense it would be {4 * self.parameters:,}"

    def advice(self) -> Iterator[str]:
        """Nothing to better is known."""
        return iter(())


def check_policy(config: Config) -> PolicyCheck:
    """Raises ConfigError that says what cannot work, and what to do about it."""
    check(config, acts=True)
    evaluated = open_environment(config.model.data)
    named = config.client.data
    environment = open_environment(named) if is_environment(named) else evaluated
    if "data" in config.client.model_fields_set and not is_environment(named):
        raise ConfigError(
            f"client.data = {named!r} is no environment, and model.data = {evaluated.uri!r} is one; name one "
            "in both"
        )
    module, loss = config.model.module, config.model.loss
    flat = FlatModule(module, loss, config.model.seed)
    check_limits(config, flat.layout)
    theta, start = first_model(flat, config.model.weights, config.model.seed)
    terms = welcome("check", config, flat.layout, start, shape=evaluated.shape)
    scores = EpisodeScores(flat, evaluated)
    first = -scores.evaluate(theta)[0]
    graphs = export_model(module, loss, *evaluated.example(8))
    onnx = OnnxBackend(graphs.step, flat.layout, model=module)
    onnx.learn_to_predict(graphs.evaluation)
    trainers = []
    for backend in (TorchBackend(module, loss, seed=config.model.seed), onnx):
        actor = Actor(environment, np.random.default_rng(0))
        actor.begin(terms, backend)
        trainers.append(Trainer(backend, actor, terms))
    update = trainers[0].step(theta, 0, 1)
    trainers[1].step(theta, 0, 1)
    constants = Constants.from_loss(loss)
    laps = max(1, constants.rollout * constants.epochs // update.samples)  # of them one acts
    began = time.perf_counter()
    for lap in range(laps):
        trainers[1].step(theta, 0, 2 + lap)
    return PolicyCheck(
        module,
        flat.layout.parameters.size,
        environment.uri,
        environment.shape,
        environment.actions,
        first,
        update.samples,
        1e3 * (time.perf_counter() - began) / laps,
        len(graphs.step) + len(graphs.evaluation),
        len(wire.encode(update)),
    )

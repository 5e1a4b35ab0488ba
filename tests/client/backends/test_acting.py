"""A policy without torch: it learns and acts by exported graphs as torch does."""

from functools import cache

import numpy as np
import pytest

from edgeflock.client.backends.onnx import OnnxBackend
from edgeflock.client.backends.torch import TorchBackend
from edgeflock.server.training_graph.export import ExportedGraphs, export_model
from edgeflock.shared.errors import BadGraph, ConfigError
from tests.shared.environments.worlds import world

CASES = {
    "a2c(entropy=0.1)": ("Corridor", "edgeflock.client.zoo:ActorCritic(observations=2, actions=2)"),
    "ppo": ("Target", "edgeflock.client.zoo:ActorCritic(observations=2, actions=1, continuous=True)"),
}
"""Loss -> environment and policy: actions of classes, and numbers."""

every_loss = pytest.mark.parametrize("loss", CASES)


@cache
def graphs(loss: str) -> ExportedGraphs:
    name, policy = CASES[loss]
    return export_model(policy, loss, *world(name).example(8))


def without_torch(loss: str, *, acts: bool = True) -> OnnxBackend:
    backend = OnnxBackend(graphs(loss).step, TorchBackend(CASES[loss][1], loss).layout)
    if acts:
        backend.learn_to_predict(graphs(loss).evaluation)
    return backend


@pytest.mark.slow
@every_loss
def test_the_same_gradients_and_the_same_policy(loss: str) -> None:
    name, policy = CASES[loss]
    torch, onnx, random = TorchBackend(policy, loss), without_torch(loss), np.random.default_rng(0)
    theta = (0.1 * random.standard_normal(torch.layout.size)).astype(np.float32)
    for size in (1, 64):
        x = random.standard_normal((size, 2)).astype(np.float32)
        y = random.standard_normal((size, 4)).astype(np.float32)
        if world(name).discrete:
            y[:, 0] = random.integers(0, 2, size)
        wanted, found = torch.gradient(theta, x, y), onnx.gradient(theta, x, y)
        assert found.loss == pytest.approx(wanted.loss, rel=1e-5)
        error = np.linalg.norm(found.gradient - wanted.gradient)
        assert error <= 1e-5 * np.linalg.norm(wanted.gradient)
        pairs = zip(onnx.predictor(theta)(x), torch.predictor(theta)(x), strict=True)
        for one, other in pairs:
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_a_step_is_no_evaluation_and_an_evaluation_no_step() -> None:
    loss = "a2c(entropy=0.1)"
    backend = without_torch(loss, acts=False)
    with pytest.raises(ConfigError, match="has no evaluation graph here"):
        backend.predictor(np.zeros(backend.layout.size, np.float32))
    with pytest.raises(BadGraph, match="the evaluation graph of the model: it gives gradient/"):
        backend.learn_to_predict(graphs(loss).step)
    with pytest.raises(BadGraph, match="it does not give gradient/"):
        OnnxBackend(graphs(loss).evaluation, backend.layout)


def test_more_observations_than_there_is_memory_for() -> None:
    loss = "a2c(entropy=0.1)"
    layout = TorchBackend(CASES[loss][1], loss).layout
    backend = OnnxBackend(graphs(loss).step, layout, memory=1 << 18)
    backend.learn_to_predict(graphs(loss).evaluation)
    predict = backend.predictor(np.zeros(layout.size, np.float32))
    predict(np.zeros((4, 2), np.float32))
    with pytest.raises(BadGraph, match="the evaluation graph of the model: a step on 65536 samples takes"):
        predict(np.zeros((1 << 16, 2), np.float32))
    with pytest.raises(ConfigError, match=r"does not fit inputs \[3\]"):
        predict(np.zeros((4, 3), np.float32))

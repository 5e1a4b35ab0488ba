"""A device that acts: what it learns from, and what it cannot take part in."""

import asyncio
import logging
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from edgeflock.client.backends.torch import TorchBackend
from edgeflock.client.data import PolicyBatches
from edgeflock.client.data.acting import Actor
from edgeflock.client.data.open import open_batches
from edgeflock.client.training import Trainer
from edgeflock.shared.errors import ConfigError, TrainingFailed
from edgeflock.shared.protocol.messages import Welcome
from edgeflock.shared.settings.client import ClientSettings
from tests.client.training.fakes import WELCOME, FakeBackend
from tests.shared.environments.worlds import HERE, world

POLICY = "edgeflock.client.zoo:ActorCritic(observations=2, actions=2)"


def backend(policy: str = POLICY, loss: str = "a2c") -> TorchBackend:
    return TorchBackend(policy, loss)


def welcome(of: TorchBackend, **changes: Any) -> Welcome:
    return replace(WELCOME, loss="a2c", batch=6, input=(2,), **changes)


def actor(name: str = "Corridor?envs=2") -> Actor:
    return Actor(world(name), np.random.default_rng(0))


def test_it_acts_by_the_model_that_the_device_holds() -> None:
    seen: list[NDArray[np.float32]] = []

    class Watched(TorchBackend):
        def predictor(self, theta: NDArray[np.float32]) -> Any:
            seen.append(theta.copy())
            return super().predictor(theta)

    of, acting = Watched(POLICY, "a2c"), actor()
    assert isinstance(acting, PolicyBatches)
    run = welcome(of)
    acting.begin(run, of)
    trainer, theta = Trainer(of, acting, run), np.full(of.layout.size, 0.01, np.float32)
    update = trainer.step(theta, 0, 1)
    assert update.samples == 6
    assert update.indices or update.values
    np.testing.assert_array_equal(seen[-1], theta)
    trainer.step(2 * theta, 1, 2)
    np.testing.assert_array_equal(seen[-1], 2 * theta)
    assert acting.telemetry() == {
        "return": pytest.approx(1.5, abs=1.5),
        "length": 3.0,
        "episodes": 4,
        "env_steps": 12,
    }


def test_before_an_episode_is_over_there_is_nothing_to_tell() -> None:
    assert actor().telemetry() == {}


@pytest.mark.parametrize(
    ("name", "changes", "policy", "says"),
    [
        ("Corridor", {"input": (4,)}, POLICY, r"have the shape \[2\], and those of the run \[4\]"),
        ("Corridor", {"loss": "mse"}, POLICY, "loss 'mse' is of data; set model.loss = 'a2c'"),
        ("Corridor", {"batch": 1 << 40}, POLICY, r"asks for 1,099,511,627,776 steps .*a smaller local.batch"),
        ("Corridor", {"loss": "ppo(rollout=10000000)"}, POLICY, "must be a number from 0 to 1048576"),
        ("Target", {}, POLICY, r"policy that returns \(mean \[n, 1\]"),
        ("Corridor", {}, "edgeflock.client.zoo:ActorCritic(observations=2, actions=3)", r"logits \[n, 2\]"),
    ],
)
def test_what_does_not_fit(name: str, changes: dict[str, Any], policy: str, says: str) -> None:
    of = backend(policy)
    with pytest.raises(ConfigError, match=says):
        actor(name).begin(replace(welcome(of), **changes), of)


def test_a_backend_that_cannot_predict_cannot_act() -> None:
    with pytest.raises(ConfigError, match="leave client.data out"):
        actor().begin(replace(WELCOME, loss="a2c", input=(2,)), FakeBackend())


def test_settings_name_it(caplog: pytest.LogCaptureFixture) -> None:
    async def opened() -> None:
        async with open_batches(ClientSettings(data=f"{HERE}Corridor?envs=3")) as batches:
            assert isinstance(batches, Actor)
            with caplog.at_level(logging.INFO):
                of = backend()
                batches.begin(welcome(of), of)

    asyncio.run(opened())
    assert "acts in 3 environments at a time" in caplog.text


def test_an_environment_that_fails_is_said_to() -> None:
    of, acting = backend(), actor("Broken")
    run = welcome(of)
    acting.begin(run, of)
    for _ in range(2):  # the next one has new environments
        with pytest.raises(TrainingFailed, match=r"gym:.*Broken: ZeroDivisionError: the motor is off"):
            Trainer(of, acting, run).step(np.zeros(of.layout.size, np.float32), 0, 1)

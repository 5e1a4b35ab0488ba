"""Policies judged by episodes, here and in a process of its own."""

from pathlib import Path

import numpy as np
import pytest

from edgeflock.server.evaluation.episodes import EpisodeScores
from edgeflock.server.hosting.episodes import EpisodeProcess
from edgeflock.server.hosting.run import open_run
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.model.torch_module import FlatModule
from edgeflock.shared.settings.config import parse
from edgeflock.shared.settings.model import ModelSettings
from tests.shared.environments.worlds import HERE, world

POLICY = "edgeflock.client.zoo:ActorCritic(observations=2, actions=2)"


def settings(name: str, **changes: str) -> ModelSettings:
    return ModelSettings(**{"module": POLICY, "loss": "a2c", "data": HERE + name, **changes})


def test_the_return_is_told_and_its_negative_is_the_loss() -> None:
    flat = FlatModule(POLICY, "a2c")
    scores = EpisodeScores(flat, world("Corridor?length=5&episodes=4&sampled"))
    loss, accuracy, metrics, classes = scores.evaluate(flat.theta())
    assert (accuracy, classes) == (None, ())
    assert metrics == {"return": -loss, "length": 5.0}
    assert 0 < -loss < 5
    assert scores.evaluate(flat.theta())[0] == loss, "the same seeds"


@pytest.mark.slow
def test_another_process_comes_to_the_same() -> None:
    name = "Corridor?length=5&episodes=4&sampled"
    flat, elsewhere = FlatModule(POLICY, "a2c"), EpisodeProcess(settings(name))
    here = EpisodeScores(flat, world(name))
    for theta in (flat.theta(), 3 * flat.theta()):
        assert elsewhere.evaluate(theta) == here.evaluate(theta)


def test_an_environment_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgeflock.server.hosting.episodes.TIMEOUT", 3)
    judge = EpisodeProcess(settings("Hanging"))
    with pytest.raises(RuntimeError, match=r"plays episodes of gym:.*Hanging took longer than 3 s"):
        judge.evaluate(FlatModule(POLICY, "a2c").theta())


@pytest.mark.slow
def test_an_environment_that_fails_says_why() -> None:
    judge = EpisodeProcess(settings("Broken"))
    with pytest.raises(RuntimeError, match="ZeroDivisionError: the motor is off"):
        judge.evaluate(FlatModule(POLICY, "a2c").theta())


@pytest.mark.slow
def test_a_process_that_cannot_begin_is_no_end_of_the_server() -> None:
    judge = EpisodeProcess(settings("Corridor", module="no_such_module_of_anybody:Policy"))
    with pytest.raises(RuntimeError, match="ended; the log says why"):
        judge.evaluate(np.zeros(3, np.float32))


def test_what_else_writes_to_its_pipe_ends_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('greetings')")
    monkeypatch.syspath_prepend(str(tmp_path))
    judge = EpisodeProcess(settings("Corridor"))
    with pytest.raises(RuntimeError, match="ended; the log says why"):
        judge.evaluate(np.zeros(3, np.float32))


@pytest.mark.slow
def test_a_run_of_devices_that_act(tmp_path: Path) -> None:
    set_ = [f"server.directory={tmp_path}", f"model.module={POLICY}", "model.loss=a2c"]
    with open_run(parse(overrides=[*set_, f"model.data={HERE}Corridor"])) as hosted:
        assert hosted.model.input == (2,)
        assert hosted.held_out is None
        assert hosted.model.evaluate is not None
        scores = hosted.model.evaluate(hosted.engine.theta()[1])
        assert scores.metrics["return"] == -scores.loss


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (["model.loss=a2c"], "model.loss = 'a2c' is of a policy that acts: set model.data to an environment"),
        ([f"model.data={HERE}Corridor"], "model.loss = 'cross_entropy' is of data: set model.loss"),
        (
            ["model.loss=a2c", f"model.data={HERE}Corridor", "model.metrics=f1"],
            "has the metrics return and length",
        ),
        (["model.loss=a2c", f"model.data={HERE}Target"], "mean"),
        (
            ["model.loss=a2c", f"model.data={HERE}Corridor", "defence.mode=score"],
            "needs held-out samples",
        ),
    ],
)
def test_what_does_not_go_together(overrides: list[str], says: str, tmp_path: Path) -> None:
    config = parse(overrides=[f"server.directory={tmp_path}", f"model.module={POLICY}", *overrides])
    with pytest.raises(ConfigError, match=says), open_run(config):
        pass

"""What a run begins with when it opens, and goes on with."""

from pathlib import Path

import pytest

from edgeflock.server.hosting.run import open_run
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.model.start import generate
from edgeflock.shared.model.torch_module import FlatModule
from edgeflock.shared.settings.config import parse

DIGITS = "edgeflock.client.zoo:DigitsCNN"
OWN = "tests.devices.emulation.fleets:Pretrained"


def test_a_run_begins_with_what_devices_make_and_remembers_how(tmp_path: Path) -> None:
    settings = [
        f"server.directory={tmp_path}",
        f"model.module={DIGITS}",
        "model.data=",
        "downlink.mode=exact",
    ]
    with open_run(parse(overrides=[*settings, "model.seed=5"])) as hosted:
        engine = hosted.engine
        assert engine.start is not None
        assert engine.start.seed == 5
        theta = engine.theta()[1]
        assert theta.tobytes() == generate(engine.start, engine.layout).tobytes()
        unchanged = engine.outlet.model(0)
        assert (unchanged.base, unchanged.count) == (0, 0)
        first = engine.start
    with open_run(parse(overrides=[*settings, "model.seed=6"])) as again:
        assert again.engine.start == first, "the run's, not the settings'"
        assert again.engine.theta()[1].tobytes() == theta.tobytes()


def test_a_run_of_weights_of_its_own_begins_with_these(tmp_path: Path) -> None:
    with open_run(
        parse(overrides=[f"server.directory={tmp_path}", f"model.module={OWN}", "model.data="])
    ) as hosted:
        assert hosted.engine.start is None
        assert hosted.engine.theta()[1].tobytes() == FlatModule(OWN, "cross_entropy").theta().tobytes()


def test_the_input_is_that_of_the_data_or_of_the_settings(tmp_path: Path) -> None:
    settings = [f"server.directory={tmp_path}", f"model.module={DIGITS}"]
    for more in (["model.data=digits:"], ["model.data=", "model.input=1,8,8"], ["model.input=1, 8, 8"]):
        with open_run(parse(overrides=[*settings, *more])) as hosted:
            assert hosted.model.input == (1, 8, 8)
    with open_run(parse(overrides=[*settings, "model.data="])) as hosted:
        assert hosted.model.input is None


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (
            ["model.input=64"],
            r"model.input = \[64\]: samples of model.data = 'digits:' have .*\[1, 8, 8\]; leave",
        ),
        (["model.input=7", "model.data="], r"model.input = \[7\] does not fit model.module .*one sample"),
    ],
)
def test_an_input_that_does_not_fit(settings: list[str], says: str, tmp_path: Path) -> None:
    with (
        pytest.raises(ConfigError, match=says),
        open_run(parse(overrides=[f"server.directory={tmp_path}", f"model.module={DIGITS}", *settings])),
    ):
        pass


def test_metrics_of_settings_in_one_line() -> None:
    for text in (
        "f1,topk(k=3), f1(average='micro', top_k=2)",
        '["f1", "topk(k=3)", "f1(average=\'micro\', top_k=2)"]',
    ):
        config = parse(overrides=[f"model.metrics={text}"])
        assert config.model.metrics == ["f1", "topk(k=3)", "f1(average='micro', top_k=2)"]
    with pytest.raises(ConfigError, match="model.metrics.*must be JSON"):
        parse(overrides=["model.metrics=[f1]"])

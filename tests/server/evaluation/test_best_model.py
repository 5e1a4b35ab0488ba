"""best.safetensors: the model that had the best evaluation, whatever came after it."""

import asyncio
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from numpy.typing import NDArray

from edgeflock.server.connections.traffic import Meter
from edgeflock.server.evaluation.best_model import BEST, info_of, save_best
from edgeflock.server.evaluation.evaluator import Evaluator
from edgeflock.server.evaluation.model_scores import ModelScores
from edgeflock.server.hosting.choices import CHOICES
from edgeflock.server.hosting.run import open_run
from edgeflock.shared.errors import ConfigError, RunOver
from edgeflock.shared.model.layout import NO_EXTRA_STATE
from edgeflock.shared.protocol.frames import Evaluation
from edgeflock.shared.settings.config import parse
from tests.hosting import hosting
from tests.integration.test_reconnect import link, update
from tests.server.pushes import LAYOUT, THETA


def test_a_disk_without_room_stops_no_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    evaluation = Evaluation(3, 1.0, 0.5, 0.9, 0, 0)
    info = info_of(parse().model, "run", LAYOUT, None, None)
    save_best(tmp_path, info, NO_EXTRA_STATE, None, THETA, evaluation)
    kept = safetensors.numpy.load_file(tmp_path / BEST)
    assert np.concatenate([kept[t.name].ravel() for t in LAYOUT.tensors]).tobytes() == THETA.tobytes()
    save_best(tmp_path / "gone", info, NO_EXTRA_STATE, None, THETA, evaluation)
    assert "the best model so far, of version 3, is not kept" in caplog.text


@pytest.mark.parametrize("setting", ["end.accuracy=0.9", "end.patience=3"])
def test_what_waits_for_evaluations_needs_data(setting: str, tmp_path: Path) -> None:
    settings = ["model.data=", f"server.directory={tmp_path}", "server.open=true", setting]
    with (
        pytest.raises(ConfigError, match=f"{setting.split('=')[0]} = .* needs evaluations"),
        open_run(parse(overrides=settings, tables=CHOICES)),
    ):
        pass


async def test_over_a_connection_the_best_is_kept_and_the_run_ends_where_patience_does(
    tmp_path: Path,
) -> None:
    """Accuracies rise to version 2 and fall then; the device is told that the run is over."""
    accuracies = {0: 0.1, 1: 0.2, 2: 0.8, 3: 0.7, 4: 0.6, 5: 0.5}
    kept: list[tuple[int, bytes]] = []
    history: list[Evaluation] = []

    async with hosting(tmp_path, "end.patience=2", "coordination.mode=buffer") as hosted:

        def evaluate(theta: NDArray[np.float32]) -> ModelScores:
            return ModelScores(1.0, accuracies[hosted.engine.published.version])

        evaluator = Evaluator(
            hosted.engine, hosted.writer, hosted.registry, Meter(), evaluate, 0.001, history,
            save_best=lambda theta, evaluation: kept.append((evaluation.version, theta.tobytes())),
        )  # fmt: skip
        running = asyncio.create_task(evaluator.run())
        async with link(hosted.port) as device:
            await device.join()
            for number in range(1, 5):
                await device.push(update(number, number - 1))
                while not history or history[-1].version < number:
                    await asyncio.sleep(0)
            while not evaluator.finished:
                await asyncio.sleep(0)
            with pytest.raises(RunOver, match="2 evaluations were no better than that of version 2"):
                await device.push(update(5, 4))
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
    assert [version for version, _ in kept][-1] == 2
    assert [one.version for one in history][-1] == 4

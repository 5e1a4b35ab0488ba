"""The evaluator goes on when an evaluation fails, and says so."""

import asyncio
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from edgeflock.server.connections.traffic import Meter
from edgeflock.server.engine.steering import Recovery
from edgeflock.server.evaluation.evaluator import Evaluator
from edgeflock.server.evaluation.model_scores import ModelScores
from edgeflock.shared.errors import BaseExpired
from edgeflock.shared.protocol.frames import Evaluation
from tests.hosting import hosting
from tests.integration.test_reconnect import link, update


async def test_a_failed_evaluation_neither_stops_the_run_nor_hides(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broken = True

    def evaluate(theta: NDArray[np.float32]) -> ModelScores:
        if broken:
            raise ZeroDivisionError("a module of somebody's own")
        return ModelScores(float(theta[0]), 0.5)

    history: list[Evaluation] = []
    reported: list[Evaluation | None] = []
    async with hosting(tmp_path, "end.updates=1") as hosted, link(hosted.port) as device:
        evaluator = Evaluator(
            hosted.engine, hosted.writer, hosted.registry, Meter(), evaluate, 0.001, history, reported.append
        )
        running = asyncio.create_task(evaluator.run())
        while "somebody's own" not in caplog.text:
            await asyncio.sleep(0)
        before = evaluator.finished
        broken = False
        await device.join()
        await device.push(update(1, 0))
        while not evaluator.finished:
            await asyncio.sleep(0)
        assert not before
        assert evaluator.failed_at is None
        assert evaluator.state == "finished"
        assert evaluator.end_reason == "it has its 1 update"
        assert reported == [None, *history]
        assert [(seen.version, seen.loss) for seen in history] == [(1, float(hosted.engine.theta()[1][0]))]
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


async def test_the_last_evaluation_alone_keeps_its_classes(tmp_path: Path) -> None:
    """What is kept of a long run does not grow with them."""
    history: list[Evaluation] = []
    reported: list[Evaluation | None] = []
    right = iter(range(9))
    async with hosting(tmp_path, "end.updates=2") as hosted, link(hosted.port) as device:
        evaluator = Evaluator(
            hosted.engine,
            hosted.writer,
            hosted.registry,
            Meter(),
            lambda theta: ModelScores(1.0, 0.5, classes=((next(right), 9),)),
            0.001,
            history,
            reported.append,
        )
        running = asyncio.create_task(evaluator.run())
        await device.join()
        for number in (1, 2):
            await device.push(update(number, number - 1))
            while not history or history[-1].version < number:
                await asyncio.sleep(0)
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
    classes = [one.classes for one in history]
    assert classes == [()] * (len(history) - 1) + [((len(history) - 1, 9),)]
    assert [one.classes for one in reported if one is not None] == [((n, 9),) for n in range(len(reported))]


async def test_a_model_that_has_lost_all_goes_back_and_whoever_listens_is_told(tmp_path: Path) -> None:
    found = [(2.3, 0.1), (1.0, 0.6), (2.4, 0.1), (2.4, 0.1)]
    history: list[Evaluation] = []
    recovered: list[Recovery] = []
    async with hosting(tmp_path, "end.updates=9") as hosted, link(hosted.port) as device:
        evaluator = Evaluator(
            *(hosted.engine, hosted.writer, hosted.registry, Meter()),
            lambda theta: ModelScores(*(found[len(history)] if len(history) < len(found) else (1.0, 0.6))),
            *(0.001, history),
            on_recovery=recovered.append,
        )
        rate = hosted.engine.published.learning_rate
        running = asyncio.create_task(evaluator.run())
        await device.join()
        for number in range(1, 4):
            while len(history) < number:
                await asyncio.sleep(0)
            await device.push(update(number, hosted.engine.published.version))
        while not recovered:
            await asyncio.sleep(0)
        assert (recovered[0].previous_rate, recovered[0].rate, recovered[0].version) == (rate, rate / 2, 4)
        assert hosted.engine.published.learning_rate == rate / 2
        assert evaluator.divergence is None
        with pytest.raises(BaseExpired):
            await device.push(update(4, 3))
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running

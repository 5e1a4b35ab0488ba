"""The guard beside a server: news of whom it drops, and a gradient to trust now and then."""

import asyncio
from contextlib import closing
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edgeflock.server.defence import Trusted
from edgeflock.server.engine import Accepted
from edgeflock.server.hosting.choices import CHOICES
from edgeflock.server.journal import Journal
from edgeflock.server.ledger import open_engine
from edgeflock.server.monitoring.guarding import GuardRunner
from edgeflock.server.sessions import Writer
from edgeflock.shared.protocol.messages import Receipt
from edgeflock.shared.settings.config import parse
from tests.server.pushes import LAYOUT, THETA, push, sparse_update
from tests.server.pushes import open_engine as plain_engine


def test_it_is_told_once_that_updates_count_nothing_and_that_they_count_again(tmp_path: Path) -> None:
    reported: list[tuple[int, str]] = []
    journal, engine = plain_engine(tmp_path)
    with closing(journal):
        guarding = GuardRunner(
            engine, Writer(engine), None, lambda device, text: reported.append((device, text))
        )
        for sequence, (device, share) in enumerate(((1, 0.0), (1, 0.0), (2, 0.5), (1, 0.2), (2, 0.0)), 1):
            made = Accepted(Receipt(sequence, sequence, None), 0, share)
            guarding.record(push(device, sparse_update(sequence, 0, {0: 1.0})), made)
    assert [(device, text.split(":")[0]) for device, text in reported] == [
        (1, "the defence drops its updates; they do not change the model (defence.mode)"),
        (1, "its updates count again"),
        (2, "the defence drops its updates; they do not change the model (defence.mode)"),
    ]


def test_nobody_is_blamed_for_an_update_that_could_not_count(tmp_path: Path) -> None:
    """A run's first ones, and those beyond a device's part of the latest."""
    reported: list[tuple[int, str]] = []
    settings = parse(overrides=["defence.mode=clip"], tables=CHOICES)
    with closing(Journal(tmp_path / "journal.sqlite", durable=False)) as journal:
        journal.begin_run("run", "package:Model", LAYOUT, THETA, 0.0)
        engine = open_engine(journal, LAYOUT, settings)
        guarding = GuardRunner(engine, Writer(engine), None, lambda *news: reported.append(news))
        for name in "abcdefgh":
            engine.device_id(name)
        shares = []
        for number in range(1, 301):
            device = 1 if number % 3 else 2 + number // 3 % 7
            sent = push(device, sparse_update(number, number - 1, {number % 25: 0.5}))
            for each, answer in engine.commit([sent]):
                assert isinstance(answer, Accepted)
                shares.append(answer.share)
                guarding.record(each, answer)
    assert shares[:8] == [0.0] * 8
    assert 0 < shares[8:].count(0.0) < 200
    assert reported == []


async def test_the_engine_gets_a_gradient_and_one_that_fails_stops_nothing(tmp_path: Path) -> None:
    settings = parse(overrides=["defence.mode=score"], tables=CHOICES)
    asked: list[int] = []

    def look(version: int, theta: NDArray[np.float32]) -> Trusted:
        asked.append(version)
        if len(asked) == 1:
            raise ValueError("a module that fails once")
        return Trusted(version, np.ones((LAYOUT.size, 2), np.float32))

    with closing(Journal(tmp_path / "journal.sqlite", durable=False)) as journal:
        journal.begin_run("run", "package:Model", LAYOUT, THETA, 0.0)
        engine = open_engine(journal, LAYOUT, settings)
        writer = Writer(engine)
        guarding = GuardRunner(engine, writer, look, lambda device, text: None)
        assert engine.guard is not None
        running = [asyncio.create_task(one()) for one in (writer.run, guarding.run)]
        while engine.guard.needs_refresh(0):
            await asyncio.sleep(0.01)
        running[1].cancel()
        writer.stop()
        await asyncio.wait(running)
    assert asked == [0, 0]

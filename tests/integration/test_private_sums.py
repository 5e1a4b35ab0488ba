"""Secure sums over real sockets: the sum is right, whoever drops out, and nobody sees a single update."""

import asyncio
import json
import sqlite3
from collections.abc import Callable
from contextlib import AsyncExitStack, closing
from dataclasses import replace
from io import StringIO
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from rich.console import Console

from edgeflock.client.data.batcher import Shuffled
from edgeflock.client.training import Worker, WorkerProgress, sums
from edgeflock.client.training.selector import LocalSteps
from edgeflock.client.training.sums import SumPolicy
from edgeflock.client.training.trainer import Trainer
from edgeflock.client.transport import Link
from edgeflock.operations.status import print_status
from edgeflock.server.journal.records import SUM_DEVICE
from edgeflock.server.ledger.recovery import replay
from edgeflock.server.sessions.sum_updates import SumUpdates
from edgeflock.shared.data.datasets import Dataset
from edgeflock.shared.errors import ConfigError, ServerAtFault, UnexpectedRecord
from edgeflock.shared.model.gradient import Gradient
from edgeflock.shared.protocol import wire
from edgeflock.shared.protocol.messages import PROTOCOL, Hello, SecureSum, Update, Welcome
from edgeflock.shared.secure_sum.groups import GroupedRound
from edgeflock.shared.secure_sum.messages import SumStep
from tests.hosting import LAYOUT, Hosted, gateway, hosting, initial_theta
from tests.integration.operator import ADMIN, operating
from tests.proxy import proxying

Vector = NDArray[np.float32]

WHOLE = (
    "coordination.mode=private", "coordination.learning_rate=1", "coordination.bits=16",
    "coordination.threshold=0.5", "coordination.deadline=3600", "compression.select=1",
)  # fmt: skip
SOON = (*WHOLE, "coordination.deadline=5")
"""Long enough that on a busy machine no device is late that is not silent."""


class Constant:
    """A backend whose gradient is always the same."""

    layout = LAYOUT

    def __init__(self, number: int, scale: float = 1.0) -> None:
        value = scale * np.random.default_rng(number).standard_normal(LAYOUT.size)
        self.value = value.astype(np.float32)

    def gradient(self, theta: Vector, x: Vector, y: NDArray[np.generic]) -> Gradient:
        return Gradient(1.0, self.value.copy(), np.zeros(0, np.float32))


class Watched(Link):
    """Notes what it sends, and may fall silent."""

    silent: tuple[int, SumStep] | None = None
    """Before the n-th time of this step it stops for ever, while its connection stays."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.sent: list[SecureSum] = []
        self.answers: list[SecureSum] = []
        self.spoils = False
        """Whether it sends shares that nobody can open."""
        self.lies = False
        """Whether the server says that a round failed which it has summed, once there are ranges."""

    async def __aenter__(self) -> "Watched":
        await super().__aenter__()
        return self

    async def sum(self, message: SecureSum) -> SecureSum:
        times = sum(one.step == message.step for one in self.sent)
        if self.silent == (times, message.step):
            await asyncio.get_running_loop().create_future()
        self.sent.append(message)
        if self.spoils and message.step == SumStep.SHARES:
            message = replace(message, body=bytes(len(message.body)))
        answer = await super().sum(message)
        if self.lies and message.step == SumStep.SECRETS and int.from_bytes(answer.body, "big"):
            answer = SecureSum(SumStep.ABANDONED, message.round, b"it failed")
        self.answers.append(answer)
        return answer


def link(port: int, number: int) -> Watched:
    async def hurry(seconds: float) -> None:
        await asyncio.sleep(min(seconds, 0.01))

    hello = Hello(PROTOCOL, f"device-{number}", LAYOUT.digest, {})
    return Watched(f"http://127.0.0.1:{port}", None, hello, Random(number), hurry)


def worker(line: Link, number: int, policy: SumPolicy | None = None, *, bad: bool = False) -> Worker:
    batches = Shuffled(Dataset(np.zeros((20, 1), np.float32), np.arange(20)), np.random.default_rng(number))

    async def at_once(function: Callable[..., Any], *arguments: Any) -> Any:
        return function(*arguments)

    async def make(welcome: Welcome) -> Trainer:
        return Trainer(Constant(number, 1e9 if bad else 1.0), batches, welcome)

    return Worker(line, make, batches, at_once, sum_policy=policy)


async def until(hosted: Hosted, version: int) -> None:
    async with asyncio.timeout(200):
        while hosted.engine.published.version < version:
            await asyncio.sleep(0.01)


def summed(directory: Path) -> list[tuple[str, int, bytes]]:
    """(name, version, frame) of the journal's rows."""
    with closing(sqlite3.connect(directory / "journal.sqlite")) as db:
        rows = db.execute(
            "SELECT name, version, frame FROM updates JOIN devices ON device = devices.id ORDER BY version"
        ).fetchall()
    return [(name, version, frame) for name, version, frame in rows]


async def test_the_model_moves_by_the_mean_and_the_journal_has_sums_alone(tmp_path: Path) -> None:
    async with hosting(tmp_path, *WHOLE, "end.updates=2") as hosted, AsyncExitStack() as stack:
        lines = [await stack.enter_async_context(link(hosted.port, number)) for number in range(4)]
        done: list[WorkerProgress] = await asyncio.gather(
            *(worker(line, number).run() for number, line in enumerate(lines))
        )
        mean = np.mean([Constant(number).value for number in range(4)], axis=0)
        theta = hosted.engine.theta()[1]
        np.testing.assert_allclose(theta, initial_theta(LAYOUT.size) - 2 * mean, atol=0.005)
        again = replay(hosted.journal, LAYOUT)
        assert again.theta.tobytes() == theta.tobytes()
    assert [one.updates for one in done] == [2] * 4
    rows = summed(tmp_path)
    assert [(name, version) for name, version, _ in rows] == [(SUM_DEVICE, 1), (SUM_DEVICE, 2)]
    first = wire.decode(rows[0][2])
    assert isinstance(first, Update)
    assert (first.facts, first.samples, round(first.loss, 3)) == ({"devices": 4}, 40, 1.0)
    for line in lines:  # nothing that it has sent holds its gradient
        vectors = [message.body for message in line.sent if message.step == SumStep.MASKED]
        assert len(set(vectors)) == len(vectors) == 3  # the first sum finds the ranges


async def test_a_median_of_groups_bears_a_device_that_sends_nonsense(tmp_path: Path) -> None:
    """Of three groups, at most one has the bad device. No gradient of its size is in the model."""
    groups = ("coordination.groups=3", "coordination.aggregate=median")

    async def moved(*more: str) -> float:
        async with hosting(tmp_path / str(len(more)), *WHOLE, *more, "end.updates=2") as hosted:
            async with AsyncExitStack() as stack:
                lines = [await stack.enter_async_context(link(hosted.port, number)) for number in range(9)]
                workers = [worker(line, number) for number, line in enumerate(lines[:8])]
                await asyncio.gather(*(one.run() for one in (*workers, worker(lines[8], 8, bad=True))))
            version, theta = hosted.engine.theta()
            assert version == 2
            assert replay(hosted.journal, LAYOUT).theta.tobytes() == theta.tobytes()
            return float(np.abs(theta - initial_theta(LAYOUT.size)).max())

    largest = max(float(np.abs(Constant(number).value).max()) for number in range(8))
    assert await moved(*groups) < 2 * largest
    assert await moved() > 2 * largest


@pytest.mark.parametrize("silent", [1, 6])
async def test_a_group_with_a_silent_device_is_left_out_if_most_groups_are_right(
    tmp_path: Path, silent: int
) -> None:
    """Groups are of three devices, and a sum is of three: one that is silent ends the sum of its group."""
    groups = ("coordination.groups=3", "coordination.aggregate=median")
    async with hosting(tmp_path, *SOON, *groups) as hosted, AsyncExitStack() as stack:
        lines = [await stack.enter_async_context(link(hosted.port, number)) for number in range(9)]
        for line in lines[:silent]:
            line.silent = 1, SumStep.SIGNATURE  # in the first round that has values
        working = [asyncio.create_task(worker(line, number).run()) for number, line in enumerate(lines)]
        texts = list[str]()
        async with asyncio.timeout(200):
            while not any("of at least 9 devices are here for a sum" in text for text in texts):
                await asyncio.sleep(0.01)
                texts = [event.text for event in hosted.hub.events.list_from(0)[0]]
        version, theta = hosted.engine.theta()
        assert replay(hosted.journal, LAYOUT).theta.tobytes() == theta.tobytes()
        for one in working:
            one.cancel()
        await asyncio.gather(*working, return_exceptions=True)
    out = [text for text in texts if "is left out: 2 of 3 devices were left at step SIGNATURE" in text]
    none = [text for text in texts if "no sum of 9 devices from version 0: " in text]
    assert (len(out), len(none), version) == ((1, 0, 1) if silent == 1 else (0, 1, 0))
    if silent == 1:
        row = wire.decode(summed(tmp_path)[0][2])
        assert isinstance(row, Update)
        assert row.facts == {"devices": 6}


@pytest.mark.parametrize(
    ("step", "stays"),
    [
        (SumStep.MASKED, True),
        (SumStep.SECRETS, True),
        (SumStep.SHARES, False),
        (SumStep.MASKED, False),
        (SumStep.SIGNATURE, False),
        (SumStep.SECRETS, False),
    ],
)
async def test_a_device_that_falls_silent_is_done_without(tmp_path: Path, step: SumStep, stays: bool) -> None:
    """The one that hangs is waited for until the deadline, the one that dies until its connection breaks."""
    async with hosting(tmp_path, *(SOON if stays else WHOLE)) as hosted, AsyncExitStack() as stack:
        lines = [await stack.enter_async_context(link(hosted.port, number)) for number in range(5)]
        lines[4].silent = 1, step  # in the first round that is applied
        working = [asyncio.create_task(worker(line, number).run()) for number, line in enumerate(lines)]
        async with asyncio.timeout(200):
            while not lines[4].silent or sum(one.step == step for one in lines[4].sent) < 1:
                await asyncio.sleep(0.01)
        if not stays:
            async with asyncio.timeout(200):
                while sum(one.step == step - 1 for one in lines[4].answers) < 2:
                    await asyncio.sleep(0.01)
            working[4].cancel()
            await asyncio.gather(working[4], return_exceptions=True)
            await lines[4].__aexit__()
        await until(hosted, 1)
        for one in working:
            one.cancel()
        await asyncio.gather(*working, return_exceptions=True)
        parts = range(5 if step > SumStep.MASKED else 4)
        mean = np.mean([Constant(number).value for number in parts], axis=0)
    row = wire.decode(summed(tmp_path)[0][2])
    assert isinstance(row, Update)
    assert row.facts == {"devices": len(parts)}
    np.testing.assert_allclose(np.frombuffer(row.values, "<f4"), mean, atol=0.003)


async def test_too_few_are_left_so_the_round_is_abandoned_and_another_one_begins(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with hosting(tmp_path, *SOON) as hosted, AsyncExitStack() as stack:
        lines = [await stack.enter_async_context(link(hosted.port, number)) for number in range(5)]
        lines[3].silent = lines[4].silent = 1, SumStep.MASKED
        lines[2].silent = 1, SumStep.SIGNATURE
        working = [asyncio.create_task(worker(line, number).run()) for number, line in enumerate(lines)]
        async with asyncio.timeout(200):
            while not any("no sum of 5 devices from version 0" in text for text in caplog.messages):
                await asyncio.sleep(0.01)
            while not any(
                "no sum from version 0: 2 of 5 devices were left" in text for text in caplog.messages
            ):
                await asyncio.sleep(0.01)
        assert hosted.engine.published.version == 0
        for one in working[2:]:
            one.cancel()
        await asyncio.gather(*working[2:], return_exceptions=True)
        more = await stack.enter_async_context(link(hosted.port, 5))
        working.append(asyncio.create_task(worker(more, 5).run()))
        await until(hosted, 2)
        for one in working:
            one.cancel()
        await asyncio.gather(*working, return_exceptions=True)
    assert len(summed(tmp_path)) >= 2
    assert not {message.body for message in lines[0].sent} & {message.body for message in lines[1].sent}


async def test_a_gradient_that_the_server_may_have_summed_is_not_sent_again(tmp_path: Path) -> None:
    """A server that says a round has failed could ask again without one device, and subtract the sums."""
    async with hosting(tmp_path, *WHOLE) as hosted, AsyncExitStack() as stack:
        lines = [await stack.enter_async_context(link(hosted.port, number)) for number in range(3)]
        lines[0].lies = True
        workers = [worker(line, number) for number, line in enumerate(lines)]
        trainings: list[int] = []
        make = workers[0]._make_trainer

        async def watched(welcome: Welcome) -> Trainer:
            trainer = await make(welcome)
            contribute = trainer.contribute

            def count(theta: Vector, base: int) -> LocalSteps:
                trainings.append(sum(message.step == SumStep.KEYS for message in lines[0].sent))
                return contribute(theta, base)

            trainer.contribute = count  # type: ignore[method-assign]
            return trainer

        workers[0]._make_trainer = watched
        working = [asyncio.create_task(one.run()) for one in workers]
        await until(hosted, 1)
        async with asyncio.timeout(60):
            while len(trainings) < 2:
                await asyncio.sleep(0.01)
        for one in working:
            one.cancel()
        await asyncio.gather(*working, return_exceptions=True)
    assert trainings[:2] == [
        0,
        2,
    ]  # rounds before: that of the ranges, and the one that is said to have failed


NOISY = (*WHOLE, "privacy.mode=server", "privacy.devices=100", "coordination.cohort=4")


async def test_with_differential_privacy_devices_clip_and_their_budgets_end(tmp_path: Path) -> None:
    """The gradients have norms above the clip, so that the step is the mean of unit vectors."""
    settings = (*NOISY, "privacy.noise=1e-6", "privacy.participations=2")
    async with hosting(tmp_path, *settings) as hosted, AsyncExitStack() as stack:
        lines = [await stack.enter_async_context(link(hosted.port, number)) for number in range(4)]
        done: list[WorkerProgress] = await asyncio.gather(
            *(worker(line, number).run() for number, line in enumerate(lines))
        )
        units = [one.value / np.linalg.norm(one.value) for one in map(Constant, range(4))]
        theta = hosted.engine.theta()[1]
        np.testing.assert_allclose(
            theta, initial_theta(LAYOUT.size) - 2 * np.mean(units, axis=0), atol=2 * 2 / LAYOUT.size**0.5
        )
        assert np.linalg.norm(theta - initial_theta(LAYOUT.size)) <= 2
        assert replay(hosted.journal, LAYOUT).theta.tobytes() == theta.tobytes()
        spent = hosted.engine.eligibility.privacy_spent
        assert spent is not None
        assert spent.participations == 2
        assert "its privacy budget is spent" in (hosted.engine.published.end_reason or "")
    assert [one.updates for one in done] == [2] * 4
    for _, _, frame in summed(tmp_path):
        update = wire.decode(frame)
        assert isinstance(update, Update)
        assert np.isnan(update.loss)  # no round is for the ranges, and no vector has a loss
    assert [sum(one.step == SumStep.MASKED for one in line.sent) for line in lines] == [2] * 4
    async with hosting(tmp_path, *settings, admin_token=ADMIN) as again, operating(again.port) as operator:
        assert again.engine.eligibility.privacy_spent == spent
        known = json.loads((await operator.get("/v1/status"))[1])
        metrics = (await operator.get("/metrics"))[1]
    assert known["privacy"] == spent._asdict()
    assert f"edgeflock_privacy_delta {spent.delta}" in metrics
    print_status(Console(file=(shown := StringIO()), width=200), known)
    assert "select 1.0, secret sums of 16 bits an entry" in shown.getvalue()
    assert "updates of a device: 2 of 2" in shown.getvalue()


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (SumPolicy(threshold=0.6), "has coordination.threshold = 0.5; this device does not take part"),
        (SumPolicy(noise=0.7), "states a multiplier of 0.5 "),
    ],
)
async def test_a_device_refuses_what_its_owner_finds_too_little(
    tmp_path: Path, policy: SumPolicy, message: str
) -> None:
    async with hosting(tmp_path, *NOISY, "privacy.noise=0.5") as hosted, link(hosted.port, 0) as line:
        with pytest.raises(ConfigError, match=message):
            await worker(line, 0, policy).run()
        welcome = await line.join()
        SumPolicy(threshold=0.5, noise=0.5).check(welcome)
        with pytest.raises(ConfigError, match=r"sum_noise = 0\.5: this run states a multiplier of 0 "):
            SumPolicy(noise=0.5).check(replace(welcome, clip=0.0))  # a multiple of no bound at all


async def test_a_device_whose_shares_do_not_open_is_named(tmp_path: Path) -> None:
    """It ends every round that it is in, so operators must know which one to remove."""
    async with hosting(tmp_path, *WHOLE) as hosted, AsyncExitStack() as stack:
        lines = [await stack.enter_async_context(link(hosted.port, number)) for number in range(3)]
        lines[1].spoils = True
        working = [asyncio.create_task(worker(line, number).run()) for number, line in enumerate(lines)]
        async with asyncio.timeout(60):
            while not (
                named := [
                    event.device
                    for event in hosted.hub.events.list_from(0)[0]
                    if "is device" in event.text and "of that round" in event.text
                ]
            ):
                await asyncio.sleep(0.01)
        for one in working:
            one.cancel()
        await asyncio.gather(*working, return_exceptions=True)
    assert set(named) == {"device-1"}


async def test_a_device_outside_of_a_round_fills_no_log_with_reasons(tmp_path: Path) -> None:
    async with hosting(tmp_path, *WHOLE) as hosted, link(hosted.port, 0) as line:
        await line.join()
        for _ in range(3):
            answer = await line.sum(SecureSum(SumStep.ABANDONED, b"", b"nonsense"))
            assert answer.step == SumStep.ABANDONED
        assert not any("nonsense" in event.text for event in hosted.hub.events.list_from(0)[0])


async def test_a_device_outside_of_a_round_cannot_answer_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It names no round, as in the first step, while the sum of the others is computed."""
    plain, answers = SumUpdates.finish, list[SecureSum]()
    async with hosting(tmp_path, *WHOLE) as hosted, AsyncExitStack() as stack:
        *lines, outsider = [await stack.enter_async_context(link(hosted.port, number)) for number in range(4)]

        async def finish(self: SumUpdates, round: GroupedRound, time: float) -> Any:
            if not answers:
                await outsider.join()
                for step in (SumStep.SIGNATURE, SumStep.SECRETS):
                    async with asyncio.timeout(60):
                        answers.append(await outsider.sum(SecureSum(step, b"", b"")))
                await outsider.__aexit__()  # else the next round waits for it
            return await plain(self, round, time)

        monkeypatch.setattr(SumUpdates, "finish", finish)
        working = [asyncio.create_task(worker(line, number).run()) for number, line in enumerate(lines)]
        await until(hosted, 1)
        for one in working:
            one.cancel()
        await asyncio.gather(*working, return_exceptions=True)
    assert [one.step for one in answers] == [SumStep.ABANDONED] * 2
    assert outsider.connections == 1


async def test_a_round_ends_whose_sum_the_server_fails_to_compute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The next one has a sum."""
    plain, failed = SumUpdates.finish, list[GroupedRound]()

    async def finish(self: SumUpdates, round: GroupedRound, time: float) -> Any:
        if not failed:
            failed.append(round)
            raise ZeroDivisionError("of a mistake")
        return await plain(self, round, time)

    monkeypatch.setattr(SumUpdates, "finish", finish)
    async with hosting(tmp_path, *WHOLE) as hosted, AsyncExitStack() as stack:
        lines = [await stack.enter_async_context(link(hosted.port, number)) for number in range(3)]
        working = [asyncio.create_task(worker(line, number).run()) for number, line in enumerate(lines)]
        await until(hosted, 1)
        for one in working:
            one.cancel()
        await asyncio.gather(*working, return_exceptions=True)
        assert any("its log has the reason" in event.text for event in hosted.hub.events.list_from(0)[0])
    assert "of a mistake" in caplog.text


async def test_a_device_that_vouches_for_others_refuses_a_run_without_sums(tmp_path: Path) -> None:
    async with hosting(tmp_path) as hosted, link(hosted.port, 0) as line:
        with pytest.raises(ConfigError, match="has no secret sums"):
            await worker(line, 0, SumPolicy(vouched=frozenset({bytes(32)}))).run()


async def test_a_lost_answer_comes_again(tmp_path: Path) -> None:
    """A device whose connection breaks once at each step sends the step again, and the round goes on."""
    async with (
        hosting(tmp_path, *WHOLE, "end.updates=1") as hosted,
        proxying(hosted.port) as proxy,
        link(proxy.port, 0) as clumsy,
        link(hosted.port, 1) as one,
        link(hosted.port, 2) as other,
    ):

        async def cut() -> None:
            for step in (SumStep.KEYS, SumStep.SHARES, SumStep.MASKED, SumStep.SIGNATURE, SumStep.SECRETS):
                while not any(message.step == step for message in clumsy.sent):
                    await asyncio.sleep(0.001)
                proxy.cut_all()

        async with asyncio.timeout(200):
            workers = [worker(line, number).run() for number, line in enumerate((clumsy, one, other))]
            await asyncio.gather(cut(), *workers)
        assert hosted.engine.published.version == 1
        assert clumsy.connections > 1


async def test_a_single_update_is_refused(tmp_path: Path) -> None:
    async with hosting(tmp_path, *WHOLE) as hosted, link(hosted.port, 0) as line:
        await line.join()
        zeros = np.zeros(LAYOUT.size, "<f4").tobytes()
        with pytest.raises(UnexpectedRecord, match="takes no update of a single device"):
            await line.push(Update(1, 0, 0, 0, LAYOUT.size, b"", zeros, 0.5, 10, pull=True))


async def test_a_device_gives_up_where_its_owner_wants_more_devices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sums, "_MAX_REFUSALS", 3)  # each after a longer wait
    async with hosting(tmp_path, *WHOLE, "coordination.quorum=2") as hosted, AsyncExitStack() as stack:
        lines = [await stack.enter_async_context(link(hosted.port, number)) for number in range(2)]
        working = [worker(line, number, SumPolicy(fewest=4)).run() for number, line in enumerate(lines)]
        async with asyncio.timeout(200):
            with pytest.raises(ServerAtFault, match="this one sums with 4 at least"):
                await asyncio.gather(*working)
        assert hosted.engine.published.version == 0


async def test_a_gateway_is_refused(tmp_path: Path) -> None:
    async with hosting(tmp_path, *WHOLE, closed=True) as hosted:
        async with asyncio.timeout(200):
            serving = asyncio.create_task(_gateway(hosted))
            while not any("sums in secret" in event.text for event in hosted.hub.events.list_from(0)[0]):
                await asyncio.sleep(0.01)
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)


async def _gateway(hosted: Hosted) -> None:
    async with gateway(hosted):
        pass


async def test_the_server_says_that_it_waits_for_more_devices(tmp_path: Path) -> None:
    async with hosting(tmp_path, *SOON) as hosted, link(hosted.port, 0) as one, link(hosted.port, 1) as other:
        working = [
            asyncio.create_task(worker(line, number).run()) for number, line in enumerate((one, other))
        ]
        async with asyncio.timeout(200):
            while not any(
                "2 of at least 3 devices are here" in event.text
                for event in hosted.hub.events.list_from(0)[0]
            ):
                await asyncio.sleep(0.01)
        assert hosted.engine.published.version == 0
        for device in hosted.registry.devices.values():
            device.connection.last_heard -= 100
        await hosted.health.check()
        assert not [finding for finding in hosted.health.findings if finding.kind == "silent"]
        for task in working:
            task.cancel()
        await asyncio.gather(*working, return_exceptions=True)

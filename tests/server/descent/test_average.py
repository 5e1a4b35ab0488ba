"""The averaged model: the closed form of its weights, bit for bit through any crash, and who gets it."""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from random import Random

import aiohttp
import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load

from edgeflock.client.training.replica import Replica
from edgeflock.client.transport import Link
from edgeflock.server.app import create_app, listen
from edgeflock.server.descent.parameters import Parameters
from edgeflock.server.descent.regime import Regime
from edgeflock.server.descent.step import Step
from edgeflock.server.descent.weighting import RULES
from edgeflock.server.engine.limits import EngineLimits
from edgeflock.server.evaluation.model_scores import ModelScores
from edgeflock.server.hosting.run import HostedRun, open_run
from edgeflock.server.http.keys import EVALUATOR
from edgeflock.server.ledger.recovery import replay
from edgeflock.shared.codecs import sparse, values
from edgeflock.shared.protocol.messages import PROTOCOL, Hello, Model, Update
from edgeflock.shared.settings.config import Config, parse
from tests.server.pushes import LAYOUT, THETA, Watched, commit, copy_as_killed, open_engine, recovered

EVERY = 16
"""The average takes in every 16th version."""


def weight(t: int, of: int, eta: float) -> float:
    """What the t-th of `of` vectors weighs: (eta + 1) G(of) G(t + eta) / (G(t) G(of + eta + 1)).

    That is w_t = (eta + 1) / (t + eta) times the product of all later 1 - w_s = (s - 1) / (s + eta).
    """
    g = math.lgamma
    return (eta + 1) * math.exp(g(of) + g(t + eta) - g(t) - g(of + eta + 1))


def left(t: int, of: int, eta: float) -> float:
    """What is left after the `of`-th of what was there after the t-th: the product of 1 - w_s between."""
    g = math.lgamma
    return math.exp(g(of) + g(t + eta + 1) - g(t) - g(of + eta + 1)) if t else float(of == 0)


def average_of(stored: Sequence[NDArray[np.float32]], eta: float) -> NDArray[np.float64]:
    """The polynomial-decay average of versions 16, 32, ..."""
    weights = [weight(t, len(stored), eta) for t in range(1, len(stored) + 1)]
    assert sum(weights) == pytest.approx(1)
    return np.tensordot(weights, np.array(stored, np.float64), 1)


def parameters(regime: Regime, theta: NDArray[np.float32] = THETA) -> Parameters:
    return Parameters(0, theta.copy(), regime=regime, start=0)


def steps(count: int, seed: int = 0) -> list[Step]:
    """Random updates of a fifth of the parameters, each from the latest version but two."""
    random = np.random.default_rng(seed)
    made = []
    for number in range(count):
        where = np.flatnonzero(random.random(THETA.size) < 0.2)
        delta = random.standard_normal(where.size).astype(np.float32)
        made.append(Step(max(0, number - 2), where, delta))
    return made


@pytest.mark.parametrize("eta", [0.5, 1.0, 8.0, 30.0])
@pytest.mark.parametrize("count", [16, 31, 32, 16 * 60])
def test_it_is_the_polynomial_decay_average(eta: float, count: int) -> None:
    trained = parameters(Regime("adacomp", 0.3, 6, eta))
    stored = []
    for step in steps(count):
        trained.apply(step)
        if trained.version % EVERY == 0:
            stored.append(trained.theta.copy())
    assert trained.average is not None
    assert trained.average.dtype == np.float32
    np.testing.assert_allclose(trained.average, average_of(stored, eta), rtol=1e-5, atol=1e-5)


def test_a_constant_model_is_its_own_average() -> None:
    trained = parameters(Regime("tau", 0.1, 6, 8.0))
    nothing = np.zeros(0, np.float32)
    for version in range(200):
        trained.apply(Step(version, np.zeros(0, np.int64), nothing))
    assert trained.average is not None
    assert trained.average.tobytes() == THETA.tobytes()


def test_it_takes_in_every_sixteenth_version() -> None:
    trained = parameters(Regime("tau", 0.1, 6, 8.0))
    assert trained.average is not None
    before = trained.average.tobytes()
    changed = []
    for step in steps(100):
        trained.apply(step)
        if trained.average.tobytes() != before:
            changed.append(trained.version)
            before = trained.average.tobytes()
    assert changed == [16, 32, 48, 64, 80, 96]


@pytest.mark.parametrize("rule", RULES)
def test_theta_does_not_know_of_it(rule: str) -> None:
    plain, averaged = parameters(Regime(rule, 0.1, 6)), parameters(Regime(rule, 0.1, 6, 8.0))
    for step in steps(70):
        plain.apply(step)
        averaged.apply(step)
        assert plain.theta.tobytes() == averaged.theta.tobytes()
    assert plain.average is None
    assert averaged.average is not None
    assert averaged.average.tobytes() != averaged.theta.tobytes()


# Through the journal

ON = Regime("adacomp", 0.1, 6, 8.0)
SIZES = [4, 7, 1, 9, 12, 3, 16, 5]
"""Of the groups that are committed: 57 updates, and the average takes in three versions."""


def average(run: Watched) -> bytes:
    """The bits of the live average."""
    kept = run.engine.parameters.average
    assert kept is not None
    return kept.tobytes()


def undisturbed(directory: Path, sizes: Sequence[int] = SIZES, regime: Regime = ON) -> bytes:
    """The average of a run with one snapshot and no restart."""
    directory.mkdir()
    run = Watched(directory, regime, EngineLimits(snapshot_every=10_000))
    for size in sizes:
        run.commit(size)
    run.check()
    run.engine.abandon()
    return average(run)


@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("every", [1, 10, 16, 1000])
@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])
def test_restarts_and_snapshots_leave_no_trace(tmp_path: Path, every: int, keep: bool, killed: bool) -> None:
    run = Watched(tmp_path, ON, EngineLimits(snapshot_every=every, keep_updates=keep))
    for size in SIZES:
        run.commit(size)
        run.reopen(killed=killed)
        run.check()
    assert average(run) == undisturbed(tmp_path / "undisturbed")
    if keep:
        again = replay(run.journal, LAYOUT)
        assert again.average is not None
        assert again.average.tobytes() == average(run)


@pytest.mark.parametrize("every", [1, 10, 1000])
def test_killed_after_any_group(tmp_path: Path, every: int) -> None:
    run = Watched(tmp_path, ON, EngineLimits(snapshot_every=every))
    for number, size in enumerate(SIZES):
        found = recovered(copy_as_killed(tmp_path, tmp_path / str(number)), ON)
        assert found.average is not None
        assert found.average.tobytes() == average(run)
        run.commit(size)


@pytest.mark.parametrize("every", [1, 10, 1000])
def test_a_group_that_the_disk_never_got(tmp_path: Path, every: int) -> None:
    """The journal is abandoned with versions 15 to 18 staged: neither theta nor the average has seen them."""
    run = Watched(tmp_path, ON, EngineLimits(snapshot_every=every))
    for _ in range(2):
        run.commit(7)
    before = average(run)
    group = run.prepare(4)
    run.engine.stage(group)
    assert (run.engine.parameters.version, run.engine.published.version) == (18, 14)
    assert average(run) != before
    run.engine.abandon()
    run.journal, run.engine = open_engine(tmp_path, ON, run.bounds)
    assert run.engine.published.version == 14
    assert average(run) == before
    commit(run.engine, group)
    run.check()
    run.commit(22)
    run.check()
    assert average(run) == undisturbed(tmp_path / "undisturbed", [7, 7, 4, 22])


def test_turned_on_at_a_restart(tmp_path: Path) -> None:
    """It begins as the model of that moment, which counts as all of the past."""
    run = Watched(tmp_path, replace(ON, average=0.0), EngineLimits(snapshot_every=10))
    run.commit(40)
    assert run.engine.parameters.average is None
    run.reopen(ON)
    begin = run.engine.theta()[1]
    assert average(run) == begin.tobytes()
    stored = []
    for size in (8, 16, 16):
        run.commit(size)
        stored.append(run.engine.theta()[1].astype(np.float64))
    run.commit(3)
    # Versions 48, 64 and 80 are the third to the fifth; 40 stands for the first two.
    expected = left(2, 5, 8.0) * begin
    expected += sum(weight(t, 5, 8.0) * theta for t, theta in zip((3, 4, 5), stored, strict=True))
    np.testing.assert_allclose(run.engine.result()[1], expected, rtol=1e-5, atol=1e-6)
    live = average(run)
    for killed in (True, False):
        run.reopen(killed=killed)
        assert average(run) == live
    again = replay(run.journal, LAYOUT)
    assert again.average is not None
    assert again.average.tobytes() == live


def test_changed_at_a_restart(tmp_path: Path) -> None:
    """Another eta goes on with the average that there is."""
    run = Watched(tmp_path, ON, EngineLimits(snapshot_every=10))
    run.commit(40)
    before = run.engine.result()[1]
    assert average(run) != run.engine.theta()[1].tobytes()
    run.reopen(replace(ON, average=2.0))
    assert average(run) == before.tobytes()
    run.commit(8)
    third = run.engine.theta()[1]
    expected = left(2, 3, 2.0) * before.astype(np.float64) + weight(3, 3, 2.0) * third
    np.testing.assert_allclose(run.engine.result()[1], expected, rtol=1e-5, atol=1e-6)
    live = average(run)
    run.reopen(killed=True)
    assert average(run) == live


@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])
def test_turned_off_at_a_restart_it_is_gone(tmp_path: Path, killed: bool) -> None:
    off = replace(ON, average=0.0)
    run = Watched(tmp_path, ON, EngineLimits(snapshot_every=10))
    run.commit(40)
    run.reopen(off, killed=killed)
    assert run.engine.parameters.average is None
    run.commit(20)
    run.reopen(killed=killed)
    assert run.engine.parameters.average is None
    run.reopen(ON, killed=killed)
    assert average(run) == run.engine.theta()[1].tobytes()
    run.commit(20)
    run.check()
    again = replay(run.journal, LAYOUT)
    assert again.average is not None
    assert again.average.tobytes() == average(run)


def test_off_and_on_again_at_one_version_is_replayed(tmp_path: Path) -> None:
    run = Watched(tmp_path, ON)
    run.commit(40)
    run.reopen(replace(ON, average=0.0))
    run.reopen(ON)
    run.commit(20)
    again = replay(run.journal, LAYOUT)
    assert again.average is not None
    assert again.average.tobytes() == average(run)


@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])
def test_any_sequence_of_settings_recovers(tmp_path: Path, killed: bool) -> None:
    """After each restart under the same settings the average is the one that was."""
    run = Watched(tmp_path, ON, EngineLimits(snapshot_every=7))
    etas = (8.0, 0.0, 0.0, 3.0, 8.0, 0.0, 8.0)
    for number, (eta, size) in enumerate(zip(etas, cycle([16, 5, 20]), strict=False)):
        run.reopen(replace(ON, average=eta), killed=killed)
        run.commit(size)
        run.check()
        found = recovered(copy_as_killed(run.directory, tmp_path / str(number)), run.slow.regime)
        assert (found.average is None) == (eta == 0)
        if found.average is not None:
            assert found.average.tobytes() == average(run)


# Who gets it


def test_the_result_is_the_average_and_a_copy(tmp_path: Path) -> None:
    run = Watched(tmp_path, ON)
    run.commit(33)
    version, result = run.engine.result()
    assert (version, result.tobytes()) == (33, average(run))
    assert run.engine.theta()[1].tobytes() != result.tobytes()
    assert run.engine.outlet.model(None).values == run.engine.theta()[1].tobytes()
    result += 1
    assert result.tobytes() != average(run)


def test_without_an_average_the_result_is_theta(tmp_path: Path) -> None:
    run = Watched(tmp_path)
    run.commit(33)
    version, result = run.engine.result()
    assert (version, result.tobytes()) == (33, run.engine.theta()[1].tobytes())
    result += 1
    run.check()


async def at_once(seconds: float) -> None:
    """No line drops here."""


async def test_evaluated_and_served_while_devices_train_on_theta(tmp_path: Path) -> None:
    settings = ["server.open=true", "end.updates=40", "evaluation.every=0.001", "coordination.average=8"]
    config = parse(overrides=[f"server.directory={tmp_path}", "downlink.mode=exact", *settings])
    evaluated: list[bytes] = []

    def evaluate(theta: NDArray[np.float32]) -> ModelScores:
        evaluated.append(theta.tobytes())
        return ModelScores(0.5)

    with open_run(config) as opened:
        await the_average_is_what_is_used(
            config, replace(opened, model=replace(opened.model, evaluate=evaluate)), evaluated
        )


async def the_average_is_what_is_used(config: Config, opened: HostedRun, evaluated: list[bytes]) -> None:
    engine, layout = opened.engine, opened.engine.layout
    random, replica = np.random.default_rng(0), Replica(layout)
    app = create_app(config, opened)

    def update(sequence: int) -> Update:
        where = np.sort(random.choice(layout.size, 50, replace=False))
        delta = random.standard_normal(50).astype(np.float32)
        mode = values.CODINGS["f32"].mode
        octets = sparse.encode(where, layout.size)
        return Update(sequence, sequence - 1, sparse.GOLOMB, mode, 50, octets, delta.tobytes(), 0.5, 10, True)

    async with listen(app, "127.0.0.1", 0) as port, aiohttp.ClientSession() as http:
        url = f"http://127.0.0.1:{port}"
        hello = Hello(PROTOCOL, "pi", layout.digest, {})
        async with Link(url, None, hello, Random(0), at_once) as device:
            await device.join()
            replica.take(await device.pull(None))
            for sequence in range(1, 40):
                receipt = await device.push(update(sequence))
                assert isinstance(receipt.model, Model)
                replica.take(receipt.model)
                assert replica.theta.tobytes() == engine.parameters.theta.tobytes()
            whole = await device.pull(None)
            assert whole.values == engine.parameters.theta.tobytes()
            await device.push(update(40))
            while not app[EVALUATOR].finished:
                async with http.get(f"{url}/v1/status") as response:
                    assert response.status == 200
        assert engine.parameters.average is not None
        average = engine.parameters.average.tobytes()
        assert average != engine.parameters.theta.tobytes()
        assert evaluated[-1] == average
        async with http.get(f"{url}/v1/model.safetensors") as response:
            tensors = load(await response.read())
        flat = np.concatenate([tensors[tensor.name].ravel() for tensor in layout.tensors])
        assert flat.tobytes() == average
        async with http.get(f"{url}/v1/model") as response:
            assert await response.read() == average

"""Running statistics: the end of theta, which every update moves and no rule of staleness weighs."""

import math
import struct
from dataclasses import replace
from itertools import cycle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeflock.client.training.replica import Replica
from edgeflock.server.descent.parameters import Parameters
from edgeflock.server.descent.regime import Regime
from edgeflock.server.descent.step import Step
from edgeflock.server.descent.weighting import RULES
from edgeflock.server.engine.limits import EngineLimits, check_limits
from edgeflock.server.ledger.recovery import recover, replay
from edgeflock.shared import errors
from edgeflock.shared.codecs import grid, sparse, values
from edgeflock.shared.errors import ConfigError, Refused
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.protocol import wire
from edgeflock.shared.protocol.messages import Model, Receipt, Update
from edgeflock.shared.selection import select_largest
from edgeflock.shared.settings import config
from tests.server.pushes import (
    LAYOUT,
    NORMED,
    REGIME,
    THETA,
    Watched,
    commit,
    copy_as_killed,
    dense_update,
    initial,
    journal_rows,
    kinds,
    push,
    recovered,
    sparse_update,
    with_statistics,
)

every_rule = pytest.mark.parametrize("rule", RULES)
halves = st.floats(-65504, 65504, width=16)

# How they travel


@given(numbers=st.lists(st.floats(-65504, 65504, width=32), max_size=20))
def test_they_travel_as_half_precision(numbers: list[float]) -> None:
    octets = values.encode_statistics(np.array(numbers, np.float32))
    assert octets == b"".join(struct.pack("<e", number) for number in numbers)
    decoded = values.decode_statistics(octets)
    assert decoded.dtype == np.float32
    assert decoded.tolist() == [struct.unpack("<e", struct.pack("<e", number))[0] for number in numbers]


def test_none_is_beyond_half_precision() -> None:
    beyond = np.array([65504, 65519, 65520, 1e38, np.inf, -65520, -np.inf], np.float32)
    assert values.decode_statistics(values.encode_statistics(beyond)).tolist() == [65504] * 5 + [-65504] * 2


# How they move the server's


@every_rule
@given(data=st.data())
def test_they_stay_among_what_was_measured(rule: str, data: st.DataObject) -> None:
    """However many come at once from the same old version: no variance is below zero."""
    before = data.draw(st.floats(-1000, 1000, width=32))
    parameters = Parameters(
        0, np.array([5, before], np.float32), buffers=1, regime=Regime(rule, 1.0, 300), start=0
    )
    seen = [before]
    for number in range(data.draw(st.integers(1, 60))):
        seen.append(data.draw(halves))
        step = Step(0 if number % 3 else number, np.zeros(0, np.int64), np.zeros(0, np.float32))
        parameters.apply(replace(step, statistics=np.array(seen[-1:], np.float32)))
        assert min(seen) <= parameters.theta[1] <= max(seen)
    assert parameters.theta[0] == 5


@every_rule
def test_a_tenth_of_the_way_or_less_if_late(rule: str) -> None:
    """1 of 10 for what is up to ten versions old, then 1 of as many, whatever the rule and its rate."""
    parameters = Parameters(0, np.zeros(2, np.float32), buffers=1, regime=Regime(rule, 123.0, 300), start=0)
    nothing = Step(0, np.zeros(0, np.int64), np.zeros(0, np.float32))
    for version in range(40):
        parameters.theta[1] = 2
        parameters.apply(replace(nothing, statistics=np.array([42], np.float32)))
        assert parameters.theta[1] == np.float32(2 + np.float32(40 / max(10, version)))


def test_a_slice_without_them_needs_nothing_of_them() -> None:
    """Two slices count as the whole: the parameters, and the statistics as the tail of the other."""
    random = np.random.default_rng(4)
    whole = Parameters(0, initial(NORMED), buffers=6, regime=REGIME, start=0)
    head = Parameters(0, THETA[:20].copy(), regime=REGIME, start=0)
    tail = Parameters(0, initial(NORMED)[20:], buffers=6, regime=REGIME, start=0)
    for version in range(30):
        base = max(0, version - int(random.integers(0, 5)))
        where = np.flatnonzero(random.random(LAYOUT.size) < 0.4)
        delta, seen = (random.standard_normal(n).astype(np.float32) for n in (where.size, 6))
        whole.apply(Step(base, where, delta, seen))
        head.apply(Step(base, where[where < 20], delta[where < 20]))
        tail.apply(Step(base, where[where >= 20] - 20, delta[where >= 20], seen))
        assert whole.theta.tobytes() == head.theta.tobytes() + tail.theta.tobytes()


def test_the_average_takes_them_in() -> None:
    """After 16 versions all of theta, after 32 a w of (eta + 1) / (2 + eta)."""
    averaged = Regime("none", 0.1, 8, average=8.0)
    parameters = Parameters(0, initial(NORMED), buffers=6, regime=averaged, start=0)
    random, thetas = np.random.default_rng(9), []
    for version in range(32):
        delta, seen = (random.standard_normal(n).astype(np.float32) for n in (LAYOUT.size, 6))
        parameters.apply(Step(version, slice(None), delta, seen))
        thetas.append(parameters.theta.astype(np.float64))
    assert parameters.average is not None
    np.testing.assert_allclose(parameters.average, 0.1 * thetas[15] + 0.9 * thetas[31], rtol=1e-5)


# What devices get


def test_devices_get_them_in_differences_and_whole(tmp_path: Path) -> None:
    """A replica of any age is equal, bit for bit; a difference names them all."""
    run = Watched(tmp_path, layout=NORMED)
    replicas = [Replica(NORMED) for _ in range(3)]
    behind = 0
    for number in range(40):
        base = run.engine.published.version
        entries = {number % 25: 1.0}
        update = with_statistics(sparse_update(number + 1, base, entries), [number + k for k in range(6)])
        assert kinds(commit(run.engine, [push(run.devices[0], update)])) == [Receipt]
        for replica in replicas[: 1 + (number % 3 == 0) + (number % 7 == 0)]:
            model = run.engine.outlet.model(replica.version)
            received = wire.decode(wire.encode(model))
            assert isinstance(received, Model)
            replica.take(received)
            assert replica.theta.tobytes() == run.engine.theta()[1].tobytes()
            if model.base == base:
                assert model.count == 1 + 6
                behind += 1
    assert behind > 30
    unchanged = run.engine.outlet.model(run.engine.published.version)
    assert (unchanged.base, unchanged.count) == (40, 0)


def test_the_digest_and_the_journal_tell_them_apart(tmp_path: Path) -> None:
    run = Watched(tmp_path, layout=NORMED)
    known = run.journal.run()
    assert known is not None
    assert known.layout == NORMED
    assert NORMED.digest != LAYOUT.digest


# What is refused

NUMBERS = [0.5, -2.0, 65504.0, 0.0, 1.0, 6e-8]
PLAIN = sparse_update(9, 8, {1: 1.0, 5: 2.0})
GOOD = with_statistics(PLAIN, NUMBERS)
CODED = replace(sparse_update(9, 8, {1: 0.5, 5: -0.5}, coding="sign"))
SIGNED = replace(
    PLAIN,
    index_mode=sparse.GRID,
    value_mode=values.CODINGS["scale"].mode,
    indices=grid.encode(np.array([1, 5]), np.array([False, True]), LAYOUT) or b"",
    values=b"\xc0",
)
DENSE = dense_update(9, 8, np.ones(LAYOUT.size, np.float32))

TAKEN: dict[str, Update] = {
    "some entries": GOOD,
    "no entries": with_statistics(sparse_update(9, 8, {}), NUMBERS),
    "as the compiled decoder takes them": with_statistics(CODED, NUMBERS),
    "with a grid": with_statistics(SIGNED, NUMBERS),
    "all entries": with_statistics(DENSE, NUMBERS),
}

BAD: dict[str, tuple[Update, type[Refused]]] = {
    "no statistics": (PLAIN, errors.WrongDtype),
    "none of a compiled decoder's": (CODED, errors.WrongDtype),
    "none with no entries": (sparse_update(9, 8, {}), errors.WrongDtype),
    "statistics of another model": (with_statistics(PLAIN, NUMBERS[:-1]), errors.WrongDtype),
    "one too many": (with_statistics(PLAIN, [*NUMBERS, 1.0]), errors.WrongDtype),
    "half of one": (replace(GOOD, values=GOOD.values[:-1]), errors.WrongDtype),
    "half of one and no entries": (replace(TAKEN["no entries"], values=bytes(11)), errors.WrongDtype),
    "a dense update without": (DENSE, errors.WrongDtype),
    "NaN": (with_statistics(PLAIN, [*NUMBERS[:-1], math.nan]), errors.NonFinite),
    "infinity": (with_statistics(CODED, [math.inf, *NUMBERS[1:]]), errors.NonFinite),
    "an entry of a statistic": (
        replace(GOOD, indices=sparse.encode(np.array([1, 25]), NORMED.size)),
        errors.IndexOutOfRange,
    ),
    "all of theta": (
        with_statistics(dense_update(9, 8, np.ones(NORMED.size, np.float32)), NUMBERS),
        errors.IndexOutOfRange,
    ),
    "raw index of a statistic": (
        replace(GOOD, index_mode=sparse.RAW, indices=struct.pack("<2I", 24, 25)),
        errors.IndexOutOfRange,
    ),
    "NaN of an entry": (with_statistics(sparse_update(9, 8, {1: math.nan}), NUMBERS), errors.NonFinite),
    "an old base": (replace(GOOD, base=2), errors.BaseExpired),
}


@pytest.fixture
def run(tmp_path: Path) -> Watched:
    """A run at version 8 with a window of 6: bases 3 to 8."""
    watched = Watched(tmp_path, layout=NORMED)
    watched.commit(8)
    watched.check()
    return watched


@pytest.mark.parametrize("update", TAKEN.values(), ids=TAKEN.keys())
def test_they_come_at_the_end_of_the_values(run: Watched, update: Update) -> None:
    before = run.engine.theta()[1]
    newcomer = run.engine.device_id("newcomer")
    assert commit(run.engine, [push(newcomer, update)]) == [Receipt(9, 9, None)]
    after = run.engine.theta()[1]
    seen = np.array(NUMBERS, np.float16).astype(np.float32)
    assert after[25:].tolist() == (before[25:] + (seen - before[25:]) / np.float32(10)).tolist()
    assert np.count_nonzero(after[:25] != before[:25]) == update.count


@pytest.mark.parametrize(("bad", "refusal"), BAD.values(), ids=BAD.keys())
def test_what_is_refused_leaves_no_trace(run: Watched, bad: Update, refusal: type[Refused]) -> None:
    rows = journal_rows(run.directory)
    newcomer = run.engine.device_id("newcomer")
    assert kinds(commit(run.engine, [push(newcomer, bad)])) == [refusal]
    run.check()
    assert journal_rows(run.directory) == rows
    run.journal.close()
    run.slow.assert_equals(recovered(run.directory, REGIME, NORMED))


def test_a_client_that_knows_nothing_of_them_is_told(run: Watched) -> None:
    (answer,) = commit(run.engine, [push(run.devices[0], replace(PLAIN, sequence=99))])
    assert str(answer) == ("2 values as f32 take 8 bytes, not 0; the last 12 bytes are 6 running statistics")


def test_limits_count_them() -> None:
    """1,000 parameters dense and 3,000 statistics: an update of 4,000 + 6,000 bytes and some."""
    layout = Layout.from_shapes([("w", (1000,)), ("b", (3000,), True)])
    dense = ["compression.select=1", "compression.values=f32"]
    check_limits(config.parse(overrides=[*dense, "limits.frame_bytes=11100"]), layout)
    with pytest.raises(ConfigError, match="1000 parameters .* may take 11024; raise it"):
        check_limits(config.parse(overrides=[*dense, "limits.frame_bytes=11000"]), layout)


def test_nothing_is_selected_of_them() -> None:
    gradient = np.random.default_rng(0).standard_normal(LAYOUT.size).astype(np.float32)
    chosen = select_largest(gradient, NORMED.parameters, 0.2)
    assert chosen.tolist() == select_largest(gradient, LAYOUT, 0.2).tolist()


# From the journal


@every_rule
@pytest.mark.parametrize("every", [1, 3, 1000])
@pytest.mark.parametrize("keep", [True, False], ids=["kept", "dropped"])
def test_killed_after_any_group(tmp_path: Path, rule: str, every: int, keep: bool) -> None:
    bounds = EngineLimits(snapshot_every=every, keep_updates=keep)
    run = Watched(tmp_path, Regime(rule, 0.1, 5), bounds, layout=NORMED)
    for group, size in zip(range(8), cycle([1, 1, 2, 3]), strict=False):
        killed = copy_as_killed(tmp_path, tmp_path / str(group))
        run.slow.assert_equals(recovered(killed, run.slow.regime, NORMED))
        run.commit(size)
        run.check()
    run.engine.close()
    run.slow.assert_equals(recovered(tmp_path, run.slow.regime, NORMED))


@every_rule
@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])
def test_a_restarted_run_goes_on_and_replays_from_the_beginning(
    tmp_path: Path, rule: str, killed: bool
) -> None:
    """With a window wide enough for updates of more than ten versions' age, and another rule in between."""
    run = Watched(tmp_path, Regime(rule, 0.1, 40), EngineLimits(snapshot_every=7), layout=NORMED)
    for regime in (None, None, Regime("none", 0.3, 30), Regime(rule, 0.1, 40), None):
        for size in (10, 1, 9):
            run.commit(size)
        run.reopen(regime, killed=killed)
        run.check()
    run.slow.assert_equals(replay(run.journal, NORMED))


@pytest.mark.parametrize("every", [1, 5, 1000])
def test_a_killed_run_keeps_its_average(tmp_path: Path, every: int) -> None:
    regime = Regime("adacomp", 0.1, 20, average=8.0)
    run = Watched(tmp_path, regime, EngineLimits(snapshot_every=every), layout=NORMED)
    for number in range(4):
        run.commit(9)
        killed = recovered(copy_as_killed(tmp_path, tmp_path / str(number)), regime, NORMED)
        assert killed.average is not None
        assert run.engine.parameters.average is not None
        assert killed.average.tobytes() == run.engine.parameters.average.tobytes()
        assert killed.average.size == NORMED.size


def test_recovery_knows_where_they_begin(tmp_path: Path) -> None:
    run = Watched(tmp_path, layout=NORMED)
    run.commit(5)
    parameters = recover(run.journal, NORMED, REGIME)
    parameters.apply(Step(5, slice(None), np.ones(25, np.float32), np.ones(6, np.float32)))
    assert parameters.version == 6

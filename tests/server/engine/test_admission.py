"""What an update must satisfy: whatever is refused, for whatever reason, leaves no trace."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edgeflock.server.engine.limits import EngineLimits
from edgeflock.shared import errors
from edgeflock.shared.codecs import grid, sparse, values
from edgeflock.shared.errors import Refused
from edgeflock.shared.protocol.messages import Receipt, Update
from edgeflock.shared.settings.config import parse
from tests.server.pushes import (
    LAYOUT,
    REGIME,
    Watched,
    commit,
    dense_update,
    journal_rows,
    kinds,
    open_engine,
    push,
    recovered,
    sparse_update,
)

GOOD = sparse_update(9, 8, {1: 1.0, 5: 2.0})

SIGNED = replace(
    GOOD,
    index_mode=sparse.GRID,
    value_mode=values.CODINGS["scale"].mode,
    indices=grid.encode(np.array([1, 5]), np.array([False, True]), LAYOUT) or b"",
    values=b"\xc0",
)
"""The same entries with values of 1 and -1."""

BAD: dict[str, tuple[Update, type[Refused]]] = {
    "base in the future": (replace(GOOD, base=9), errors.BaseInFuture),
    "base beyond the window": (replace(GOOD, base=2), errors.BaseExpired),
    "too many entries": (replace(GOOD, count=1 << 40), errors.ExpansionTooLarge),
    "more entries than parameters": (replace(GOOD, count=LAYOUT.size + 1), errors.IndexOutOfRange),
    "index out of range": (
        replace(GOOD, indices=sparse.encode(np.array([1, LAYOUT.size]), 99)),
        errors.IndexOutOfRange,
    ),
    "repeated index": (replace(GOOD, index_mode=1, indices=b"\1\0\0\0\1\0\0\0"), errors.IndexRepeated),
    "unsorted index": (replace(GOOD, index_mode=1, indices=b"\2\0\0\0\1\0\0\0"), errors.IndexUnsorted),
    "cut index stream": (replace(GOOD, indices=GOOD.indices[:-1]), errors.IndexMalformed),
    "fewer entries than indices": (replace(GOOD, count=1), errors.IndexMalformed),
    "unknown index mode": (replace(GOOD, index_mode=7), errors.WrongDtype),
    "dense, but not all": (replace(GOOD, index_mode=0, indices=b""), errors.IndexMalformed),
    "dense, with indices": (replace(GOOD, index_mode=0, count=LAYOUT.size), errors.IndexMalformed),
    "unknown value mode": (replace(GOOD, value_mode=99), errors.WrongDtype),
    "values cut short": (replace(GOOD, values=GOOD.values[:-1]), errors.WrongDtype),
    "values of another mode": (replace(GOOD, value_mode=values.CODINGS["f16"].mode), errors.WrongDtype),
    "NaN": (sparse_update(9, 8, {1: 1.0, 5: math.nan}), errors.NonFinite),
    "infinity": (sparse_update(9, 8, {1: -math.inf, 5: 1.0}), errors.NonFinite),
    "infinite scale": (
        replace(GOOD, value_mode=values.CODINGS["sign"].mode, values=b"\x80\x7f\x00"),
        errors.NonFinite,
    ),
    "NaN in a dense update": (
        dense_update(9, 8, np.full(LAYOUT.size, np.nan, np.float32)),
        errors.NonFinite,
    ),
    "a grid with values of their own": (replace(GOOD, index_mode=sparse.GRID), errors.WrongDtype),
    "scales without signs": (replace(SIGNED, index_mode=sparse.GOLOMB), errors.WrongDtype),
    "a grid and a byte": (replace(SIGNED, indices=SIGNED.indices + b"\0"), errors.IndexMalformed),
    "a grid of fewer entries": (replace(SIGNED, count=1), errors.IndexMalformed),
    "a scale too many": (replace(SIGNED, values=b"\xc0\xc0"), errors.WrongDtype),
    "no samples": (replace(GOOD, samples=0), errors.BadSamples),
    "absurdly many samples": (replace(GOOD, samples=(1 << 16) + 1), errors.BadSamples),
    "sequence of zero": (replace(GOOD, sequence=0), errors.BadSequence),
}


@pytest.fixture
def run(tmp_path: Path) -> Watched:
    """A run at version 8 with a window of 6: bases 3 to 8."""
    watched = Watched(tmp_path)
    watched.commit(8)
    watched.check()
    return watched


@pytest.mark.parametrize(("bad", "refusal"), BAD.values(), ids=BAD.keys())
def test_what_is_refused_leaves_no_trace(run: Watched, bad: Update, refusal: type[Refused]) -> None:
    rows = journal_rows(run.directory)
    newcomer = run.engine.device_id("newcomer")
    answers = commit(run.engine, [push(newcomer, bad)])
    assert kinds(answers) == [refusal]
    run.check()
    assert run.engine.receipts.last_sequence(newcomer) == 0
    assert journal_rows(run.directory) == rows
    run.journal.close()
    run.slow.assert_equals(recovered(run.directory, REGIME))


def test_the_update_that_the_bad_ones_were_made_of_is_good(run: Watched) -> None:
    newcomer = run.engine.device_id("newcomer")
    bad = [push(newcomer, update) for update, _ in BAD.values()]
    assert commit(run.engine, [*bad, push(newcomer, GOOD)])[-1] == Receipt(9, 9, None)
    run.slow.apply(8, [1, 5], [np.float32(1), np.float32(2)])
    run.check()


def test_a_grid_and_scales_are_values_with_signs(run: Watched) -> None:
    newcomer = run.engine.device_id("newcomer")
    assert commit(run.engine, [push(newcomer, SIGNED)]) == [Receipt(9, 9, None)]
    run.slow.apply(8, [1, 5], [np.float32(1), np.float32(-1)])
    run.check()
    run.journal.close()
    run.slow.assert_equals(recovered(run.directory, REGIME))


def test_samples_are_bounded_when_they_come_not_when_they_are_replayed(tmp_path: Path) -> None:
    """A run may go on with a lower bound than some of its updates came under."""
    journal, engine = open_engine(tmp_path, bounds=EngineLimits(samples=1000))
    device = engine.device_id("one")
    answers = commit(
        engine, [push(device, replace(GOOD, sequence=n, base=0, samples=n)) for n in (1, 1000, 1001)]
    )
    assert kinds(answers) == [Receipt, Receipt, errors.BadSamples]
    theta = engine.theta()[1].tobytes()
    journal.close()
    _, again = open_engine(tmp_path, bounds=EngineLimits(samples=10))
    assert again.theta()[1].tobytes() == theta
    answers = commit(again, [push(device, replace(GOOD, sequence=2000, base=0, samples=11))])
    assert kinds(answers) == [errors.BadSamples]


def test_chunks_that_go_with_another_one_are_of_no_samples(tmp_path: Path) -> None:
    assert EngineLimits.from_config(parse(overrides=["coordination.mode=elastic"])).min_samples == 0
    assert EngineLimits.from_config(parse()).min_samples == 1
    _, engine = open_engine(tmp_path, bounds=EngineLimits(min_samples=0))
    device = engine.device_id("one")
    answers = commit(engine, [push(device, replace(GOOD, sequence=1, base=0, samples=0))])
    assert kinds(answers) == [Receipt]


def test_expansion_is_bounded_by_entries(tmp_path: Path) -> None:
    """An entry takes 12 bytes once decoded: two pass a bound of 24, three do not."""
    _, engine = open_engine(tmp_path, bounds=EngineLimits(expansion_bytes=24))
    device = engine.device_id("one")
    answers = commit(
        engine, [push(device, sparse_update(n, 0, dict.fromkeys(range(n), 1.0))) for n in (1, 2, 3)]
    )
    assert kinds(answers) == [Receipt, Receipt, errors.ExpansionTooLarge]

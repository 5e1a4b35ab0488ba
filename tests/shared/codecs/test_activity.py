"""Rows and columns that were active are expected to be, and what that is worth."""

import numpy as np

from edgeflock.shared.codecs import activity, grid
from edgeflock.shared.model.layout import Layout

LAYOUT = Layout.from_shapes([("w", (9, 4)), ("empty", (0, 3)), ("b", (4,)), ("one", ())])


def test_each_entry_counts_for_its_row_and_its_column_and_fades() -> None:
    step = np.array([3, 11, 12, 27, 37, 40])
    first = activity.follow(activity.initial(LAYOUT), step, LAYOUT)
    rows, columns = [16, 0, 16, 16, 0, 0, 16, 0, 0], [16, 0, 0, 48]
    assert first.tolist() == [*rows, *columns, 0, 0, 0, 16, 0, 16, 0, 0, 16, 16]
    second = activity.follow(first, np.array([3]), LAYOUT)
    rows, columns = [30, 0, 14, 14, 0, 0, 14, 0, 0], [14, 0, 0, 58]
    assert second.tolist() == [*rows, *columns, 0, 0, 0, 14, 0, 14, 0, 0, 14, 14]


def test_a_step_of_nothing_or_of_all_tells_nothing() -> None:
    known = activity.follow(activity.initial(LAYOUT), np.array([3]), LAYOUT)
    assert activity.follow(known, np.zeros(0, np.int64), LAYOUT) is known
    assert activity.follow(known, slice(None), LAYOUT) is known


def test_it_stays_within_16_bits() -> None:
    layout = Layout.from_shapes([("w", (2, 3000))])
    known = activity.initial(layout)
    for _ in range(200):
        before, known = known, activity.follow(known, np.arange(6000), layout)
        assert (known >= before).all()
    assert known[0] > 32000


def test_entries_where_others_were_take_fewer_bytes() -> None:
    """Rows and columns that stay active among many: at n = 200 it is a thirteenth of the stream, with few
    devices a seventh, and here, where they hardly change, more.
    """
    random = np.random.default_rng(1)
    layout = Layout.from_shapes([("w", (128, 600)), ("b", (128,))])
    rows, columns = random.choice(128, 20, replace=False), random.choice(600, 60, replace=False)
    known, with_it, without = activity.initial(layout), 0, 0
    for _ in range(10):
        crossing = rows[random.integers(0, 20, 150)] * 600 + columns[random.integers(0, 60, 150)]
        where = np.unique(np.append(crossing, random.integers(0, layout.size, 5)))
        signs = random.random(where.size) < 0.5
        streams = [grid.encode(where, signs, layout, of) for of in (known, None)]
        assert streams[0] is not None
        assert streams[1] is not None
        with_it, without = with_it + len(streams[0]), without + len(streams[1])
        known = activity.follow(known, where, layout)
    assert with_it < 0.85 * without

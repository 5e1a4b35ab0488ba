"""Features of the recent past, against the definition, one sample at a time."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from edgeflock.shared.data.datasets import Dataset
from edgeflock.shared.data.recent import CLIP, LaggedFeatures
from edgeflock.shared.errors import ConfigError


def some(count: int, features: int = 3, classes: int = 2, seed: int = 0) -> Dataset:
    random = np.random.default_rng(seed)
    x = random.standard_normal((count, features)).astype(np.float32)
    x[:, 0] = 0.1  # never varies
    return Dataset(x, random.integers(0, classes, count))


def defined(data: Dataset, window: int, lags: int) -> NDArray[np.float64]:
    rows = []
    for t in range(len(data)):
        row = list(data.x[t])
        if window:
            past = np.array([data.x[max(0, u)] for u in range(t - window, t)], np.float64)
            for k, value in enumerate(data.x[t]):
                deviation = past[:, k].std()
                row.append(
                    np.clip((value - past[:, k].mean()) / deviation, -CLIP, CLIP) if deviation > 1e-9 else 0
                )
        row += [data.y[t - lag] if t >= lag else 0 for lag in range(1, lags + 1)]
        rows.append(row)
    return np.array(rows, np.float64)


@given(
    window=st.integers(0, 7),
    lags=st.integers(0, 5),
    cuts=st.lists(st.integers(0, 600), max_size=4),
    count=st.sampled_from([1, 2, 9, 600]),
)
def test_it_is_the_definition_however_the_stream_is_cut(
    window: int, lags: int, cuts: list[int], count: int
) -> None:
    data = some(count)
    recent = LaggedFeatures(window, lags)
    ends = [0, *sorted(min(cut, count) for cut in cuts), count]
    chunks = [
        recent.extend(Dataset(data.x[a:b], data.y[a:b])) for a, b in zip(ends[:-1], ends[1:], strict=True)
    ]
    x = np.concatenate([chunk.x for chunk in chunks])
    assert x.dtype == np.float32
    assert x.shape == (count, recent.width(3))
    np.testing.assert_allclose(x, defined(data, window, lags), rtol=1e-5, atol=1e-6)
    assert np.concatenate([chunk.y for chunk in chunks]).tolist() == data.y.tolist()


def test_many_classes_are_a_one_among_zeros() -> None:
    data = Dataset(np.zeros((4, 1), np.float32), np.array([2, 0, 1, 1]))
    x = LaggedFeatures(lags=2, classes=3).extend(data).x[:, 1:]
    none = [0, 0, 0]
    assert x.tolist() == [
        [*none, *none],
        [0, 0, 1, *none],
        [1, 0, 0, 0, 0, 1],
        [0, 1, 0, 1, 0, 0],
    ]


@pytest.mark.parametrize(("x", "y"), [((4, 2, 2), (4,)), ((4,), (4,)), ((4, 3), (4, 2))])
def test_other_shapes_have_no_such_features(x: tuple[int, ...], y: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match="window= and lags="):
        LaggedFeatures(window=3).extend(Dataset(np.zeros(x, np.float32), np.zeros(y, np.int64)))

"""The device's copy: what it takes, and that what it refuses changes nothing."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from edgeflock.client.training.replica import Replica
from edgeflock.shared.codecs import grid, sparse, values
from edgeflock.shared.errors import (
    BaseExpired,
    IndexMalformed,
    IndexOutOfRange,
    Malformed,
    NonFinite,
    Refused,
    WrongDtype,
)
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.model.start import CONSTANT, NORMAL, Filling, Start, generate
from edgeflock.shared.protocol.messages import Model

LAYOUT = Layout.from_shapes([("kernel", (2, 3)), ("bias", (2,))])
WHOLE: NDArray[np.float32] = np.arange(8, dtype=np.float32)
F32, F16 = values.CODINGS["f32"].mode, values.CODINGS["f16"].mode

FIRST = Model(5, None, sparse.DENSE, F32, 8, b"", WHOLE.tobytes())
NEXT = Model(
    6, 5, sparse.RAW, F32, 2, b"\x00\x00\x00\x00\x06\x00\x00\x00", np.array([-1, 0.5], "<f4").tobytes()
)


def holding_version_5() -> Replica:
    replica = Replica(LAYOUT)
    replica.take(FIRST)
    return replica


def test_it_begins_with_nothing() -> None:
    assert Replica(LAYOUT).version is None


def test_it_begins_with_what_it_makes_by_itself() -> None:
    start = Start(7, (Filling(NORMAL, 0.0, 0.5), Filling(CONSTANT, 0.25, 0.0)))
    replica, made = Replica(LAYOUT, start), generate(start, LAYOUT)
    assert replica.version == 0
    assert replica.theta.tobytes() == made.tobytes()
    replica.take(replace(NEXT, version=3, base=0))
    assert replica.version == 3
    assert replica.theta.tolist() == [-1, *made[1:6].tolist(), 0.5, 0.25]


def test_a_start_of_another_layout_is_none() -> None:
    with pytest.raises(Malformed, match="1 tensors and the layout 2"):
        Replica(LAYOUT, Start(7, (Filling(CONSTANT, 0.25, 0.0),)))


def test_whole_models_and_differences() -> None:
    replica = holding_version_5()
    assert replica.version == 5
    assert replica.theta.tolist() == [0, 1, 2, 3, 4, 5, 6, 7]
    replica.take(NEXT)
    assert replica.version == 6
    assert replica.theta.tolist() == [-1, 1, 2, 3, 4, 5, 0.5, 7]
    replica.take(FIRST)
    assert replica.version == 5
    assert replica.theta.tolist() == [0, 1, 2, 3, 4, 5, 6, 7]


def test_a_difference_without_changes() -> None:
    replica = holding_version_5()
    empty = np.zeros(0, np.int64)
    replica.take(Model(9, 5, sparse.GOLOMB, F32, 0, sparse.encode(empty, 8), b""))
    assert replica.version == 9
    assert replica.theta.tolist() == WHOLE.tolist()


def test_any_value_coding_will_do() -> None:
    replica = holding_version_5()
    replica.take(replace(NEXT, value_mode=F16, values=np.array([-2, 0.25], "<f2").tobytes()))
    assert replica.theta.tolist() == [-2, 1, 2, 3, 4, 5, 0.25, 7]


BAD: dict[str, tuple[Model, type[Refused]]] = {
    "another base": (replace(NEXT, base=4), BaseExpired),
    "no base": (replace(NEXT, base=None), BaseExpired),
    "values cut short": (replace(NEXT, values=NEXT.values[:-1]), WrongDtype),
    "indices cut short": (replace(NEXT, indices=NEXT.indices[:-1]), WrongDtype),
    "index out of range": (replace(NEXT, indices=b"\x00\x00\x00\x00\x08\x00\x00\x00"), IndexOutOfRange),
    "bad Golomb stream": (replace(NEXT, index_mode=sparse.GOLOMB), IndexMalformed),
    "unknown index mode": (replace(NEXT, index_mode=9), WrongDtype),
    "unknown value mode": (replace(NEXT, value_mode=9), WrongDtype),
    "part of a whole model": (replace(FIRST, count=7, values=FIRST.values[:-4]), IndexMalformed),
    "whole model cut short": (replace(FIRST, values=FIRST.values[:-1]), WrongDtype),
    "more than there is": (replace(NEXT, count=1 << 60), IndexOutOfRange),
}


@pytest.mark.parametrize(("model", "refusal"), BAD.values(), ids=BAD.keys())
def test_what_it_refuses_changes_nothing(model: Model, refusal: type[Refused]) -> None:
    replica = holding_version_5()
    with pytest.raises(refusal):
        replica.take(model)
    assert replica.version == 5
    assert replica.theta.tolist() == WHOLE.tolist()


def test_a_difference_before_any_model_is_refused() -> None:
    replica = Replica(LAYOUT)
    with pytest.raises(BaseExpired):
        replica.take(NEXT)
    assert replica.version is None


def test_the_message_stays_as_it_is() -> None:
    """A replica that changes does not write into the record it came from."""
    replica = holding_version_5()
    replica.take(NEXT)
    assert FIRST.values == WHOLE.tobytes()


# Differences to be added

NORMED = Layout.from_shapes([("kernel", (2, 3)), ("bias", (2,)), ("mean", (3,), True)])
WHERE = sparse.encode(np.array([0, 6]), 8)
CODEBOOK4, INT8, SCALE = (values.CODINGS[name].mode for name in ("codebook4", "int8", "scale"))
GRIDDED = grid.encode(np.array([0, 6]), np.array([True, False]), LAYOUT) or b""
CHANGES = Model(6, 5, sparse.GOLOMB, F32, 2, WHERE, np.array([-1, 0.5], "<f4").tobytes(), True)
STATISTICS = np.array([2, 4, 8], "<f2").tobytes()


def normed_at_version_5() -> Replica:
    replica = Replica(NORMED)
    replica.take(Model(5, None, sparse.DENSE, F32, 11, b"", np.arange(11, dtype="<f4").tobytes()))
    return replica


@pytest.mark.parametrize(("behind", "statistics"), [(b"", [8, 9, 10]), (STATISTICS, [2, 4, 8])])
def test_changes_are_added_and_statistics_taken(behind: bytes, statistics: list[float]) -> None:
    replica = normed_at_version_5()
    replica.take(replace(CHANGES, values=CHANGES.values + behind))
    assert replica.theta.tolist() == [-1, 1, 2, 3, 4, 5, 6.5, 7, *statistics]
    everywhere = Model(7, 6, sparse.DENSE, F32, 8, b"", np.ones(8, "<f4").tobytes() + behind, True)
    replica.take(everywhere)
    assert replica.theta.tolist() == [0, 2, 3, 4, 5, 6, 7.5, 8, *statistics]


def lying(**fields: object) -> Model:
    return replace(CHANGES, **fields)  # type: ignore[arg-type]


LIES: dict[str, tuple[Model, type[Refused]]] = {
    "no base": (lying(base=None), BaseExpired),
    "a whole model": (lying(base=None, index_mode=0, count=8, indices=b"", values=bytes(32)), IndexMalformed),
    "another base": (lying(base=6), BaseExpired),
    "no statistics, but a byte": (lying(count=0, indices=b"\x01", values=b"\0"), WrongDtype),
    "one of three statistics": (lying(count=0, indices=b"\x01", values=STATISTICS[:2]), WrongDtype),
    "two of three statistics": (lying(values=CHANGES.values + STATISTICS[:4]), WrongDtype),
    "four of three statistics": (lying(values=CHANGES.values + STATISTICS + b"\0\0"), WrongDtype),
    "statistics that are none": (lying(values=CHANGES.values + b"\xff\x7f" * 3), NonFinite),
    "an infinite statistic": (lying(values=CHANGES.values + b"\0\x7c" * 3), NonFinite),
    "NaN": (lying(values=np.array([np.nan, 0], "<f4").tobytes()), NonFinite),
    "an infinite scale": (lying(value_mode=INT8, values=b"\x80\x7f\x80\x3f\x01\x01"), NonFinite),
    "levels that are none": (lying(value_mode=CODEBOOK4, values=b"\xff\xff" * 10 + b"\0"), NonFinite),
    "a product beyond float32": (
        lying(value_mode=CODEBOOK4, values=b"\x00\x7f" * 10 + b"\0"),
        NonFinite,
    ),
    "of a statistic": (lying(index_mode=sparse.RAW, indices=b"\0\0\0\0\x08\0\0\0"), IndexOutOfRange),
    "more than there are": (lying(count=9, indices=b"\x01\xff\x80"), IndexOutOfRange),
    "far more than there are": (lying(count=1 << 22, indices=b"\x01" + b"\xff" * (1 << 19)), IndexOutOfRange),
    "a grid without signs": (lying(value_mode=SCALE), WrongDtype),
    "a grid that none wrote": (
        lying(index_mode=sparse.GRID, value_mode=SCALE, indices=GRIDDED + b"\x01", values=b"\xb8\xb8"),
        IndexMalformed,
    ),
}


@pytest.mark.parametrize(("model", "refusal"), LIES.values(), ids=LIES.keys())
def test_changes_that_lie_are_refused_and_nothing_has_changed(model: Model, refusal: type[Refused]) -> None:
    replica = normed_at_version_5()
    held = replica.held
    tracemalloc.start()
    with pytest.raises(refusal) as refused:
        replica.take(model)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert "\n" not in str(refused.value)
    assert str(refused.value)
    assert (replica.version, replica.held) == (5, held)
    assert replica.theta.tolist() == list(range(11))
    assert peak < 1 << 16
    replica.take(CHANGES)
    assert replica.version == 6

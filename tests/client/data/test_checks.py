"""What is fit for training, and where the rest goes."""

import json
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from edgeflock.client.data import records as quarantine
from edgeflock.client.data.checks import OUTLIER_FACTOR, Checks, Classes, SampleSchema
from edgeflock.client.data.records import (
    FILE_BYTES,
    LINES,
    QuarantineFile,
    Skipped,
    StreamChunk,
    message_entry,
)
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.model.gradient import Gradient
from edgeflock.shared.model.layout import Layout


def chunk(x: object, y: object) -> StreamChunk:
    targets = np.array(y)
    samples = np.array(x, np.float32)
    if targets.dtype.kind == "f":
        return StreamChunk(samples, targets.astype(np.float32))
    return StreamChunk(samples, targets.astype(np.int64))


def test_what_is_not_finite_is_left_out() -> None:
    tally = Skipped()
    good = Checks().admit(chunk([[1, 2], [np.nan, 2], [3, np.inf], [4, 5]], [1, 2, 3, 4]), tally)
    assert (good.x.tolist(), good.y.tolist()) == ([[1, 2], [4, 5]], [1, 4])
    assert tally.counts == {"not finite": 2}


def test_the_first_good_sample_settles_the_shape() -> None:
    checks, tally = Checks(), Skipped()
    assert len(checks.admit(chunk([[np.nan]], [0]), tally)) == 0
    assert len(checks.admit(chunk([[1, 2]], [0]), tally)) == 1
    assert len(checks.admit(chunk([[1, 2, 3]] * 3, [0] * 3), tally)) == 0
    assert len(checks.admit(chunk([[1, 2]], [[0, 1]]), tally)) == 0
    assert tally.counts == {"not finite": 1, "of another shape": 4}


def test_a_shape_may_be_demanded() -> None:
    checks, tally = Checks(shape=(3,)), Skipped()
    assert len(checks.admit(chunk([[1, 2]], [0]), tally)) == 0
    assert len(checks.admit(chunk([[1, 2, 3]], [0]), tally)) == 1


def test_a_shape_may_be_agreed_with_the_server() -> None:
    """Then what came first, and was of another one, settles nothing."""
    schema = SampleSchema()
    checks, tally = Checks(schema=schema), Skipped()
    assert len(checks.admit(chunk([[1, 2]], [0]), tally)) == 1
    schema.shape = (3,)
    assert len(checks.admit(chunk([[1, 2]], [0]), tally)) == 0
    assert len(checks.admit(chunk([[1, 2, 3]] * 2, [0] * 2), tally)) == 2
    assert tally.counts == {"of another shape": 1}
    said = Checks((2,), schema=schema)
    assert len(said.admit(chunk([[1, 2, 3]], [0]), tally)) == 0


def test_classes_are_whole_and_below_their_number() -> None:
    tally = Skipped()
    good = Checks(classes=3).admit(chunk([[0]] * 5, [0.0, 2.0, 3.0, -1.0, 0.5]), tally)
    assert good.y.dtype == np.int64
    assert good.y.tolist() == [0, 2]
    assert tally.counts == {"of another target": 3}


def test_numbers_may_be_whole() -> None:
    checks, tally = Checks(targets="numbers"), Skipped()
    assert checks.admit(chunk([[0]], [3]), tally).y.dtype == np.float32
    assert checks.admit(chunk([[0]], [3.5]), tally).y.tolist() == [3.5]
    assert tally.total == 0


def test_keys_stay_with_their_samples() -> None:
    named = StreamChunk(np.array([[1], [np.nan], [3]], np.float32), np.array([0, 1, 2]), ("a", None, "c"))
    assert Checks().admit(named, Skipped()).keys == ("a", "c")
    assert Checks().admit(chunk([[1], [2]], [0, 1]), Skipped()).keys == ()


def test_classes_are_0_or_above_and_may_be_none() -> None:
    tally = Skipped()
    good = Checks().admit(chunk([[0]] * 4, [3, -1, -100, 1 << 40]), tally)
    assert good.y.tolist() == [3, -100]
    assert tally.counts == {"of another target": 2}


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e5])
def test_a_finite_outlier_costs_one_sample(scale: float) -> None:
    random = np.random.default_rng(0)
    checks, tally = Checks(), Skipped()
    x = (random.normal(size=(400, 3)) * scale).astype(np.float32)
    x[7, 1], x[300, 0] = 1e30, -OUTLIER_FACTOR * 20 * max(1.0, scale)
    sizes = [len(checks.admit(chunk(x[at : at + 10], [0] * 10), tally)) for at in range(0, 400, 10)]
    assert sum(sizes) == 398
    assert tally.counts == {"out of range": 2}


def test_targets_have_a_range_of_their_own() -> None:
    checks, tally = Checks(), Skipped()
    y = np.full(20, 5.0)
    y[3] = 1e9
    assert len(checks.admit(chunk([[1e4]] * 20, y), tally)) == 19
    assert tally.counts == {"out of range": 1}


def test_the_range_may_be_said() -> None:
    checks, tally = Checks(limit=10.0), Skipped()
    assert len(checks.admit(chunk([[1], [11], [-11], [9]], [0] * 4), tally)) == 2
    assert tally.counts == {"out of range": 2}


def test_a_sensor_that_speaks_in_other_units_from_now_on_is_believed_in_the_end() -> None:
    checks, tally = Checks(), Skipped()
    sizes = [len(checks.admit(chunk([[unit]] * 10, [0] * 10), tally)) for unit in (1.0,) * 30 + (1e6,) * 30]
    assert sizes[:30] == [10] * 30
    assert sizes[30] == 0
    assert sizes[-1] == 10


class Model:
    """A backend that knows so many classes."""

    layout = Layout.from_shapes([("w", [2])])

    def __init__(self, classes: int) -> None:
        self.classes = classes
        self.tried = 0

    def gradient(
        self, theta: NDArray[np.float32], x: NDArray[np.float32], y: NDArray[np.generic]
    ) -> Gradient:
        self.tried += 1
        if int(y.max()) >= self.classes:
            raise ConfigError("no such class")
        return Gradient(0.0, np.zeros(2, np.float32), np.zeros(0, np.float32))


def test_a_label_that_the_model_does_not_have_is_found_by_trying() -> None:
    model = Model(10)
    classes = Classes(model)
    x = np.zeros((8, 1), np.float32)
    assert not classes.find_refused(x, np.array([0, 1, 2, 3, 4, 5, 6, 9])).any()
    assert model.tried == 1
    bad = classes.find_refused(x, np.array([0, 1, 10, 3, 4, 1000, 6, 9]))
    assert np.flatnonzero(bad).tolist() == [2, 5]
    tried = model.tried
    flood = classes.find_refused(np.zeros((1000, 1), np.float32), np.arange(10, 1010))
    assert flood.all()
    assert model.tried == tried, "what is beyond a class that it does not have is not tried"
    assert not classes.find_refused(x[:2], np.array([[7, 8], [-100, 3]])).any()
    assert classes.find_refused(x[:2], np.array([[7, 8], [12, 3]])).tolist() == [False, True]


def test_a_flood_of_labels_takes_few_trials() -> None:
    model = Model(10)
    labels = np.random.default_rng(0).permutation(5000)
    assert Classes(model).find_refused(np.zeros((5000, 1), np.float32), labels).sum() == 4990
    assert model.tried < 20


def test_a_first_batch_of_unknown_labels_alone_says_nothing_of_the_model() -> None:
    model = Model(3)
    classes = Classes(model)
    x = np.zeros((4, 1), np.float32)
    assert classes.find_refused(x, np.array([9, 4, 7, 5])).all()
    assert classes.find_refused(x, np.array([0, 2, 3, 4])).tolist() == [False, False, True, True]
    with pytest.raises(ConfigError, match="no such class"):
        Classes(Model(0)).find_refused(x, np.array([9, 4, 7, 5]))


def test_a_model_that_takes_nothing_does_not_fit_the_data() -> None:
    with pytest.raises(ConfigError, match="no such class"):
        Classes(Model(0)).find_refused(np.zeros((3, 1), np.float32), np.array([0, 1, 2]))


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_what_is_set_aside_is_kept_with_its_reason(tmp_path: Path) -> None:
    path = tmp_path / "kept" / "quarantine.jsonl"
    tally = Skipped(QuarantineFile(path, lambda: 12.5))
    named = StreamChunk(np.array([[1], [np.nan], [3]], np.float32), np.array([0, 1, 2]), ("a", "b", "c"))
    Checks().admit(named, tally)
    tally.add("unreadable", "neither", records=[message_entry(b"\xff\x00"), message_entry(b"{nonsense")])
    first, second, third = lines(path)
    assert (first["time"], first["kind"]) == (12.5, "not finite")
    assert first["record"] == {"shape": [1], "x": ["nan"], "y": [1], "key": "b"}
    assert second["record"] == {"base64": "/wA="}
    assert third["record"] == "{nonsense"


def test_a_flood_fills_neither_log_nor_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(quarantine, "FILE_BYTES", 4000)
    path = tmp_path / "quarantine.jsonl"
    now = [0.0]
    tally = Skipped(QuarantineFile(path, lambda: now[0]))
    for _ in range(1000):
        now[0] += 0.01
        tally.add("unreadable", "neither", records=["x" * 100])
    assert tally.counts == {"unreadable": 1000}
    assert len(caplog.records) == 1
    kept = [path, path.with_name("quarantine.jsonl.1")]
    assert all(0 < each.stat().st_size <= 4000 for each in kept)
    assert sorted(each.name for each in tmp_path.iterdir()) == sorted(each.name for each in kept)
    newest = [float(str(line["time"])) for line in lines(path)]
    assert newest[-1] >= 9.5, "the newest are there"
    assert len([at for at in newest if 9.0 <= at < 10.0]) <= LINES + 1
    assert FILE_BYTES == 1 << 20


def test_a_disk_that_fails_costs_the_file_and_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "taken").write_text("")
    tally = Skipped(QuarantineFile(tmp_path / "taken" / "quarantine.jsonl"))
    for _ in range(5):
        tally.add("unreadable", "neither", records=["x"])
    assert tally.total == 5
    assert [
        record.message for record in caplog.records if "set aside are counted only" in record.message
    ] != []
    assert len(caplog.records) == 2

"""The file in which a device keeps the layers of its own."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from edgeflock.client.run.personal_file import MAX_RUNS, PersonalFile
from tests.client.training.test_personal import PERSONAL

HEAD = np.array([3, 4], np.float32)


def kept(directory: Path) -> PersonalFile:
    return PersonalFile(directory, "https://leader", "pi")


def test_another_process_finds_the_layers_of_the_same_run(tmp_path: Path) -> None:
    file = kept(tmp_path)
    assert file.begin(PERSONAL) is None
    file.keep(HEAD)
    file.save()
    found = kept(tmp_path).begin(PERSONAL)
    assert found is not None
    assert found.tolist() == [3, 4]


def test_runs_at_one_address_keep_a_file_each(tmp_path: Path) -> None:
    file = kept(tmp_path)
    for number in range(MAX_RUNS + 2):
        assert file.begin(replace(PERSONAL, run=f"run {number}")) is None
        file.keep(np.full(2, number, np.float32))
    file.save()
    assert len(list(tmp_path.iterdir())) == MAX_RUNS
    again = kept(tmp_path)
    found = [again.begin(replace(PERSONAL, run=f"run {number}")) for number in range(2, MAX_RUNS + 2)]
    assert [None if one is None else one.tolist() for one in found] == [
        [number, number] for number in range(2, MAX_RUNS + 2)
    ]
    assert again.begin(replace(PERSONAL, run="run 1")) is None


@pytest.mark.parametrize("damage", ["another run", "other layers", "cut", "NaN"])
def test_others_are_not_used(damage: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = kept(tmp_path)
    file.begin(PERSONAL)
    file.keep(np.full(2, np.nan, np.float32) if damage == "NaN" else HEAD)
    file.save()
    if damage == "cut":
        file.path.write_bytes(file.path.read_bytes()[:-1])
    run = "another" if damage == "another run" else PERSONAL.run
    welcome = replace(PERSONAL, run=run)
    if damage == "other layers":
        assert welcome.personal is not None
        welcome = replace(welcome, personal=welcome.personal._replace(shapes=[["tail", [2]]]))
    assert kept(tmp_path).begin(welcome) is None
    assert ("the personal layers start anew" in caplog.text) == (damage in ("other layers", "cut"))


def test_they_are_put_into_a_model_of_their_run_alone(tmp_path: Path) -> None:
    octets = safetensors.numpy.save({"head": np.zeros(2, np.float32), "body": np.ones(3, np.float32)})
    file = kept(tmp_path)
    assert file.merge(octets, PERSONAL.run) is octets
    file.begin(PERSONAL)
    file.keep(HEAD)
    assert file.merge(octets, "another") is octets
    merged = safetensors.numpy.load(file.merge(octets, PERSONAL.run))
    assert merged["head"].tolist() == [3, 4]
    assert merged["body"].tolist() == [1, 1, 1]

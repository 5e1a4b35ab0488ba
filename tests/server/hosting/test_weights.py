"""Weights that an operator names: taken as they are, or refused with what is wrong."""

from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from edgeflock.server.hosting.run import open_run
from edgeflock.server.hosting.weights import first_model
from edgeflock.server.journal.journal import Journal
from edgeflock.server.ledger.offered import FIRST_MODEL
from edgeflock.server.ledger.recovery import replay
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.model.torch_module import FlatModule
from edgeflock.shared.settings.config import Config, parse

NORMED = "tests.devices.emulation.fleets:Normed"
DIGITS = "edgeflock.client.zoo:DigitsCNN"


def state(seed: int = 9) -> dict[str, Any]:
    """A state_dict, with counts of batches that do not travel."""
    flat = FlatModule(NORMED, "cross_entropy", seed)
    return {name: tensor.clone() for name, tensor in flat.module.state_dict().items()}


def saved(directory: Path, tensors: dict[str, Any]) -> str:
    safetensors.torch.save_file(tensors, directory / "own.safetensors")
    return str(directory / "own.safetensors")


def settings(directory: Path, *more: str, module: str = NORMED) -> Config:
    return parse(overrides=[f"server.directory={directory}", f"model.module={module}", "model.data=", *more])


def test_a_state_dict_is_taken_as_it_is(tmp_path: Path) -> None:
    tensors = state()
    theta, start = first_model(FlatModule(NORMED, "cross_entropy"), saved(tmp_path, tensors), 0)
    assert start is None
    assert theta.tobytes() == FlatModule(NORMED, "cross_entropy", 9).theta().tobytes()


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float64])
def test_numbers_of_other_precision_are_taken_too(kind: torch.dtype, tmp_path: Path) -> None:
    tensors = {name: tensor.to(kind) for name, tensor in state().items()}
    theta, _ = first_model(FlatModule(NORMED, "cross_entropy"), saved(tmp_path, tensors), 0)
    flat = FlatModule(NORMED, "cross_entropy", 9)
    assert theta.tobytes() == torch.from_numpy(flat.theta()).to(kind).float().numpy().tobytes()


WRONG: list[tuple[dict[str, Any], list[str]]] = [
    ({"0.weight": None}, ["has no 0.weight", NORMED, "of the same model"]),
    ({"0.weight": None, "4.bias": None}, ["has no 0.weight", "(1 more)"]),
    ({"head": torch.zeros(3)}, ["has head, which", "has not"]),
    ({"4.bias": torch.zeros(9)}, ["4.bias as float32 [9]", "as float32 [10]"]),
    ({"4.bias": torch.zeros(10, dtype=torch.int32)}, ["4.bias as int32 [10]"]),
    ({"4.bias": torch.full((10,), torch.nan)}, ["NaN or infinity"]),
]


@pytest.mark.parametrize(("change", "said"), WRONG)
def test_what_does_not_fit_is_named(change: dict[str, Any], said: list[str], tmp_path: Path) -> None:
    tensors = {name: tensor for name, tensor in (state() | change).items() if tensor is not None}
    file = saved(tmp_path, tensors)
    with pytest.raises(ConfigError) as raised:
        first_model(FlatModule(NORMED, "cross_entropy"), file, 0)
    for part in [f"model.weights = {file!r}", *said]:
        assert part in str(raised.value)


@pytest.mark.parametrize("content", [None, b"no safetensors at all"])
def test_a_file_that_is_none_is_named(content: bytes | None, tmp_path: Path) -> None:
    file = tmp_path / "own.safetensors"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(
        ConfigError, match=r"model.weights = '.*' cannot be read: .*; name a safetensors file"
    ):
        first_model(FlatModule(NORMED, "cross_entropy"), str(file), 0)


def test_a_run_begins_with_them_and_its_journal_has_them(tmp_path: Path) -> None:
    file, directory = saved(tmp_path, state()), tmp_path / "run"
    theta = FlatModule(NORMED, "cross_entropy", 9).theta().tobytes()
    with open_run(settings(directory, f"model.weights={file}")) as hosted:
        assert hosted.engine.start is None
        assert hosted.engine.theta()[1].tobytes() == theta
        assert (directory / FIRST_MODEL).stat().st_mode & 0o777 == 0o600
        offered, octets = hosted.engine.outlet.first_model, (directory / FIRST_MODEL).read_bytes()
    with open_run(settings(directory)) as again:
        assert again.engine.theta()[1].tobytes() == theta, "the run's, not the settings'"
        first = again.engine.outlet.first_model, (directory / FIRST_MODEL).read_bytes()
        assert first == (offered, octets)
    journal = Journal(directory / "journal.sqlite")
    run = journal.run()
    assert run is not None
    assert replay(journal, run.layout).theta.tobytes() == theta
    journal.close()


def test_a_file_that_was_damaged_is_written_again(tmp_path: Path) -> None:
    file = saved(tmp_path, state())
    with open_run(settings(tmp_path, f"model.weights={file}")):
        octets = (tmp_path / FIRST_MODEL).read_bytes()
    (tmp_path / FIRST_MODEL).write_bytes(octets[:-9] + b"damaged..")
    with open_run(settings(tmp_path, f"model.weights={file}")):
        assert (tmp_path / FIRST_MODEL).read_bytes() == octets


def test_a_run_that_began_with_others_is_left_alone(tmp_path: Path) -> None:
    with open_run(settings(tmp_path / "run")) as hosted:
        theta = hosted.engine.theta()[1].tobytes()
    file = saved(tmp_path, state())
    with pytest.raises(ConfigError, match="began with other weights than model.weights"):
        open_run(settings(tmp_path / "run", f"model.weights={file}")).__enter__()
    with open_run(settings(tmp_path / "run")) as hosted:
        assert hosted.engine.theta()[1].tobytes() == theta


def test_where_devices_make_the_first_model_none_is_kept(tmp_path: Path) -> None:
    with open_run(settings(tmp_path, module=DIGITS)) as hosted:
        outlet = hosted.engine.outlet
        assert (outlet.first_model, outlet.weights()) == (None, None)
    assert not (tmp_path / FIRST_MODEL).exists()

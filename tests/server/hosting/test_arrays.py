"""A model of named arrays: the file it begins with, and the function that judges it."""

import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from edgeflock.server.hosting import arrays
from edgeflock.server.hosting.choices import CHOICES
from edgeflock.server.hosting.run import open_run
from edgeflock.shared.errors import ConfigError, Malformed
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.protocol.app import decode
from edgeflock.shared.settings.config import Config, parse
from edgeflock.shared.settings.model import ModelSettings
from tests.test_imports import modules_after

CONTENTS: dict[str, np.ndarray] = {
    "norm.running_var": np.full(3, 2, np.float32),
    "head": np.arange(4, dtype=np.float16).reshape(2, 2),
    "count": np.array([7, 8]),
    "bias": np.array(0.5),
}


def config(path: Path, *settings: str) -> Config:
    return parse(
        overrides=[f"model.module=arrays:{path}", f"server.directory={path.parent / 'run'}", *settings],
        tables=CHOICES,
    )


@pytest.fixture
def initial(tmp_path: Path) -> Path:
    path = tmp_path / "initial.npz"
    np.savez(path, **CONTENTS)  # type: ignore[arg-type]
    return path


def test_arrays_come_apart_as_they_were_named_typed_and_ordered(initial: Path) -> None:
    known, theta = arrays.read(config(initial).model)
    assert theta.tolist() == [0, 1, 2, 3, 0.5, 2, 2, 2], (
        "running statistics last, what is no float not at all"
    )
    assert known.layout.buffers == 3
    apart = known.split(theta + 1)
    assert list(apart) == list(CONTENTS)
    assert [array.dtype for array in apart.values()] == [array.dtype for array in CONTENTS.values()]
    assert apart["head"].tolist() == [[1, 2], [3, 4]]
    assert apart["count"].tolist() == [7, 8]


def test_a_state_dict_may_be_a_safetensors_file(tmp_path: Path) -> None:
    save_file({"w": np.ones((2, 3), np.float32)}, tmp_path / "initial.safetensors")
    known, theta = arrays.read(config(tmp_path / "initial.safetensors").model)
    assert known.layout == Layout.from_shapes([("w", (2, 3))])
    assert theta.tolist() == [1] * 6


def test_arrays_without_names_are_numbered_as_flower_does(tmp_path: Path) -> None:
    np.savez(tmp_path / "list.npz", np.zeros(2, np.float32), np.zeros(1, np.float32))
    known, _ = arrays.read(config(tmp_path / "list.npz").model)
    assert [tensor.name for tensor in known.layout.tensors] == ["0", "1"]


WRONG: list[tuple[dict[str, np.ndarray], tuple[str, ...], str]] = [
    ({"w": np.array(["a"])}, (), "array 'w' is of type <U1; use float32"),
    ({"w": np.array([1 + 2j])}, (), "array 'w' is of type complex128"),
    ({"w": np.array([1, 2])}, (), "no parameters"),
    ({"w": np.array([math.nan])}, (), "holds NaN or infinity"),
    ({"w": np.zeros(1), "n": np.zeros(70_000, np.uint8)}, (), "arrays of 70000 bytes"),
    (
        {"w": np.zeros(1)},
        ("model.data=digits:",),
        "model.data = 'digits:' is for a torch.*model.evaluate",
    ),
    ({"w": np.zeros(1)}, ("model.input=3",), r"model.input = \[3\] is for a torch module"),
    ({"w": np.zeros(1)}, ("model.evaluate=json:nothing",), "json:nothing.*no attribute"),
    ({"w": np.zeros(1)}, ("model.evaluate=math:pi",), "model.evaluate = 'math:pi' is not a function"),
]


@pytest.mark.parametrize(("contents", "settings", "complaint"), WRONG)
def test_what_cannot_be_trained_is_named(
    contents: dict[str, np.ndarray], settings: tuple[str, ...], complaint: str, tmp_path: Path
) -> None:
    np.savez(tmp_path / "initial.npz", **contents)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=complaint), open_run(config(tmp_path / "initial.npz", *settings)):
        pass


def test_a_file_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "initial.npz").write_bytes(b"PK\x03\x04 and so on")
    for name in ("initial.npz", "missing.npz", "missing.safetensors"):
        with pytest.raises(ConfigError, match=f"arrays:.*{name}.*cannot be read"):
            arrays.read(config(tmp_path / name).model)


def test_a_function_for_arrays_is_refused_for_a_module(tmp_path: Path) -> None:
    settings = parse(overrides=["model.evaluate=a:b", f"server.directory={tmp_path}"], tables=CHOICES)
    with pytest.raises(ConfigError, match="model.evaluate = 'a:b' is for arrays"), open_run(settings):
        pass


@pytest.mark.parametrize(
    ("said", "expected"), [(3, (3.0, None)), ((0.5, 0.25), (0.5, 0.25)), ((1, None), (1.0, None))]
)
def test_a_function_says_the_loss_or_both(
    said: object, expected: tuple[float, float | None], initial: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[dict[str, np.ndarray]] = []

    def evaluate(contents: dict[str, np.ndarray]) -> object:
        seen.append(contents)
        return said

    monkeypatch.setattr(sys.modules[__name__], "evaluate", evaluate, raising=False)
    monkeypatch.setitem(sys.modules, "judging", sys.modules[__name__])
    with open_run(config(initial, "model.evaluate=judging:evaluate")) as hosted:
        assert hosted.model.evaluate is not None
        assert hosted.model.evaluate(hosted.engine.theta()[1])[:2] == expected
    assert list(seen[0]) == list(CONTENTS)


def test_what_apps_are_told_comes_with_the_run(initial: Path) -> None:
    with open_run(
        config(initial, "client_config.lr=0.1", "client_config.name=x y", "evaluation.on_devices=3")
    ) as run:
        known = decode(run.model.app, run.engine.layout)
    assert (known.config, known.evaluate) == ({"lr": 0.1, "name": "x y"}, 3)
    assert list(known.arrays.kinds) == list(CONTENTS)


@pytest.mark.slow
def test_a_server_of_arrays_needs_no_torch(initial: Path) -> None:
    path, directory = json.dumps(f"arrays:{initial}"), json.dumps(str(initial.parent / "run"))
    loaded = modules_after(
        "import asyncio\n"
        "from edgeflock.api.server import Server\n"
        "from edgeflock.server.hosting.choices import CHOICES\n"
        "from edgeflock.shared.settings.config import parse\n"
        f"asked = ['server.port=0', 'model.module=' + {path}, 'server.directory=' + {directory}]\n"
        "async def serve():\n"
        "    async with Server.configured(parse(overrides=asked, tables=CHOICES)) as server:\n"
        "        assert server.version == 0\n"
        "asyncio.run(serve())"
    )
    assert "aiohttp" in loaded
    assert not loaded & {"torch", "onnx", "onnxruntime", "flwr"}


@pytest.mark.parametrize(
    "octets",
    [b"", b"\x93\x80\x00", b"\x93\x90\x00\x90", b"\x93\x80\xff\x90", b"\x93\x81\x01\x80\x00\x90", b"\xc0"],
)
def test_what_an_app_cannot_be_told_is_malformed(octets: bytes) -> None:
    with pytest.raises(Malformed):
        decode(octets, Layout.from_shapes([("w", (1,))]))


def test_a_model_of_arrays_is_of_changes_not_gradients() -> None:
    assert parse(overrides=["model.module=arrays:x.npz"]).coordination.learning_rate == 1
    asked = parse(overrides=["model.module=arrays:x.npz", "coordination.learning_rate=0.5"])
    assert asked.coordination.learning_rate == 0.5
    assert ModelSettings().arrays == ""

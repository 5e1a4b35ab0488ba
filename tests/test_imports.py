"""What a process loads, for a device must not pay for the server; and what is installed."""

import ast
import json
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest

from tests.client.backends.graphs import LAYOUT, model

ROOT = Path(__file__).parents[1]

INSTALLED = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]

PACKAGES = {
    ".".join((name, *path.relative_to(ROOT / folder).parts)): path
    for name, folder in INSTALLED["package-dir"].items()
    for path in sorted([ROOT / folder, *(ROOT / folder).rglob("*")])
    if path.is_dir() and any(path.rglob("*.py"))
}
"""By its name, each folder with code below those that pyproject.toml names."""

LOADED = "import json, sys; print(json.dumps(sorted(sys.modules)), file=sys.stderr)"


@cache
def modules_after(statements: str) -> frozenset[str]:
    """The modules that a fresh interpreter has loaded after `statements`."""
    program = f"{statements}\n{LOADED}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return frozenset(json.loads(done.stderr.splitlines()[-1]))


BARE_CLIENT = {
    "a bare client": "import edgeflock.client.run, edgeflock.client.training, edgeflock.client.transport",
    "its onnx backend": "import edgeflock.client.run, edgeflock.client.backends.onnx",
    "its command line": (
        "import sys; sys.argv = ['edgeflock', 'client', '--help']\n"
        "from edgeflock.cli import main\n"
        "try: main()\nexcept SystemExit: pass"
    ),
}


@pytest.mark.parametrize("statements", BARE_CLIENT.values(), ids=BARE_CLIENT.keys())
@pytest.mark.parametrize(
    "unwanted",
    [
        "torch",
        "onnx",
        "onnxscript",
        "flwr",
        "textual",
        "numba",
        "safetensors",
        "sqlite3",
        "pydantic",
        "edgeflock.server",
    ],
)
def test_a_device_loads_neither_torch_nor_the_server(statements: str, unwanted: str) -> None:
    assert unwanted not in modules_after(statements)


def test_a_device_trains_with_onnxruntime_and_numpy(tmp_path: Path) -> None:
    graph = tmp_path / "step.onnx"
    graph.write_bytes(model())
    loaded = modules_after(
        "import numpy as np\n"
        "from pathlib import Path\n"
        "from edgeflock.client.backends.onnx import OnnxBackend\n"
        "from edgeflock.shared.model.layout import Layout\n"
        f"layout = Layout.from_shapes({LAYOUT.shapes()})\n"
        f"backend = OnnxBackend(Path({str(graph)!r}).read_bytes(), layout)\n"
        "x, y = np.ones((5, 3), np.float32), np.ones((5, 2), np.float32)\n"
        # All weights 0: the error is -1 everywhere, so that each weight's gradient is -2 / (5 * 2) * 5.
        "loss, gradient, _, _, _ = backend.gradient(np.zeros(12, np.float32), x, y)\n"
        "assert (loss, gradient[:8].tolist()) == (1, [-1] * 8)"
    )
    assert "onnxruntime" in loaded
    assert not loaded & {"torch", "onnx", "onnxscript", "google.protobuf", "numba", "pydantic", "aiohttp"}


def test_a_grid_is_coded_without_numba() -> None:
    """As on a device, which need not have it."""
    assert "numba" not in modules_after(
        "import sys; sys.modules['numba'] = None\n"
        "import numpy as np\n"
        "from edgeflock.shared.codecs import grid\n"
        "from edgeflock.shared.model.layout import Layout\n"
        "layout = Layout.from_shapes([('w', (9, 4)), ('b', (4,))])\n"
        "signs = np.array([0, 1, 0, 1, 1], bool)\n"
        "assert grid.encode(np.array([3, 11, 12, 27, 37]), signs, layout) == bytes.fromhex('985e26')\n"
        "del sys.modules['numba']"
    )


@pytest.mark.parametrize("module", ["training.worker", "training.trainer", "data.sources"])
def test_training_loads_no_network(module: str) -> None:
    """A worker talks to whatever it is given: only the transport needs aiohttp."""
    loaded = modules_after(f"import edgeflock.client.{module}")
    assert not loaded & {"aiohttp", "edgeflock.client.transport", "torch", "pydantic"}


def test_flowers_clientapps_load_neither_torch_nor_the_server_for_the_mod() -> None:
    loaded = modules_after("import edgeflock.client.flower")
    assert not loaded & {"torch", "numba", "aiohttp", "pydantic.main", "sqlite3", "edgeflock.server"}


def test_a_strategy_loads_no_torch() -> None:
    assert not modules_after("import edgeflock.server.flower") & {"torch", "aiohttp", "edgeflock.client"}


def test_version_loads_no_numpy() -> None:
    loaded = modules_after(
        "import sys; sys.argv = ['edgeflock', '--version']\n"
        "from edgeflock.cli import main\n"
        "try: main()\nexcept SystemExit: pass"
    )
    assert "numpy" not in loaded
    assert "aiohttp" not in loaded


@pytest.mark.parametrize(
    "module",
    [
        "errors",
        "codecs.grid",
        "codecs.sparse",
        "codecs.values",
        "data.datasets",
        "model.layout",
        "protocol.backoff",
        "protocol.feed",
        "protocol.wire",
        "selection",
        "settings.config",
    ],
)
def test_shared_loads_no_network(module: str) -> None:
    loaded = modules_after(f"import edgeflock.shared.{module}")
    assert "aiohttp" not in loaded
    assert "torch" not in loaded


# What is installed


def test_every_package_is_installed() -> None:
    """setuptools takes those that are listed, and no sub-package by itself."""
    assert sorted(INSTALLED["packages"]) == sorted(PACKAGES)


@pytest.mark.parametrize("name", PACKAGES)
def test_every_package_has_a_door_that_says_what_lives_there(name: str) -> None:
    door = PACKAGES[name] / "__init__.py"
    assert door.is_file()
    assert ast.get_docstring(ast.parse(door.read_text()))


def test_a_server_has_compiled_what_its_first_update_needs() -> None:
    """Or its devices would wait for numba, all of them, and give it up."""
    loaded = modules_after("import edgeflock.server.app, edgeflock.server.hosting")
    for room in ("server.descent", "server.publication", "server.findings"):
        assert f"edgeflock.{room}.kernels" in loaded
    assert {"edgeflock.shared.codecs.decisions", "edgeflock.shared.codecs.compiled_entries"} <= loaded


def test_a_device_s_doctor_needs_nothing_of_a_server() -> None:
    loaded = modules_after("import edgeflock.doctor")
    assert not loaded & {"torch", "numba", "onnx", "edgeflock.server"}

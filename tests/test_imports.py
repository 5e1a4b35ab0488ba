"""What a process loads: a device must not pay for the server, nor `--version` for numpy."""

import json
import subprocess
import sys

import pytest

LOADED = "import json, sys; print(json.dumps(sorted(sys.modules)), file=sys.stderr)"


def modules_after(statements: str) -> set[str]:
    """The modules that a fresh interpreter has loaded after `statements`."""
    program = f"{statements}\n{LOADED}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(json.loads(done.stderr.splitlines()[-1]))


BARE_CLIENT = {
    "a bare client": "import edgeflock.client.run, edgeflock.client.worker, edgeflock.client.transport",
    "its command line": (
        "import sys; sys.argv = ['edgeflock', 'client', '--help']\n"
        "from edgeflock.devices.cli import main\n"
        "try: main()\nexcept SystemExit: pass"
    ),
}


@pytest.mark.parametrize("statements", BARE_CLIENT.values(), ids=BARE_CLIENT.keys())
@pytest.mark.parametrize(
    "unwanted", ["torch", "flwr", "textual", "numba", "safetensors", "sqlite3", "edgeflock.server"]
)
def test_a_device_loads_neither_torch_nor_the_server(statements: str, unwanted: str) -> None:
    assert unwanted not in modules_after(statements)


def test_a_grid_is_coded_without_numba() -> None:
    """As on a device, which need not have it."""
    assert "numba" not in modules_after(
        "import sys; sys.modules['numba'] = None\n"
        "import numpy as np\n"
        "from edgeflock.shared import grid\n"
        "from edgeflock.shared.layout import Layout\n"
        "layout = Layout.of([('w', (9, 4)), ('b', (4,))])\n"
        "signs = np.array([0, 1, 0, 1, 1], bool)\n"
        "assert grid.encode(np.array([3, 11, 12, 27, 37]), signs, layout) == bytes.fromhex('985e26')\n"
        "del sys.modules['numba']"
    )


def test_version_loads_no_numpy() -> None:
    loaded = modules_after(
        "import sys; sys.argv = ['edgeflock', '--version']\n"
        "from edgeflock.devices.cli import main\n"
        "try: main()\nexcept SystemExit: pass"
    )
    assert "numpy" not in loaded
    assert "aiohttp" not in loaded


@pytest.mark.parametrize(
    "module",
    [
        "layout",
        "messages",
        "wire",
        "bits",
        "sparse",
        "grid",
        "values",
        "compression",
        "errors",
        "config",
        "datasets",
    ],
)
def test_shared_loads_no_network(module: str) -> None:
    loaded = modules_after(f"import edgeflock.shared.{module}")
    assert "aiohttp" not in loaded
    assert "torch" not in loaded

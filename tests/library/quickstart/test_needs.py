"""The extra `quickstart` is all that the first command needs."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
FIRST = re.compile(r"-e '\.\[(\w+)\]' && \.venv/bin/edgeflock quickstart$", re.MULTILINE)

LEFT_OUT = (
    *("onnx", "onnxscript", "onnx_ir", "onnxruntime", "flwr", "textual", "psycopg", "aiokafka", "aiomqtt"),
    *("pyarrow", "PIL", "torchmetrics", "matplotlib", "sklearn", "scipy"),
)


@pytest.mark.parametrize("page", ["README.md", "docs/tutorials/first-run.md"])
def test_the_first_command_installs_the_extra(page: str) -> None:
    assert FIRST.findall((ROOT / page).read_text("utf-8")) == ["quickstart"]
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    assert extras["quickstart"] == ["edgeflock[arrays,torch]"]


@pytest.mark.slow
def test_server_and_clients_import_nothing_else() -> None:
    """What the two processes of a quickstart import, and the data, without the packages of other extras."""
    program = (
        f"import sys; sys.modules.update(dict.fromkeys({LEFT_OUT!r}))\n"
        "import edgeflock.server.app, edgeflock.server.hosting, edgeflock.server.hosting.choices\n"
        "import edgeflock.client.run, edgeflock.client.backends.torch, edgeflock.client.zoo\n"
        "import edgeflock.quickstart\n"
        "from edgeflock.shared.data import datasets\n"
        "assert len(datasets.load('digits:', 'train')) > 1000\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
